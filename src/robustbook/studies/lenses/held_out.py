"""Networks on test images and on training images that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.attacks import fab, square
from robustbook.average_case import mmse, monte_carlo, taylor
from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import logit_margin
from robustbook.models import logits_of
from robustbook.studies._networks import BLOCKS, PENALTIES, trainings
from robustbook.studies._shifted_logits import attack_in_turn
from robustbook.studies._statistics import mean_row
from robustbook.studies.margins.columns import detection_row, exact_share, tau_row
from robustbook.studies.margins.search import Recipe, measure_bounds
from robustbook.studies.run import Row, Run, Setting, decimals, with_keys


@dataclass(frozen=True, kw_only=True)
class HeldOutSetting(Setting):
    """Networks, the larger sample beside the usual one, and attacks."""

    #: The split of other images.
    other: str
    #: Networks that are attacked, each on this number of the usual images; and those
    #: that the four attacks of AutoAttack meet.
    attacked: dict[str, int] = field(default_factory=dict)
    ensemble: dict[str, int] = field(default_factory=dict)
    eps: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class MeasuresSetting(Setting):
    """Networks and the first `samples` images; sizes in [0, 1] pixel units."""

    sigmas: tuple[float, ...]
    draws: int
    #: Images, and networks, whose input margins are looked for; the bound.
    searched: int
    margins: tuple[str, ...]
    recipe: Recipe
    eps: float


_ADVANCED: Final = (
    "cifar10-strided-adv-s0",
    "cifar10-blocks-s0",
    "cifar10-blocks-adv-s0",
)
_NETWORKS: Final = (*trainings("cifar10-strided", 2, PENALTIES[:4]), *_ADVANCED)
#: Images in a file of the cache.
_BLOCK: Final = 50
_MIRRORED: Final = "cifar10-blocks-adv-s0+mirrored"
SETTINGS: Final[dict[str, tuple[Setting, ...]]] = {
    "quick": (
        HeldOutSetting(
            dataset="digits", other="train", models=("digits-cnn-adv-s0",),
            attacked={"digits-cnn-adv-s0": 60}, ensemble={"digits-cnn-adv-s0": 60},
            eps=0.1, steps=8,
        ),
    ),
    "full": (
        HeldOutSetting(
            dataset="cifar10", split="test1000", other="held_out",
            models=(*_NETWORKS, *BLOCKS[1:], _MIRRORED),
            attacked=dict.fromkeys((*_ADVANCED[::2], _MIRRORED), 1000),
            ensemble={_MIRRORED: 100}, eps=8 / 255, steps=100,
        ),
    ),
    "quick measures": (
        MeasuresSetting(
            dataset="digits", models=("digits-cnn-s0", "digits-cnn-grad1e-1-s0"),
            samples=40, sigmas=(0.2,), draws=500, searched=40,
            margins=("digits-cnn-s0",), recipe=Recipe(rounds=0, steps=10), eps=0.1,
        ),
    ),
    "full measures": (
        MeasuresSetting(
            dataset="cifar10", split="held_out", models=(*_NETWORKS, _MIRRORED),
            samples=100, sigmas=(0.05, 0.1), draws=1000, searched=300,
            margins=(*_ADVANCED, _MIRRORED),
            recipe=Recipe(targets=3, steps=10, refine_steps=50, rounds=1), eps=8 / 255,
        ),
    ),
}  # fmt: skip


def measure(run: Run[Any], model: str) -> Iterator[Row]:
    """Measure a network on both samples, or on the one that it has not seen.

    ``what="accuracy"``: the ``accuracy`` on the ``images`` of a ``split``, with its
    exact 95 % interval. ``what="difference"``: the usual sample minus the other one, in
    ``difference``. ``what="attack"``: the share of the first ``images`` of the usual
    sample that stays right under two attacks, one after the other, APGD on the
    cross-entropy and targeted APGD, with ``steps`` steps and with half of them.
    ``what="ensemble"``: the share of the first ``images`` that all four attacks of
    AutoAttack leave (``accuracy``), these two, targeted FAB of as many steps and Square
    of fifty times as many, each on what the ones before it left; and the share that
    the first two leave (``in_turn``).

    The study ``held_out_measures`` has average case and margins on unseen images.
    ``what="average case"``: at each ``sigma``, the mean probability that an answer
    survives noise (``counted``), and by how much estimates of it are off on average, in
    absolute value: ``mmse`` and ``taylor`` (linearizations) and ``softmax`` (the
    largest probability), each with its standard error over images. ``what="margins"``:
    ``tau``, how well the logit margin orders the input margins of the ``images``, and
    the share of images that are right and keep their answer within ``eps``,
    ``robust_accuracy``, both with 95 % intervals; the share ``brittle`` that changes
    within ``eps``, and ``auroc``, ``aupr`` and ``fpr95`` of the margin as its detector.
    Average-case paper, Figures 3 and 9; margin paper, Table 1.
    """
    look = _measures if isinstance(run.setting, MeasuresSetting) else _samples
    keys = {"dataset": run.setting.dataset, "model": model}
    return with_keys(keys, look(run, run.model(model), model))


def _samples(run: Run[HeldOutSetting], network: nn.Module, model: str) -> Iterator[Row]:
    setting = run.setting
    samples = {
        setting.split: run.data,
        setting.other: load_dataset(setting.dataset, setting.other),
    }
    right = {name: _right(network, data) for name, data in samples.items()}
    for split, mask in right.items():
        share = exact_share("accuracy", mask)
        yield {"what": "accuracy", "split": split, "images": len(mask), **share}
    usual, other = ((float(m.double().mean()), len(m)) for m in right.values())
    gap = usual[0] - other[0]
    error = math.sqrt(sum(p * (1 - p) / n for p, n in (usual, other)))
    yield {
        "what": "difference",
        "difference": decimals(gap),
        "difference_low": decimals(gap - 1.96 * error),
        "difference_high": decimals(gap + 1.96 * error),
    }
    if model in setting.attacked:
        data = run.data.subset(range(setting.attacked[model]))
        for steps in (setting.steps // 2, setting.steps):
            attacked = attack_in_turn(
                network,
                data.images,
                data.labels,
                eps=setting.eps,
                steps=steps,
                seed=run.seed,
            )
            mask = _right(network, replace(data, images=attacked))
            yield {
                "what": "attack",
                "images": len(data),
                "eps": setting.eps,
                "steps": steps,
                **exact_share("accuracy", mask),
            }

    if model in setting.ensemble:
        data = run.data.subset(range(setting.ensemble[model]))
        how = ensemble_arrays, data, setting.eps, setting.steps, run.seed
        kept = run.arrays_by_block("four attacks", *how, network=model, size=_BLOCK)
        yield {
            "what": "ensemble",
            "images": len(data),
            "eps": setting.eps,
            "steps": setting.steps,
            **exact_share("accuracy", torch.from_numpy(kept["accuracy"])),
            **exact_share("in_turn", torch.from_numpy(kept["in_turn"])),
        }


def ensemble_arrays(
    network: nn.Module, data: Dataset, eps: float, steps: int, seed: int
) -> Arrays:
    """Whether an image stays right after two attacks, and after four, (N,) each."""
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images, labels = data.images, data.labels
    attacked = attack_in_turn(network, images, labels, eps=eps, steps=steps, seed=seed)
    kept = _right(network, replace(data, images=attacked))
    in_turn = kept.clone()
    for attack in (
        partial(fab, steps=steps, targets=9),
        partial(square, eps=eps, steps=50 * steps),
    ):
        (left,) = torch.nonzero(kept, as_tuple=True)
        if len(left):
            found = attack(
                network, images[left], labels[left], seed=seed, progress=False
            )
            # The bound is met up to rounding.
            kept[left] = found.norms.cpu() > eps * (1 + 1e-5)
    return {"in_turn": in_turn.numpy(), "accuracy": kept.numpy()}


def _right(network: nn.Module, data: Dataset) -> Tensor:
    answers = logits_of(network, data.images).argmax(1)
    return answers.cpu() == data.labels


def _measures(
    run: Run[MeasuresSetting], network: nn.Module, model: str
) -> Iterator[Row]:
    setting, images = run.setting, run.data.images
    how: dict[str, Any] = {"seed": run.seed}
    counted = monte_carlo(network, images, setting.sigmas, samples=setting.draws, **how)
    largest = logits_of(network, images).double().softmax(1).amax(1)
    for place, sigma in enumerate(setting.sigmas):
        kept = counted.probability[place].cpu().double()
        estimates: dict[str, Tensor] = {
            "mmse": mmse(network, images, sigma, **how).probability,
            "taylor": taylor(network, images, sigma, **how).probability,
            "softmax": largest,
        }
        row = mean_row("counted", kept.numpy())
        for name, values in estimates.items():
            off = (values.cpu().double().flatten() - kept).abs()
            row |= mean_row(name, off.numpy())
        yield {"what": "average case", "sigma": sigma, **row}
    if model in setting.margins:
        data = replace(setting, samples=setting.searched).data()
        bounds, _ = measure_bounds(network, data.images, setting.recipe, **how)
        logits = logits_of(network, data.images)
        robust = (logits.argmax(1) == data.labels) & (bounds > setting.eps)
        scores = logit_margin(logits)
        yield {
            "what": "margins",
            "images": len(data),
            "eps": setting.eps,
            **tau_row("tau", scores, bounds),
            **exact_share("robust_accuracy", robust),
            "brittle": decimals((bounds <= setting.eps).double().mean(), 4),
            **detection_row(scores, bounds, setting.eps),
        }
