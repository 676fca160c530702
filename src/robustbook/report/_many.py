"""Many models on the same images: one table, and one page, with a row for each."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from robustbook import _defaults as defaults
from robustbook._comparison import paired_means, paired_rates
from robustbook._engine import Engine
from robustbook._intervals import Estimate
from robustbook._json import strict
from robustbook.agreement import symmetric_channel_capacity
from robustbook.lenses import ThreeLenses
from robustbook.report import _words as words
from robustbook.report._data import read_images
from robustbook.report._measure import blame, load_fitting, measure
from robustbook.report._page import template, with_versions, write_files
from robustbook.report._request import Request

#: Name of the format of the numbers.
FORMAT: Final = "robustbook many 1"

#: Each measure of the images, by name, and how much of it so few may not show.
Values = dict[str, tuple[Tensor, float]]


@dataclass(frozen=True)
class Sweep:
    """The results of many models on the same images.

    Every model is compared with `reference`, the first that could be measured. A row
    holds the ``model`` and either its ``measures``, with the ``value`` and the paired
    ``difference`` of each, or the ``error`` of a model that could not be measured.
    """

    header: dict[str, str]
    reference: str
    rows: list[dict[str, Any]]

    @property
    def failures(self) -> dict[str, str]:
        """Why models could not be measured."""
        return {row["model"]: row["error"] for row in self.rows if "error" in row}

    @property
    def cells(self) -> dict[str, dict[str, tuple[str, str, str]]]:
        """The value of each measure, its difference, and the interval, by model."""
        cells: dict[str, dict[str, tuple[str, str, str]]] = {}
        for row in self.rows:
            of_model = cells.setdefault(row["model"], {})
            for name, result in row.get("measures", {}).items():
                difference = interval = ""
                if paired := result["difference"]:
                    difference = f"{paired['value']:+.3f}"
                    interval = "{:+.3f} to {:+.3f}".format(*paired["interval"])
                of_model[name] = f"{result['value']:.3f}", difference, interval
        return cells

    @property
    def numbers(self) -> dict[str, Any]:
        """All numbers, as JSON can hold them."""
        shared = {"format": FORMAT, **self.header, "reference": self.reference}
        return dict(strict({**shared, "models": self.rows}))

    @property
    def table(self) -> str:
        """The table as text: a block for each measure, then the failures."""
        cells = self.cells
        width = max(map(len, cells)) + 2
        lines = [f"{name}: {text}" for name, text in self.header.items()]
        for name in cells[self.reference]:
            lines += ["", name]
            for model in cells:
                if model not in self.failures:
                    value, difference, interval = cells[model][name]
                    line = f"  {model:<{width}}{value:>7}{difference:>9}   {interval}"
                    lines.append(line.rstrip())
        lines += ["", f"differences to {self.reference}, paired by image, at 95 %"]
        lines += [f"{m}: not measured: {why}" for m, why in self.failures.items()]
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The page, self-contained."""
        page = template("many.html.jinja")
        return page.render(framed=False, panels={}, words=words, sweep=self)

    def write(self, page: Path, numbers: Path | None = None) -> None:
        """Write the page and the numbers, each completely or not at all."""
        files = {page: self.html}
        if numbers is not None:
            files[numbers] = json.dumps(self.numbers, allow_nan=False) + "\n"
        write_files(files)


def sweep(request: Request, engine: str) -> Sweep:
    """Measure the models that a file lists; keep the reason where one fails.

    A list or data that cannot be used are a ValueError, an engine that cannot be
    reached is an OSError.
    """
    models = read_models(Path(request.model))
    runner = Engine.named(engine, device=request.torch_device)
    images = request.draw(read_images(request.data))
    data = Path(request.data)
    data = data.resolve() if data.is_file() else data
    request = replace(
        request,
        images=len(images),
        data=str(data),
        # The same for all models, whatever they were trained with.
        eps=request.eps or str(defaults.EPS),
        sigma=request.sigma or defaults.SIGMA,
    )
    calls = [partial(_measured, replace(request, model=name)) for name in models]
    reference, first, remarks = "", None, []
    rows: list[dict[str, Any]] = []
    results = runner.results(calls, title="models")
    for model, (values, texts) in zip(models, results, strict=True):
        if values is None:
            rows.append({"model": model, "error": texts[0]})
            continue
        rows.append({"model": model, "measures": _compared(values, first)})
        remarks += [f"{model}: {text}" for text in texts]
        if first is None:
            reference, first = model, values
    for remark in remarks:
        warnings.warn(remark, stacklevel=2)
    if first is None:
        reasons = "; ".join(f"{row['model']}: {row['error']}" for row in rows)
        raise RuntimeError(f"no model could be measured: {reasons}")
    settings = request.settings
    header = {
        "data": f"{images.name}: {len(images)} images",
        "settings": f"ε = {words.eps_in_words(settings.eps)}, PGD with "
        f"{settings.attack_steps} steps; corruptions at severity "
        f"{settings.severity}; σ = {settings.sigma:g}; seed {settings.seed}",
        "with": with_versions(),
    }
    if remarks:
        header["remarks"] = "; ".join(remarks)
    return Sweep(header, reference, rows)


def read_models(path: Path) -> tuple[str, ...]:
    """Return the models that a text file lists, one a line; # starts a comment."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a text file of models ({error})") from error
    models = [line.partition("#")[0].strip() for line in lines]
    models = [model for model in models if model]
    twice = [model for model in models if models.count(model) > 1]
    if twice or not models:
        got = f"{twice[0]} twice" if twice else "none"
        raise ValueError(f"{path}: expected different models, one a line; got {got}")
    return tuple(models)


def _measured(request: Request) -> tuple[Values | None, list[str]]:
    """Return the values of a model and its warnings, or None and why it failed."""
    images = request.draw(read_images(request.data))
    try:
        model = load_fitting(request, images)
        with blame(request.model), warnings.catch_warnings(record=True) as remarks:
            warnings.simplefilter("default")
            lenses = measure(request, model, images, request.margin_images)
    except (Exception, SystemExit) as error:
        return None, [_reason(request.model, error)]
    return _values(lenses), [_reason("model", r.message) for r in remarks]


def _reason(model: str, error: Any) -> str:
    text = " ".join(str(error).split()).removeprefix(f"{model}: ")
    return text or type(error).__name__


def _compared(values: Values, reference: Values | None) -> dict[str, dict[str, Any]]:
    """Return each mean over the images, and its difference to that of a reference."""
    measures = {}
    for name, (each, unseen) in values.items():
        difference: Estimate | None = None
        if reference is not None:
            others, _ = reference[name]
            if each.dtype == torch.bool:
                difference = paired_rates(each, others)
            else:
                difference = paired_means(each, others, unseen)
        value = float(each.double().mean())
        measures[name] = {"value": value, "difference": difference and vars(difference)}
    return measures


def _values(lenses: ThreeLenses) -> Values:
    """Return each measure of the images, and how much of it they may not show.

    Where an event was not seen on N images, up to three in N are possible. If those
    images had contradicting predictions, they would cost `unseen_pa` of agreement.
    """
    settings, agreements = lenses.settings, lenses.agreements
    classes = lenses.num_classes
    unseen = min(1.0, 3 / len(lenses))
    unseen_pa = math.log(classes) - symmetric_channel_capacity(unseen, classes)
    values: Values = {}
    if lenses.correct is not None:
        values["accuracy"] = lenses.correct, unseen
    if agreements:
        values["PA, attack"] = agreements["adversarial"].per_sample, unseen_pa
        values["PA, noise"] = agreements["noise"].per_sample, unseen_pa
        each = torch.stack([agreements[s].per_sample for s in settings.corruptions])
        values["PA, mean of corruptions"] = each.mean(dim=0), unseen_pa
    if lenses.robustness is not None:
        survival = lenses.robustness.probability
        values[f"survives noise, σ = {settings.sigma:g}"] = survival, unseen
    if lenses.margins is not None:
        above = lenses.margins > settings.eps
        values[f"margin above {words.eps_in_words(settings.eps)}"] = above, unseen
    return values
