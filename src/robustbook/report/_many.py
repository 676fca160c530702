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

import numpy as np
import torch

from robustbook._comparison import paired_means, paired_rates
from robustbook._engine import Engine
from robustbook._intervals import Estimate
from robustbook._json import strict
from robustbook._store.cache import cached_arrays
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.agreement import symmetric_channel_capacity
from robustbook.lenses import ThreeLenses
from robustbook.report import _words as words
from robustbook.report._data import read_images
from robustbook.report._measure import blame, compute_logits, load_fitting, measure
from robustbook.report._page import template, with_versions, write_files
from robustbook.report._request import Request

#: Name of the format of the numbers.
FORMAT: Final = "robustbook many 1"

_CLASSES: Final = "classes"
_TEXTS: Final = "warnings"

#: The values of each measure for the images.
Values = dict[str, torch.Tensor]

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
        values: dict[str, Values] = {}
        failures: dict[str, str] = {}
        remarks = []
        for model, (measures, texts) in zip(models, measured, strict=True):
            if measures is None:
                (failures[model],) = texts
                continue
            values[model] = measures
            remarks += [f"{model}: {text}" for text in texts]
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        if not values:
            reasons = "; ".join(f"{model}: {why}" for model, why in failures.items())
            raise RuntimeError(f"no model could be measured: {reasons}")
        settings = request.settings(use_training=False)
        header = {
            "data": f"{images.name}: {len(images)} images",
            "settings": f"ε = {words.eps_in_words(settings.eps)}, PGD with "
            f"{settings.attack_steps} steps; corruptions at severity "
            f"{settings.severity}; σ = {settings.sigma:g}; seed {settings.seed}",
            "with": with_versions(),
        }
        if remarks:
            header["remarks"] = "; ".join(remarks)
        first = next(iter(values.values()))
        results = {
            model: _results(measures, None if measures is first else first)
            for model, measures in values.items()
        }
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
        cells = {model: self.cells(model) or {} for model in self.results}
        for name in cells[self.reference]:
            lines += ["", name]
            for model in cells:
                value, difference, interval = cells[model][name]
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
            panels={},
            words=words,
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


def _measured(request: Request) -> tuple[Values | None, list[str]]:
    """Return the values of a model and its warnings, or None and why it failed.

    Values are kept in the cache, so that a list that grows or was interrupted measures
    only other models. The settings are the same for all models, whatever they were
    trained with.
    """
    images = request.draw(read_images(request.data))
    settings = request.settings(use_training=False)

    def compute() -> dict[str, Any]:
        with warnings.catch_warnings(record=True) as remarks:
            warnings.simplefilter("default")
            lenses = measure(model, images, request, settings, request.margin_images)
        texts = [_reason("model", remark.message) for remark in remarks]
        values = {name: each.numpy() for name, each in _values(lenses)}
        return values | {_TEXTS: np.array(texts, str)}

    try:
        model = load_fitting(request, images)
        with blame(request.model):
            # The sum of a function is that of its source, so its logits are looked at.
            labels = torch.empty(0) if images.labels is None else images.labels
            tensors = compute_logits(model, images, 16), images.images, labels
            options = vars(settings), request.skip, request.margin_images
            key = {
                "model": model_sum(model),
                "tensors": " ".join(map(tensor_sum, tensors)),
                "options": json.dumps([*options, request.torch_device]),
            }
            arrays = cached_arrays(key, compute, code=__name__)
    except (Exception, SystemExit) as error:
        return None, [_reason(request.model, error)]
    texts = arrays.pop(_TEXTS).tolist()
    return {name: torch.from_numpy(each) for name, each in arrays.items()}, texts


def _reason(model: str, error: Any) -> str:
    text = " ".join(str(error).split()).removeprefix(f"{model}: ")
    return text or type(error).__name__


def _results(values: Values, reference: Values | None) -> Results:
    """Return each mean over the images, and its difference to that of a reference."""
    results: Results = {}
    for name, each in values.items():
        if name == _CLASSES:
            continue
        difference = None
        if reference is not None and each.dtype == torch.bool:
            difference = paired_rates(each, reference[name])
        elif reference is not None:
            # Where an event was not seen on N images, up to three in N are possible. If
            # those images had contradicting predictions, they would cost this much
            # agreement.
            unseen = min(1.0, 3 / len(each))
            if name.startswith("PA"):
                classes = int(reference[_CLASSES])
                capacity = symmetric_channel_capacity(unseen, classes)
                unseen = math.log(classes) - capacity
            difference = paired_means(each, reference[name], unseen)
        results[name] = float(each.double().mean()), difference
    return results


def _values(lenses: ThreeLenses) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name of each measure, and its values for the images."""
    settings, agreements = lenses.settings, lenses.agreements
    yield _CLASSES, torch.tensor(lenses.num_classes)
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
