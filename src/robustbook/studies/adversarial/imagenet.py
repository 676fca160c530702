"""A thousand classes under attack: a network, and the same behind a weak defense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import cached_arrays
from robustbook.agreement import posterior_agreement
from robustbook.agreement.parts import adam_steps
from robustbook.attacks import apgd
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.studies._run import Row, Run, Setting, data_sum, one_thread
from robustbook.studies._statistics import mean_row
from robustbook.studies.agreement_speed import shortest

#: Pictures that are attacked at once, and kept at once.
_PART: Final = 10


@dataclass(frozen=True, kw_only=True)
class LargeSetting(Setting):
    """How hard is attacked."""

    eps: tuple[float, ...]
    steps: int

    def checkpoints(self) -> list[str]:
        """Those that this project or others publish; packages have their own sums."""
        return [name for name in self.models if not name.startswith("imagenet:")]


_LITE0: Final = "imagenet:efficientnet-lite0"
SETTINGS: Final[dict[str, tuple[LargeSetting, ...]]] = {
    "full": (
        LargeSetting(
            dataset="imagenet-nips2017", split="test200", samples=100,
            models=(_LITE0, f"{_LITE0}+jpeg-rs"),
            eps=(2 / 255, 4 / 255, 8 / 255), steps=5,
        ),
    ),
    "quick": (
        LargeSetting(
            dataset="digits", samples=40,
            models=("digits-cnn-s0", "digits-cnn-s0+jpeg-rs"),
            eps=(0.05, 0.1), steps=3,
        ),
    ),
}  # fmt: skip


def rows(run: Run[LargeSetting]) -> Iterator[Row]:
    """Attack by APGD with cross-entropy, a defended network by its surrogate.

    Rows told apart by ``what``: "attack", for each ``model`` and ``eps``, 0 without an
    attack: ``accuracy``, ``same``, the share of pictures with the answer of the clean
    one, ``confidence`` and ``pa`` with their standard errors over pictures, and
    ``beta``; "speed", on the logits of each model at the largest ``eps``: ``seconds``
    of the certified solver and ``adam_seconds`` of 500 steps of Adam on one thread,
    with the inverse temperatures that they find.

    PA paper, Figures 17 and 18, with 10 000 pictures and 1000 steps.
    """
    setting, size = run.setting, len(run.data)
    # Part after part, so that fewer pictures of all can be had from what is done.
    found: dict[tuple[str, float], list[Tensor]] = {}
    radii = (0.0, *setting.eps)
    for start, model, eps in run.each(
        product(range(0, size, _PART), setting.models, radii)
    ):
        part = run.data.subset(slice(start, min(start + _PART, size)))
        found.setdefault((model, eps), []).append(_logits(run, model, eps, part))
    logits = {key: torch.cat(parts) for key, parts in found.items()}
    for (model, eps), shifted in logits.items():
        keys = {"what": "attack", "model": model, "eps": eps}
        yield {**keys, **_scores(logits[model, 0.0], shifted, run.data.labels)}
    for model in setting.models:
        with one_thread():
            speed = _speed(logits[model, 0.0], logits[model, radii[-1]])
        yield {"what": "speed", "model": model, **speed}


def _logits(run: Run[LargeSetting], model: str, eps: float, part: Dataset) -> Tensor:
    """Logits of attacked pictures, from the cache if there."""
    arrays = cached_arrays(
        {
            "data": data_sum(part), "model": model, "eps": eps,
            "steps": run.setting.steps, "seed": run.seed, "device": run.device,
        },
        partial(_attacked, run, model, eps, part),
        code=("robustbook.attacks", "robustbook.models"),
    )  # fmt: skip
    return torch.from_numpy(arrays["logits"])


def _attacked(
    run: Run[LargeSetting], name: str, eps: float, part: Dataset
) -> dict[str, Any]:
    network: Any = run.model(name)
    images = part.images
    if eps:
        aim: nn.Module = network.surrogate if "+" in name else network
        images = apgd(
            aim, images, part.labels, eps=eps, steps=run.setting.steps, seed=run.seed,
            batch_size=_PART, progress=False, device=run.device,
        ).adversarial  # fmt: skip
    return {"logits": logits_of(network, images, batch_size=_PART).numpy()}


def _scores(clean: Tensor, shifted: Tensor, labels: Tensor) -> Row:
    answers = shifted.argmax(1)
    result = posterior_agreement(clean, shifted)
    return {
        **mean_row("accuracy", (answers == labels).double().numpy()),
        **mean_row("same", (answers == clean.argmax(1)).double().numpy()),
        **mean_row("confidence", shifted.double().softmax(1).amax(1).numpy()),
        "pa": result.pa, "pa_se": result.standard_error, "beta": result.beta,
        "samples": len(labels),
    }  # fmt: skip


def _speed(clean: Tensor, shifted: Tensor) -> Row:
    exact = posterior_agreement(clean, shifted)
    betas: list[float] = []
    adam = shortest(lambda: betas.extend(adam_steps(clean, shifted, epochs=500)[0]))
    return {
        "samples": len(clean), "classes": clean.shape[1], "beta": exact.beta,
        "seconds": shortest(lambda: posterior_agreement(clean, shifted), 3),
        "adam_beta": betas[-1], "adam_seconds": adam,
    }  # fmt: skip
