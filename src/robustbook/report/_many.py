"""Many models on the same images: one table, and one page, with a row for each."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from robustbook._comparison import paired_means, paired_rates
from robustbook._engine import Engine
from robustbook._intervals import Estimate
from robustbook._json import strict
from robustbook.agreement import symmetric_channel_capacity
from robustbook.lenses import ThreeLenses
from robustbook.report import _words as words
from robustbook.report._data import read_images
from robustbook.report._measure import Run, blame
from robustbook.report._page import template, with_versions, write_files
from robustbook.report._request import Request

#: Name of the format of the numbers.
FORMAT: Final = "robustbook many 1"

#: Images of a batch: an interruption loses no more.
_BATCH: Final = 64

#: The mean of each measure over the images, and its difference to the first model.
Results = dict[str, tuple[float, Estimate | None]]


@dataclass(frozen=True)
class Sweep:
    """The results of many models on the same images.

    Every model is compared with `reference`, the first that could be measured; a model
    that could not has the reason in `failures`.
    """

    models: tuple[str, ...]
    results: dict[str, Results]
    failures: dict[str, str]
    header: dict[str, str]

    @classmethod
    def over(cls, request: Request, engine: str) -> Sweep:
        """Measure the models that a file lists; keep the reason where one fails.

        A list or data that cannot be used are a ValueError, an engine that cannot be
        reached is an OSError.
        """
        models = read_models(Path(request.model))
        runner = Engine.named(engine, device=request.torch_device)
        images = request.draw(read_images(request.data))
        data = Path(request.data)
        data = data.resolve() if data.is_file() else data
        request = replace(request, images=len(images), data=str(data))
        calls = [partial(_measured, replace(request, model=name)) for name in models]
        measured = runner.results(calls, title="models")
        lenses: dict[str, ThreeLenses] = {}
        failures: dict[str, str] = {}
        remarks = []
        for model, (found, texts) in zip(models, measured, strict=True):
            if found is None:
                (failures[model],) = texts
                continue
            first, reference = next(iter(lenses.items()), (model, found))
            if found.num_classes != reference.num_classes:
                failures[model] = (
                    f"{found.num_classes} classes, but {first} has "
                    f"{reference.num_classes}"
                )
                continue
            lenses[model] = found
            remarks += [f"{model}: {text}" for text in texts]
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        if not lenses:
            reasons = "; ".join(f"{model}: {why}" for model, why in failures.items())
            raise RuntimeError(f"no model could be measured: {reasons}")
        reference = next(iter(lenses.values()))
        settings = reference.settings
        header = {
            "data": f"{images.name}: {len(images)} images",
            "settings": f"ε = {words.eps_in_words(settings.eps)}, PGD with "
            f"{settings.attack_steps} steps; corruptions at severity "
            f"{settings.severity}; σ = {settings.sigma:g}; seed {settings.seed}",
            "with": with_versions(),
        }
        if remarks:
            header["remarks"] = "; ".join(remarks)
        results = {m: dict(_results(found, reference)) for m, found in lenses.items()}
        return cls(models, results, failures, header)

    @property
    def reference(self) -> str:
        """The first model that could be measured."""
        return next(iter(self.results))

    @property
    def numbers(self) -> dict[str, Any]:
        """All numbers, as JSON can hold them."""
        rows: list[dict[str, Any]] = []
        for model in self.models:
            if model in self.failures:
                rows.append({"model": model, "error": self.failures[model]})
                continue
            row = {
                name: {"value": value, "difference": paired and vars(paired)}
                for name, (value, paired) in self.results[model].items()
            }
            rows.append({"model": model, "measures": row})
        shared = {"format": FORMAT, **self.header, "reference": self.reference}
        return dict(strict({**shared, "models": rows}))

    def cells(self, model: str) -> dict[str, tuple[str, str, str]] | None:
        """Return each value of a model, its difference to the first, the interval."""
        if model in self.failures:
            return None
        cells = {}
        for name, (value, paired) in self.results[model].items():
            difference = interval = ""
            if paired is not None:
                difference = f"{paired.value:+.3f}"
                interval = "{:+.3f} to {:+.3f}".format(*paired.interval)
            cells[name] = f"{value:.3f}", difference, interval
        return cells

    @property
    def table(self) -> str:
        """The table as text: a block for each measure, then the failures."""
        width = max(map(len, self.models)) + 2
        lines = [f"{name}: {text}" for name, text in self.header.items()]
        for measure in self.results[self.reference]:
            lines += ["", measure]
            for model in self.results:
                value, difference, interval = (self.cells(model) or {})[measure]
                line = f"  {model:<{width}}{value:>7}{difference:>9}   {interval}"
                lines.append(line.rstrip())
        lines += ["", f"differences to {self.reference}, paired by image, at 95 %"]
        for model, why in self.failures.items():
            lines.append(f"{model}: not measured: {why}")
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The page, self-contained."""
        return template("many.html.jinja").render(
            framed=False,
            cards=[],
            book=words.BOOK,
            header=self.header.items(),
            reference=self.reference,
            measures=[*self.results[self.reference]],
            failures=self.failures,
            rows={model: self.cells(model) for model in self.models},
        )

    def write(self, page: Path, numbers: Path | None = None) -> None:
        """Write the page and the numbers, each completely or not at all."""
        files = {page: self.html}
        if numbers is not None:
            files[numbers] = json.dumps(self.numbers, allow_nan=False) + "\n"
        write_files(files)


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


def _measured(request: Request) -> tuple[ThreeLenses | None, list[str]]:
    """Measure one model and return its warnings, or None and why it failed."""
    images = request.draw(read_images(request.data))
    try:
        # The same settings for all models, whatever they were trained with.
        run = Run(request, images, request.settings(use_training=False))
        with blame(request.model), warnings.catch_warnings(record=True) as remarks:
            warnings.simplefilter("default")
            lenses = run.measure(images, request.margin_images, _BATCH)
    except (Exception, SystemExit) as error:
        return None, [_reason(request.model, error)]
    return lenses, [_reason("model", remark.message) for remark in remarks]


def _reason(model: str, error: Any) -> str:
    text = " ".join(str(error).split()).removeprefix(f"{model}: ")
    return text or type(error).__name__


def _results(
    found: ThreeLenses, reference: ThreeLenses
) -> Iterator[tuple[str, tuple[float, Estimate | None]]]:
    """Yield each mean over the images, and its difference to that of a reference."""
    # Where an event was not seen on N images, up to three in N are possible. If those
    # images had contradicting predictions, they would cost this much agreement.
    share, classes = min(1.0, 3 / len(found)), found.num_classes
    nats = math.log(classes) - symmetric_channel_capacity(share, classes)
    values = dict(_values(found))
    for name, other in _values(reference):
        mine, paired = values[name], None
        if found is not reference and mine.dtype == torch.bool:
            paired = paired_rates(mine, other)
        elif found is not reference:
            unseen = nats if name.startswith("PA") else share
            paired = paired_means(mine, other, unseen)
        yield name, (float(mine.double().mean()), paired)


def _values(lenses: ThreeLenses) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name of each measure, and its values for the images."""
    settings, agreements = lenses.settings, lenses.agreements
    if lenses.correct is not None:
        yield "accuracy", lenses.correct
    if agreements:
        yield "PA, attack", agreements["adversarial"].per_sample
        yield "PA, noise", agreements["noise"].per_sample
        each = torch.stack([agreements[s].per_sample for s in settings.corruptions])
        yield "PA, mean of corruptions", each.mean(dim=0)
    if lenses.robustness is not None:
        yield f"survives noise, σ = {settings.sigma:g}", lenses.robustness.probability
    if lenses.margins is not None:
        above = lenses.margins.margins.cpu() > settings.eps
        yield f"margin above {words.eps_in_words(settings.eps)}", above
