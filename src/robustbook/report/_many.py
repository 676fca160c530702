"""Many models on the same images: a row each, in one table and on one page."""

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
from torch import Tensor

from robustbook._comparison import Difference, paired_means, paired_rates
from robustbook._engine import Engine
from robustbook._json import strict
from robustbook._store.cache import cache_directory
from robustbook.agreement import symmetric_channel_capacity
from robustbook.lenses import ThreeLenses, three_lenses
from robustbook.models import load_model
from robustbook.report import _words as words
from robustbook.report._data import read_images
from robustbook.report._make import drop_old, naming
from robustbook.report._page import template, with_versions, write_files
from robustbook.report._request import EPS, SIGMA, Request, check_fit, parse_bound

#: Names the format of the numbers.
FORMAT: Final = "robustbook many 1"

#: Images that are measured at once: so much is lost by an interruption.
_PART: Final = 64


@dataclass(frozen=True)
class Measure:
    """A mean over images: what it is called, and its values by model."""

    name: str
    values: dict[str, Tensor]
    rate: bool
    #: By how much two means may differ if they are the same on all images.
    unseen: float = 0.0

    def mean(self, model: str) -> float:
        """Over the images."""
        return float(self.values[model].double().mean())

    def difference(self, model: str, other: str) -> Difference:
        """Of the means of two models, paired by image."""
        one, another = self.values[model], self.values[other]
        if self.rate:
            return paired_rates(one, another)
        return paired_means(one, another, self.unseen)


@dataclass(frozen=True)
class Sweep:
    """What came of many models on the same images.

    Every model is compared with the first that could be measured.
    """

    models: tuple[str, ...]
    measures: tuple[Measure, ...]
    failures: dict[str, str]
    header: dict[str, str]

    @classmethod
    def over(cls, request: Request, engine: str) -> Sweep:
        """Measure the models that a file lists; one that fails has a reason.

        What is no list, or no data, is a ValueError; an engine that is not there, an
        OSError.
        """
        if request.minutes is not None:
            raise ValueError("--minutes: for one model; take fewer --images for many")
        models = read_models(Path(request.model))
        chosen = Engine.named(engine, device=request.place)
        images = request.draw(read_images(request.data))
        request = replace(request, images=len(images))
        if Path(request.data).is_file():
            request = replace(request, data=str(Path(request.data).resolve()))
        folder = cache_directory() / "many"
        drop_old(folder)
        calls = [partial(_measured, request, model, folder) for model in models]
        lenses: dict[str, ThreeLenses] = {}
        failures: dict[str, str] = {}
        remarks: dict[str, list[str]] = {}
        for number, result in chosen.results(calls, title="models"):
            model = models[number]
            if isinstance(result, BaseException):
                failures[model] = _reason(model, result)
                continue
            lenses[model], said = result
            remarks[model] = [f"{model}: {remark}" for remark in said]
            for remark in remarks[model]:
                warnings.warn(remark, stacklevel=2)
        lenses = {model: lenses[model] for model in models if model in lenses}
        _drop_misfits(lenses, failures)
        failures = {model: failures[model] for model in models if model in failures}
        if not lenses:
            reasons = "; ".join(f"{model}: {why}" for model, why in failures.items())
            raise RuntimeError(f"no model could be measured: {reasons}")
        settings = next(iter(lenses.values())).settings
        header = {
            "data": f"{images.name}: {len(images)} images",
            "settings": f"ε = {words.bound(settings.eps)}, PGD with "
            f"{settings.attack_steps} steps; corruptions at severity "
            f"{settings.severity}; σ = {settings.sigma:g}; seed {settings.seed}",
            "with": with_versions(),
        }
        if remarked := [remark for model in lenses for remark in remarks[model]]:
            header["remarks"] = "; ".join(remarked)
        return cls(models, tuple(_measures(lenses)), failures, header)

    @property
    def reference(self) -> str:
        """The first model that could be measured."""
        return next(model for model in self.models if model not in self.failures)

    @property
    def numbers(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        rows: list[dict[str, Any]] = []
        for model in self.models:
            if model in self.failures:
                rows.append({"model": model, "error": self.failures[model]})
                continue
            row: dict[str, Any] = {}
            for one in self.measures:
                row[one.name] = {"value": one.mean(model), "difference": None}
                if model != self.reference:
                    against = one.difference(model, self.reference)
                    row[one.name]["difference"] = vars(against)
            rows.append({"model": model, "measures": row})
        shared = {"format": FORMAT, **self.header, "reference": self.reference}
        return dict(strict({**shared, "models": rows}))

    def cells(self, model: str) -> Iterator[tuple[str, str, str]]:
        """Each value of a model, its difference to the first, and the interval."""
        for measure in self.measures:
            against = between = ""
            if model != self.reference:
                difference = measure.difference(model, self.reference)
                against = f"{difference.value:+.3f}"
                between = "{:+.3f} to {:+.3f}".format(*difference.interval)
            yield f"{measure.mean(model):.3f}", against, between

    @property
    def table(self) -> str:
        """Lines of text: a block for each measure, then what failed."""
        rows = {m: [*self.cells(m)] for m in self.models if m not in self.failures}
        width = max(map(len, self.models)) + 2
        lines = [f"{name}: {text}" for name, text in self.header.items()]
        for place, measure in enumerate(self.measures):
            lines += ["", measure.name]
            for model, cells in rows.items():
                value, against, between = cells[place]
                line = f"  {model:<{width}}{value:>7}{against:>9}   {between}"
                lines.append(line.rstrip())
        lines += ["", f"differences to {self.reference}, paired by image, at 95 %"]
        for model, why in self.failures.items():
            lines.append(f"{model}: not measured: {why}")
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The page, whole and self-contained."""
        return template("many.html.jinja").render(
            framed=False, cards=[], book=words.BOOK, header=self.header.items(),
            reference=self.reference, measures=[m.name for m in self.measures],
            count=len(self.models), failures=self.failures,
            rows=[
                (model, None if model in self.failures else [*self.cells(model)])
                for model in self.models
            ],
        )  # fmt: skip

    def write(self, page: Path, numbers: Path | None = None) -> None:
        """Write the page and the numbers, each whole or not at all."""
        files = {page: self.html}
        if numbers is not None:
            files[numbers] = json.dumps(self.numbers, allow_nan=False) + "\n"
        write_files(files)


def read_models(path: Path) -> tuple[str, ...]:
    """Names of models, one a line; what follows # is a comment."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a text file of models ({error})") from error
    models = [line.partition("#")[0].strip() for line in lines]
    found = [model for model in models if model]
    if not found:
        raise ValueError(f"{path}: expected a model a line, got none")
    for number, model in enumerate(models, start=1):
        if model and model in models[: number - 1]:
            raise ValueError(f"{path}: line {number}: {model} stands there twice")
    return tuple(found)


def _measured(
    request: Request, name: str, folder: Path
) -> tuple[ThreeLenses, list[str]]:
    """Measure one model, on any worker; and what was remarked there."""
    chosen = request.draw(read_images(request.data))
    model = load_model(name, device=request.place).eval()
    check_fit(model, chosen, name)
    # The same for all, whatever they were trained with.
    eps = parse_bound(request.eps) if request.eps else EPS
    with naming(name), warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("default")
        measured = three_lenses(
            model, chosen.images, chosen.labels, eps=eps, sigma=request.sigma or SIGMA,
            margin_images=request.margin_images, batch_size=_PART, checkpoint=folder,
            progress=False, **request.measuring,
        )  # fmt: skip
    return measured, [_reason("model", one.message) for one in remarks]


def _reason(model: str, error: Any) -> str:
    text = " ".join(str(error).split()).removeprefix(f"{model}: ")
    return text or type(error).__name__


def _drop_misfits(lenses: dict[str, ThreeLenses], failures: dict[str, str]) -> None:
    """Models with other classes than the first have nothing to compare."""
    classes = {model: one.num_classes for model, one in lenses.items()}
    for model, count in classes.items():
        first, expected = next(iter(classes.items()))
        if count != expected:
            failures[model] = f"{count} classes, but {first} has {expected}"
            del lenses[model]


def _measures(lenses: dict[str, ThreeLenses]) -> Iterator[Measure]:
    """What all models were measured by: of the images, or of those with margins."""
    first = next(iter(lenses.values()))
    settings = first.settings

    # Of none among N, three are possible; as contradictions they cost agreement.
    share, classes = min(1.0, 3 / len(first)), first.num_classes
    lost = math.log(classes) - symmetric_channel_capacity(share, classes)

    def all_of(
        name: str, values: Any, *, rate: bool = False, unseen: float = share
    ) -> Measure:
        found = {model: values(one) for model, one in lenses.items()}
        return Measure(name, found, rate, unseen)

    if first.correct is not None:
        yield all_of("accuracy", lambda one: one.correct, rate=True)
    for shift in ("adversarial", "noise"):
        if first.agreements:
            name = f"PA, {words.shift_name(shift)}"
            yield all_of(
                name, lambda one, s=shift: one.agreements[s].per_sample, unseen=lost
            )
    if first.agreements:
        name, kinds = "PA, mean of corruptions", settings.corruptions
        yield all_of(
            name,
            lambda x: torch.stack([x.agreements[k].per_sample for k in kinds]).mean(0),
            unseen=lost,
        )
    if first.robustness is not None:
        name = f"survives noise, σ = {settings.sigma:g}"
        yield all_of(name, lambda one: one.robustness.probability)
    if first.margins is not None:
        name, eps = f"margin above {words.bound(settings.eps)}", settings.eps
        yield all_of(name, lambda one: one.margins.margins.cpu() > eps, rate=True)
