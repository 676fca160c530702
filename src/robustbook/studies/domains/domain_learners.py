"""Which learner is the more robust to shifted factors? Experiments 5a and 5b."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.scores import accuracy
from robustbook.studies._scores import confidence, sample_terms
from robustbook.studies._statistics import clustered_error, mean_error
from robustbook.studies.domains._pictures import PRINTED_AND_CONFIGURED
from robustbook.studies.domains._recorded import DIGITS, TrainedPair
from robustbook.studies.domains._recorded import train_pair as measure
from robustbook.studies.domains._training import (
    COMPARED_LEARNERS,
    FULL,
    QUICK,
    TrainingSetting,
)
from robustbook.studies.run import Row, Run, with_keys

SETTINGS: Final = {
    "full": (FULL(count=5000, epochs=15, batch_size=64, lr=1e-3),),
    "quick": (QUICK(count=256, repeats_per_digit=2, epochs=6, lr=5e-3),),
    # With the weights of a network that has seen photographs.
    "full borrowed": (
        FULL(network="cifar10-resnet20", borrowed=True, scale="own", size=48, count=800,
             epochs=12, batch_size=32, lr=1e-3, validated=240, tested=300),
    ),
    "quick borrowed": (
        QUICK(network="cifar10-preact-adv-s0", borrowed=True, scale="own", count=60,
              epochs=1, lr=5e-3, validated=30, tested=30),
    ),
}  # fmt: skip
#: Shares of the second sample that are from the shifted environment.
RATIOS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)


def rows(
    run: Run[TrainingSetting], *, setups: Sequence[str] = PRINTED_AND_CONFIGURED
) -> Iterator[Row]:
    """Train three learners on two domains, and measure them where factors shift.

    Rows for each ``setup`` of `setups` ("printed" or "configured" environments),
    ``learner`` and ``training_seed`` (0, 1, ... after the seed of the validation and
    test images), with ``what`` =
    "epoch": loss and risk after each ``epoch``;
    "pair": scores, by the weights of the epoch with the best validation accuracy, of
    the first test sample and a second one that shows the ``digits`` "same" or "other",
    with so many ``factors`` shifted in a share ``ratio`` of it. Standard errors are
    clustered by the first sample's digit;
    "difference" (without a training seed): by how much ``learner`` is above ``other``
    in ``pa``, ``same_answer_rate`` and ``shifted_accuracy`` of pairs with all of the
    second sample shifted, on average over the seeds, with errors over the images
    (``_se_images``) and over the trainings (``_se_seeds``).

    PA thesis, section 4.3, Experiments 5a and 5b; PA paper, section 4.2. Chapter 15 of
    this book.
    """
    trained: dict[tuple[str, str], list[TrainedPair]] = {}
    for setup, learner, training_seed in run.progress(parts(run, setups=setups)):
        pair = measure(run, setup, learner, training_seed)
        trained.setdefault((setup, learner), []).append(pair)
        keys = {"setup": setup, "learner": learner, "training_seed": training_seed}
        scores = run.rows("scores of a trained pair", _of_training, pair, run.seed)
        yield from with_keys(keys, scores)
    for setup, (learner, other) in product(
        setups, combinations(COMPARED_LEARNERS[::-1], 2)
    ):
        keys = {"setup": setup, "learner": learner, "other": other}
        differences = _between(trained[setup, learner], trained[setup, other])
        yield from with_keys({"what": "difference", **keys}, differences)


def parts(
    run: Run[TrainingSetting], *, setups: Sequence[str] = PRINTED_AND_CONFIGURED
) -> Iterator[tuple[str, str, int]]:
    """The trainings that the rows are computed from."""
    seeds = run.seeds(run.setting.seeds)
    for setup, training_seed, learner in product(setups, seeds, COMPARED_LEARNERS):
        yield setup, learner, training_seed


def _of_training(trained: TrainedPair, seed: int) -> Iterator[Row]:
    for epoch in trained.epochs:
        yield {"what": "epoch", **{k: epoch[k] for k in ("epoch", "loss", "risk")}}
    for digits in DIGITS:
        first, labels, clusters = (
            part[digits] for part in (trained.first, trained.labels, trained.clusters)
        )
        second, cosine = trained.second[digits], trained.cosine[digits]
        for factors in range(len(second)):
            for ratio in RATIOS if factors else (1.0,):
                mixed, cosines = (
                    shift_by_ratio(values[0], values[factors], ratio, seed=seed)
                    for values in (second, cosine[..., None].expand(-1, -1, 2))
                )
                yield {
                    "what": "pair",
                    "digits": digits,
                    "factors": factors,
                    "ratio": ratio,
                    **_scores(first, mixed, labels, clusters),
                    "cosine": float(cosines[:, 0].double().mean()),
                }


def _between(learner: list[TrainedPair], other: list[TrainedPair]) -> Iterator[Row]:
    """Differences of two learners' means, over all trainings."""
    for digits in DIGITS:
        for factors in range(len(learner[0].second[digits])):
            row: Row = {"digits": digits, "factors": factors}
            left, right = (
                [_by_sample(trained, digits, factors) for trained in trainings]
                for trainings in (learner, other)
            )
            for name in ("pa", "same_answer_rate", "shifted_accuracy"):
                differences = torch.stack(
                    [a[name] - b[name] for a, b in zip(left, right, strict=True)]
                )
                of_seeds = differences.mean(1)
                row[name] = float(of_seeds.mean())
                row[f"{name}_se_images"] = clustered_error(
                    differences.mean(0), learner[0].clusters[digits]
                )
                row[f"{name}_se_seeds"] = mean_error(of_seeds)
            yield row


def _by_sample(trained: TrainedPair, digits: str, factors: int) -> dict[str, Tensor]:
    pair = trained.first[digits], trained.second[digits][factors]
    return sample_terms(posterior_agreement(*pair), *pair, trained.labels[digits])


def _scores(first: Tensor, second: Tensor, labels: Tensor, clusters: Tensor) -> Row:
    result = posterior_agreement(first, second)
    terms = sample_terms(result, first, second, labels)
    return {
        "samples": len(labels),
        "first_accuracy": accuracy(first, labels),
        **{name: float(values.mean()) for name, values in terms.items()},
        **{f"{name}_se": clustered_error(v, clusters) for name, v in terms.items()},
        "pa": result.pa,
        "beta": result.beta,
        "confidence": confidence(second),
    }
