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
from torch import Tensor

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


@dataclass(frozen=True)
class Measure:
    """A mean over images: its name, and the values of each model."""

    name: str
    values: dict[str, Tensor]
    rate: bool
    #: Largest difference that is plausible where the values of both models are equal.
    unseen: float = 0.0

    def mean(self, model: str) -> float:
        """Return the mean over the images."""
        return float(self.values[model].double().mean())

    def difference(self, model: str, other: str) -> Estimate:
        """Return the difference of the means of two models, paired by image."""
        pair = self.values[model], self.values[other]
        return paired_rates(*pair) if self.rate else paired_means(*pair, self.unseen)


@dataclass(frozen=True)
class Sweep:
    """The results of many models on the same images.

    Every model is compared with the first that could be measured.
    """

    models: tuple[str, ...]
    measures: tuple[Measure, ...]
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
        results = zip(models, runner.results(calls, title="models"), strict=True)
        lenses: dict[str, ThreeLenses] = {}
        failures: dict[str, str] = {}
        remarks = []
        for model, (measured, texts) in results:
            if measured is None:
                (failures[model],) = texts
                continue
            first, reference = next(iter(lenses.items()), (model, measured))
            if measured.num_classes != reference.num_classes:
                failures[model] = (
                    f"{measured.num_classes} classes, but {first} has "
                    f"{reference.num_classes}"
                )
                continue
            lenses[model] = measured
            remarks += [f"{model}: {text}" for text in texts]
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        if not lenses:
            reasons = "; ".join(f"{model}: {why}" for model, why in failures.items())
            raise RuntimeError(f"no model could be measured: {reasons}")
        settings = next(iter(lenses.values())).settings
        header = {
            "data": f"{images.name}: {len(images)} images",
            "settings": f"ε = {words.eps_in_words(settings.eps)}, PGD with "
            f"{settings.attack_steps} steps; corruptions at severity "
            f"{settings.severity}; σ = {settings.sigma:g}; seed {settings.seed}",
            "with": with_versions(),
        }
        if remarks:
            header["remarks"] = "; ".join(remarks)
        return cls(models, tuple(_measures(lenses)), failures, header)

    @property
    def reference(self) -> str:
        """The first model that could be measured."""
        return next(model for model in self.models if model not in self.failures)

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
                for name, value, paired in self.results(model)
            }
            rows.append({"model": model, "measures": row})
        shared = {"format": FORMAT, **self.header, "reference": self.reference}
        return dict(strict({**shared, "models": rows}))

    def results(self, model: str) -> Iterator[tuple[str, float, Estimate | None]]:
        """Yield name and value of each measure, and the difference to the first."""
        other = self.reference
        for measure in self.measures:
            paired = measure.difference(model, other) if model != other else None
            yield measure.name, measure.mean(model), paired

    def cells(self, model: str) -> Iterator[tuple[str, str, str]]:
        """Yield each value of a model, its difference to the first, the interval."""
        for _, value, paired in self.results(model):
            difference = interval = ""
            if paired is not None:
                difference = f"{paired.value:+.3f}"
                interval = "{:+.3f} to {:+.3f}".format(*paired.interval)
            yield f"{value:.3f}", difference, interval

    @property
    def table(self) -> str:
        """The table as text: a block for each measure, then the failures."""
        rows = {m: [*self.cells(m)] for m in self.models if m not in self.failures}
        width = max(map(len, self.models)) + 2
        lines = [f"{name}: {text}" for name, text in self.header.items()]
        for column, measure in enumerate(self.measures):
            lines += ["", measure.name]
            for model, cells in rows.items():
                value, difference, interval = cells[column]
                line = f"  {model:<{width}}{value:>7}{difference:>9}   {interval}"
                lines.append(line.rstrip())
        lines += ["", f"differences to {self.reference}, paired by image, at 95 %"]
        for model, why in self.failures.items():
            lines.append(f"{model}: not measured: {why}")
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The page, self-contained."""
        failed = self.failures
        return template("many.html.jinja").render(
            framed=False,
            cards=[],
            book=words.BOOK,
            header=self.header.items(),
            reference=self.reference,
            measures=[measure.name for measure in self.measures],
            count=len(self.models),
            failures=failed,
            rows=[(m, None if m in failed else [*self.cells(m)]) for m in self.models],
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
            lenses = run.measure(
                images, margin_images=request.margin_images, batch_size=_BATCH
            )
    except (Exception, SystemExit) as error:
        return None, [_reason(request.model, error)]
    return lenses, [_reason("model", remark.message) for remark in remarks]


def _reason(model: str, error: Any) -> str:
    text = " ".join(str(error).split()).removeprefix(f"{model}: ")
    return text or type(error).__name__


def _measures(lenses: dict[str, ThreeLenses]) -> Iterator[Measure]:
    first = next(iter(lenses.values()))
    settings, classes = first.settings, first.num_classes
    # Where an event was not seen on N images, up to three in N are possible. If those
    # images had contradicting predictions, they would cost this much agreement.
    share = min(1.0, 3 / len(first))
    nats = math.log(classes) - symmetric_channel_capacity(share, classes)

    def of_all(
        name: str, values: Any, *, rate: bool = False, unseen: float = share
    ) -> Measure:
        values_of = {model: values(one) for model, one in lenses.items()}
        return Measure(name, values_of, rate, unseen)

    if first.correct is not None:
        yield of_all("accuracy", lambda x: x.correct, rate=True)
    if first.agreements:
        groups: dict[str, tuple[str, ...]] = {
            "PA, attack": ("adversarial",),
            "PA, noise": ("noise",),
            "PA, mean of corruptions": settings.corruptions,
        }
        for name, shifts in groups.items():
            yield of_all(name, partial(_contributions, shifts), unseen=nats)
    if first.robustness is not None:
        name = f"survives noise, σ = {settings.sigma:g}"
        yield of_all(name, lambda x: x.robustness.probability)
    if first.margins is not None:
        name, eps = f"margin above {words.eps_in_words(settings.eps)}", settings.eps
        yield of_all(name, lambda x: x.margins.margins.cpu() > eps, rate=True)


def _contributions(shifts: tuple[str, ...], lenses: ThreeLenses) -> Tensor:
    """Return the contribution of each image to agreement, averaged over shifts."""
    return torch.stack([lenses.agreements[s].per_sample for s in shifts]).mean(dim=0)
