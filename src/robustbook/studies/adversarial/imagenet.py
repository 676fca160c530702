"""A thousand classes under attack and in noise: four networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.agreement import (
    compare_agreement,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial._thousand import Shift, folded, shifted_logits
from robustbook.studies.run import Row, Run, Setting

#: Pictures per cache file.
_PART = 20
_SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
NONE: Final[Shift] = ("none", 0.0, 0)


@dataclass(frozen=True, kw_only=True)
class LargeSetting(Setting):
    """Shifts: "apgd-ce", "apgd-targeted" by eps, "noise" by σ."""

    shifts: tuple[Shift, ...]


def _apgd(loss: str, *levels: int, steps: int = 10) -> tuple[Shift, ...]:
    return tuple((f"apgd-{loss}", level / 255, steps) for level in levels)


_LITE: Final = tuple(f"imagenet:efficientnet-lite{number}" for number in range(3))
_TWO: Final = (_LITE[0], f"{_LITE[0]}+jpeg-rs")
_NOISE: Final = ("noise", 8 / 255, 0), ("noise", 32 / 255, 0)
_nips = partial(LargeSetting, dataset="imagenet-nips2017")
#: The last one shows the effect of more steps.
_ATTACKS: Final = (
    _apgd("ce", 2, 4, 8) + _apgd("targeted", 2, 4, 8) + _apgd("ce", 4, steps=100)
)
SETTINGS: Final[dict[str, tuple[LargeSetting, ...]]] = {
    "full": (
        _nips(split="test200", models=(*_TWO, *_LITE[1:]), shifts=_ATTACKS),
        _nips(models=(*_TWO, *_LITE[1:]), shifts=_NOISE),
    ),
    "quick": (
        LargeSetting(
            dataset="digits",
            samples=40,
            models=("digits-cnn-s0", "digits-cnn-s0+jpeg-rs"),
            shifts=_NOISE
            + _apgd("ce", 12, 24)
            + _apgd("targeted", 12)
            + _apgd("ce", 12, steps=40),
        ),
    ),
}


def parts(run: Run[LargeSetting]) -> Iterator[tuple[str, Shift]]:
    """Each network under each shift, none first."""
    return product(run.setting.models, (NONE, *run.setting.shifts))


def measure(run: Run[LargeSetting], model: str, shift: Shift) -> Iterator[Row]:
    """Put pictures through shifts; attack a defended network by its surrogate.

    Rows with ``what`` = "shift", for each ``model``, ``kind`` of shift and
    ``size``, "none" first: ``accuracy``, ``same``, the share of pictures with the
    answer of the clean one, ``confidence`` and ``pa`` with their standard errors over
    ``samples`` pictures, and ``beta``; "ratio", ``pa`` where only this share of them is
    attacked; "longer", by how much ``pa`` falls from ``steps`` to ``more`` of them,
    ``pa_fall``, with the standard error of the paired difference; "lead", after these,
    by how much the ``pa`` of a network is above that of an ``other`` one, ``pa_lead``,
    with that error.

    PA paper, Figures 17 and 18, with 10 000 pictures.
    """
    clean, shifted = _logits(run, model, NONE), _logits(run, model, shift)
    kind, size, steps = shift
    keys: Row = {"model": model, "kind": kind, "size": size, "steps": steps}
    yield {"what": "shift", **keys, **_scores(clean, shifted, run.data.labels)}
    for share in _SHARES if kind.startswith("apgd") else ():
        mixed = shift_by_ratio(clean, shifted, share, seed=run.seed)
        yield {"what": "ratio", **keys, "ratio": share, **_pa(clean, mixed)}


def summary(run: Run[LargeSetting]) -> Iterator[Row]:
    """The effect of more steps, and how far networks are apart after these."""
    for model, few, many in _longer(run.setting):
        clean = _logits(run, model, NONE)
        fewer, more = (_logits(run, model, shift) for shift in (few, many))
        fall = compare_agreement(clean, fewer, clean, more)
        yield {
            "what": "longer",
            "model": model,
            "kind": few[0],
            "size": few[1],
            "steps": few[2],
            "more": many[2],
            "samples": len(clean),
            "pa_fall": fall.value,
            "pa_fall_se": fall.standard_error,
        }
    most = [many for _, _, many in _longer(run.setting)][:1]
    for shift, (one, other) in product(most, combinations(run.setting.models, 2)):
        pairs = [
            _logits(run, model, at) for model in (one, other) for at in (NONE, shift)
        ]
        lead = compare_agreement(*pairs)
        yield {
            "what": "lead",
            "model": one,
            "other": other,
            "kind": shift[0],
            "size": shift[1],
            "steps": shift[2],
            "samples": len(pairs[0]),
            "pa_lead": lead.value,
            "pa_lead_se": lead.standard_error,
        }


def _logits(run: Run[LargeSetting], model: str, shift: Shift) -> Tensor:
    """Logits of shifted pictures, from the cache if possible, a few at a time."""
    network = cache(lambda: folded(run.model(model)))
    logits = []
    for start in range(0, len(run.data), _PART):
        block = run.data.subset(slice(start, start + _PART))
        arrays = run.arrays(
            "logits of shifted pictures",
            partial(_shifted, network),
            shift,
            block,
            run.seed + start,
            networks=model,
            code=shifted_logits.__module__,
        )
        logits.append(torch.from_numpy(arrays["logits"]))
    return torch.cat(logits)


def _shifted(network: Callable[[], nn.Module], *arguments: Any) -> Arrays:
    return {"logits": shifted_logits(network(), *arguments)}


def _longer(setting: LargeSetting) -> Iterator[tuple[str, Shift, Shift]]:
    """Pairs of attacks on a model that differ in the number of steps."""
    for model, few, many in product(setting.models, setting.shifts, setting.shifts):
        if few[:2] == many[:2] and few[2] < many[2]:
            yield model, few, many


def _scores(clean: Tensor, shifted: Tensor, labels: Tensor) -> Row:
    answers = shifted.argmax(1)
    return {
        **mean_row("accuracy", (answers == labels).double()),
        **mean_row("same", (answers == clean.argmax(1)).double()),
        **mean_row("confidence", shifted.double().softmax(1).amax(1)),
        **_pa(clean, shifted),
    }


def _pa(clean: Tensor, shifted: Tensor) -> Row:
    pa = posterior_agreement(clean, shifted)
    agreed = {"pa": pa.pa, "pa_se": pa.standard_error, "beta": pa.beta}
    return {**agreed, "samples": len(clean)}
