"""Growing shares of shifted images: where Adam ends, and confidence under FMN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import nn

from robustbook.agreement import (
    adam_agreement,
    gibbs_posterior,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.models import logits_of
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial.attacked import (
    Attack,
    AttackedLogits,
    attack_model,
    list_attacks,
)
from robustbook.studies.adversarial.settings import RATIOS, AttackSetting
from robustbook.studies.run import Row, Run, with_keys
from robustbook.training import add_gaussian_noise

#: Three times 32 gray levels, as the thesis prints it.
SIGMA: Final = 3 * 32 / 255
EPOCHS: Final = {"quick": (1, 10, 50), "full": (1, 10, 100, 500)}
ATTACKED: Final = (0.5, 1.0)


def parts(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack | None, float]]:
    """Noise on the first network, and FMN on each, for growing shares."""
    for ratio in RATIOS:
        yield next(iter(run.setting.models)), None, ratio
    for model, attack in list_attacks(run, ("fmn",)):
        yield from ((model, attack, ratio) for ratio in ATTACKED)


def measure(
    run: Run[AttackSetting], model: str, attack: Attack | None, ratio: float
) -> Iterator[Row]:
    """Shift a growing share of the images, and measure β and confidence.

    Rows with ``what`` =
    "adam": white noise on a ``ratio`` of the images of the first model, at random;
    where the papers' optimization stands after an ``epoch``, ``beta`` and ``pa``, what
    it reports, at its best epoch (``reported_pa``), and the certified ``best_beta``
    and ``best_pa``;
    "confidence": FMN on the ``ratio`` of the images that need the smallest
    perturbations, for each model: ``beta``, and if at least two are ``misled``, right
    before and wrong after, their mean confidence in the prediction, at inverse
    temperature 1, ``before_1``, ``after_1`` and by how much it falls (``fall_1``), with
    standard errors.

    PA thesis, Figure 4.4; PA paper, Figure 6. Chapter 32.
    """
    if attack is None:
        keys = {"what": "adam", "model": model, "ratio": ratio}
        yield from with_keys(keys, _path(run, run.model(model), ratio))
    else:
        keys = {"what": "confidence", "model": model, "ratio": ratio}
        row = _confidence(attack_model(run, model, attack), ratio, run.seed)
        yield {**keys, "steps": attack.steps, **row}


def _path(run: Run[AttackSetting], model: nn.Module, ratio: float) -> Iterator[Row]:
    images, epochs = run.data.images, EPOCHS[run.profile]
    generator = torch.Generator().manual_seed(run.seed)
    noisy = add_gaussian_noise(images, SIGMA, generator=generator)
    clean, shifted = logits_of(model, images), logits_of(model, noisy)
    mixed = shift_by_ratio(clean, shifted, ratio, seed=run.seed)
    best = posterior_agreement(clean, mixed)
    path = adam_agreement(clean, mixed, epochs=max(epochs), batch_size=16)
    for epoch in epochs:
        yield {
            "samples": len(images),
            "epoch": epoch,
            "beta": float(path.beta[epoch]),
            "pa": float(path.pa[epoch]),
            "reported_pa": path.best_pa,
            "best_beta": best.beta,
            "best_pa": best.pa,
        }


def _confidence(pair: AttackedLogits, ratio: float, seed: int) -> Row:
    clean, every = pair.logits, pair.shifted_logits
    mixed = shift_by_ratio(clean, every, ratio, norms=pair.norms, seed=seed)
    result = posterior_agreement(clean, mixed)
    right = clean.argmax(1) == pair.labels
    misled = right & (mixed.argmax(1) != pair.labels)
    row: Row = {
        "samples": len(clean),
        "misled": int(misled.sum()),
        "pa": result.pa,
        "pa_se": result.standard_error,
        "beta": result.beta,
    }
    if row["misled"] > 1:
        before, after = (
            gibbs_posterior(logits[misled], 1.0).amax(1) for logits in (clean, mixed)
        )
        row |= mean_row("before_1", before) | mean_row("after_1", after)
        row |= mean_row("fall_1", before - after)
    return row
