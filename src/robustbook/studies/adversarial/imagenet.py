"""A thousand classes under attack, in noise and corrupted: four networks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.agreement import (
    adam_agreement,
    compare_agreement,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.datasets import Dataset
from robustbook.models import load_model
from robustbook.studies._run import Row, Run, Setting, one_thread
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial._thousand import (
    BATCH,
    Shift,
    folded,
    shifted_logits,
)

#: Pictures per cache file.
_PART = 20
_SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
NONE: Final[Shift] = ("none", 0.0, 0)


@dataclass(frozen=True, kw_only=True)
class LargeSetting(Setting):
    """Shifts: "apgd-ce", "apgd-targeted" by eps, "noise" by σ, corruptions."""

    shifts: tuple[Shift, ...]

    def checkpoints(self) -> list[str]:
        """Those that this project or others publish; packages have their own sums."""
        return [name for name in self.models if not name.startswith("imagenet:")]


def _apgd(loss: str, *levels: int, steps: int = 10) -> tuple[Shift, ...]:
    return tuple((f"apgd-{loss}", level / 255, steps) for level in levels)


_LITE: Final = tuple(f"imagenet:efficientnet-lite{number}" for number in range(3))
_TWO: Final = (_LITE[0], f"{_LITE[0]}+jpeg-rs")
_NOISE: Final = ("noise", 8 / 255, 0), ("noise", 32 / 255, 0)
_NATURAL: Final = (*_NOISE, ("contrast", 5.0, 0), ("rotation", 5.0, 0))
_nips = partial(LargeSetting, dataset="imagenet-nips2017")
SETTINGS: Final[dict[str, tuple[LargeSetting, ...]]] = {
    "full": (
        _nips(
            split="test200", models=_TWO,
            shifts=_apgd("ce", 2, 4, 8) + _apgd("targeted", 2, 4, 8),
        ),
        _nips(
            split="test200", models=_LITE[1:],
            shifts=_apgd("ce", 2, 4, 8) + _apgd("targeted", 2, 4, 8),
        ),
        _nips(models=(*_TWO, *_LITE[1:]), shifts=_NATURAL),
        _nips(  # What more steps would do.
            split="test200", samples=100, models=_TWO,
            shifts=_apgd("ce", 4, steps=100) + _apgd("ce", 4),
        ),
    ),
    "quick": (
        LargeSetting(
            dataset="digits", samples=40,
            models=("digits-cnn-s0", "digits-cnn-s0+jpeg-rs"),
            shifts=_NATURAL + _apgd("ce", 12, 24) + _apgd("targeted", 12),
        ),
        LargeSetting(
            dataset="digits", samples=20,
            models=("digits-cnn-s0", "digits-cnn-s0+jpeg-rs"),
            shifts=_apgd("ce", 12, steps=40) + _apgd("ce", 12),
        ),
    ),
}  # fmt: skip


def rows(run: Run[LargeSetting]) -> Iterator[Row]:
    """Put pictures through shifts; attack a defended network by its surrogate.

    Rows told apart by ``what``: "shift", for each ``model``, ``kind`` of shift and
    ``size``, "none" first: ``accuracy``, ``same``, the share of pictures with the
    answer of the clean one, ``confidence`` and ``pa`` with their standard errors over
    ``samples`` pictures, and ``beta``; "ratio", ``pa`` where only so many pictures are
    attacked; "longer", by how much ``pa`` falls from ``steps`` to ``more`` of them,
    ``pa_fall``, with the standard error of the paired difference; "cost", seconds of
    one CPU thread of the exact solver and of 500 steps of Adam under a targeted attack,
    and of a picture's gradient.

    PA paper, Figures 17 and 18, with 10 000 pictures.
    """
    network = cache(lambda name: folded(run.model(name)))
    for setting in run.settings:
        data, by_shift = setting.data(), defaultdict(list)
        # Part after part, so that a stopped run has all shifts of its first pictures.
        starts = range(0, len(data), _PART)
        every = product(starts, setting.models, (NONE, *setting.shifts))
        for start, model, shift in run.progress(every):
            part = data.subset(slice(start, min(start + _PART, len(data))))
            shown = _logits(run, network, model, shift, part, start)
            by_shift[model, shift].append(shown)
        logits = {key: torch.cat(parts) for key, parts in by_shift.items()}
        for (model, shift), shifted in logits.items():
            clean, (kind, size, steps) = logits[model, NONE], shift
            keys = {"model": model, "kind": kind, "size": size, "steps": steps}
            yield {"what": "shift", **keys, **_scores(clean, shifted, data.labels)}
            for share in _SHARES if kind.startswith("apgd") else ():
                mixed = shift_by_ratio(clean, shifted, share, seed=run.seed)
                yield {"what": "ratio", **keys, "ratio": share, **_pa(clean, mixed)}
        for model, few, many in _longer(setting):
            clean = logits[model, NONE]
            fall = compare_agreement(
                clean, logits[model, few], clean, logits[model, many]
            )
            yield {
                "what": "longer", "model": model, "kind": few[0], "size": few[1],
                "steps": few[2], "more": many[2], "samples": len(clean),
                "pa_fall": fall.difference, "pa_fall_se": fall.standard_error,
            }  # fmt: skip
        last = setting.shifts[-1]
        for model in setting.models if last[0] == "apgd-targeted" else ():
            pair = logits[model, NONE], logits[model, last]
            with one_thread():
                cost = _cost(folded(load_model(model)), data.images[:BATCH], *pair)
            yield {"what": "cost", "model": model, **cost}


def _logits(
    run: Run[LargeSetting], network: Callable[[str], nn.Module], model: str,
    shift: Shift, part: Dataset, start: int,
) -> Tensor:  # fmt: skip
    """Logits of shifted pictures, from the cache if possible."""
    seed = run.seed + start
    arrays = run.arrays(
        "logits of shifted pictures",
        lambda: {"logits": shifted_logits(network(model), shift, part, seed)},
        networks=model, data=part, shift=shift, start=start,
        code=shifted_logits.__module__,
    )  # fmt: skip
    return torch.from_numpy(arrays["logits"])


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


def _cost(network: nn.Module, images: Tensor, *pair: Tensor) -> Row:
    inputs = images.clone().requires_grad_()
    exact, seconds = _timed(lambda: posterior_agreement(*pair))
    path, adam = _timed(lambda: adam_agreement(*pair, epochs=500))
    _, gradient = _timed(lambda: torch.autograd.grad(network(inputs).sum(), inputs))
    return {
        "samples": len(pair[0]), "classes": pair[0].shape[1], "seconds": seconds,
        "adam_seconds": adam, "gradient_seconds": gradient / len(images),
        "beta": exact.beta, "adam_beta": path.final_beta,
    }  # fmt: skip


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """Result and CPU seconds of the second call; the first loads libraries."""
    action()
    start = time.process_time()
    return action(), time.process_time() - start
