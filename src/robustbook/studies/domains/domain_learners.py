"""Which learner is the more robust to shifted factors? Experiments 5a and 5b."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.learners import History
from robustbook.studies.domains._data import (
    DIGITS,
    LEARNERS,
    PLANS,
    SELECTED_BY,
    SETUPS,
    TrainedPair,
    domain_sums,
    train_learner,
)
from robustbook.studies._scores import confidence
from robustbook.studies._rows import Row
from robustbook.training import History

__all__ = ["clustered_error", "data_sums", "domain_learners"]

#: Shares of the second sample that are from the shifted environment.
RATIOS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)


def domain_learners(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Train three learners on two domains, and measure them where factors shift.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes the embedded digits, smaller images and two seeds.
    seed : int
        Of the validation and test images and of which of them are shifted. The
        trainings have the seeds 0, 1, ... after it.
    device : str
        Where the models are trained.

    Returns
    -------
    list of dict
        Rows for each ``setup`` ("printed" or "configured" environments),
        ``learner`` and ``training_seed``, with ``what`` =
        "epoch": loss, risk, and scores of the validation pairs of the same and of other
        digits, after each ``epoch``;
        "selected": the ``epoch`` whose weights are tested, the first of the ``tied``
        ones that are best by validation accuracy;
        "pair": scores of the first test sample and a second one that shows the
        ``digits`` "same" or "other", with so many ``factors`` shifted in a share
        ``ratio`` of it. Standard errors are clustered by the first sample's digit;
        "difference" (without a training seed): by how much ``learner`` is above
        ``other`` in ``pa``, ``afr_pred`` and ``afr_true`` of pairs with all of the
        second sample shifted, on average over the seeds, with errors over the images
        (``_se_images``) and over the trainings (``_se_seeds``).

    Notes
    -----
    PA thesis, section 4.3, Experiments 5a and 5b; PA paper, section 4.2. Training is
    stored in the cache after every epoch. Chapter 15 of this book.
    """
    plan = PLANS[profile]
    wanted = [
        (setup, learner, training_seed)
        for setup in SETUPS
        for training_seed in range(seed, seed + plan.seeds)
        for learner in LEARNERS
    ]
    rows: list[Row] = []
    by_sample: dict[tuple[str, str], list[TrainedPair]] = {}
    for setup, learner, training_seed in tqdm(
        wanted, desc="domain_learners", disable=None
    ):
        trained = train_learner(
            setup, learner, plan, training_seed=training_seed, seed=seed, device=device
        )
        by_sample.setdefault((setup, learner), []).append(trained)
        shared = {"setup": setup, "learner": learner, "training_seed": training_seed}
        rows += [
            {"what": row.pop("what"), **shared, **row}
            for row in _of_training(trained, seed)
        ]
    for setup in SETUPS:
        for learner, other in itertools.combinations(list(LEARNERS)[::-1], 2):
            pair = by_sample[setup, learner], by_sample[setup, other]
            shared = {"setup": setup, "learner": learner, "other": other}
            rows += [{"what": "difference", **shared, **row} for row in _between(*pair)]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the digits that the images are made of."""
    return domain_sums(PLANS[profile])


def _of_training(trained: TrainedPair, seed: int) -> Iterator[Row]:
    for epoch in trained.epochs:
        yield {"what": "epoch", **epoch}
    best = History(rows=trained.epochs).best(SELECTED_BY)
    tied = sum(row[SELECTED_BY] == best[SELECTED_BY] for row in trained.epochs)
    yield {"what": "selected", "epoch": best["epoch"], "tied": tied}
    for digits in DIGITS:
        unshifted = trained.second[digits][0]
        for factors, shifted in enumerate(trained.second[digits]):
            for ratio in RATIOS if factors else (1.0,):
                mixed = shift_by_ratio(unshifted, shifted, ratio, seed=seed)
                cosine = shift_by_ratio(
                    trained.cosine[digits][0][:, None].expand(-1, 2),
                    trained.cosine[digits][factors][:, None].expand(-1, 2),
                    ratio,
                    seed=seed,
                )[:, 0]
                yield {
                    "what": "pair",
                    "digits": digits,
                    "factors": factors,
                    "ratio": ratio,
                    **_scores(
                        trained.first[digits],
                        mixed,
                        trained.labels[digits],
                        trained.clusters[digits],
                    ),
                    "cosine": float(cosine.double().mean()),
                }


def _between(learner: list[TrainedPair], other: list[TrainedPair]) -> Iterator[Row]:
    """Differences of two learners' means, over all trainings."""
    for digits in DIGITS:
        for factors in range(len(learner[0].second[digits])):
            row: Row = {"digits": digits, "factors": factors}
            ours, theirs = (
                [_by_sample(trained, digits, factors) for trained in trainings]
                for trainings in (learner, other)
            )
            for name in ours[0]:
                differences = torch.stack(
                    [a[name] - b[name] for a, b in zip(ours, theirs, strict=True)]
                )
                of_seeds = differences.mean(1)
                row[name] = float(of_seeds.mean())
                row[f"{name}_se_images"] = clustered_error(
                    differences.mean(0), learner[0].clusters[digits]
                )
                row[f"{name}_se_seeds"] = float(of_seeds.std()) / math.sqrt(
                    len(of_seeds)
                )
            yield row


def _by_sample(trained: TrainedPair, digits: str, factors: int) -> dict[str, Tensor]:
    """What each pair adds to the means of a training, shape (N,) each."""
    first, second = trained.first[digits], trained.second[digits][factors]
    return {
        "pa": posterior_agreement(first, second).per_sample.double(),
        "afr_pred": (first.argmax(1) == second.argmax(1)).double(),
        "afr_true": (second.argmax(1) == trained.labels[digits]).double(),
    }


def _scores(first: Tensor, second: Tensor, labels: Tensor, clusters: Tensor) -> Row:
    result = posterior_agreement(first, second)
    kept = (first.argmax(1) == second.argmax(1)).double()
    right = (second.argmax(1) == labels).double()
    return {
        "samples": len(labels),
        "first_accuracy": float((first.argmax(1) == labels).double().mean()),
        "digits_seen": len(torch.unique(clusters)),
        "pa": result.pa,
        "pa_se": clustered_error(result.per_sample, clusters),
        "beta": result.beta,
        "afr_pred": float(kept.mean()),
        "afr_pred_se": clustered_error(kept, clusters),
        "afr_true": float(right.mean()),
        "afr_true_se": clustered_error(right, clusters),
        "confidence": confidence(second),
    }


def clustered_error(values: Tensor, clusters: Tensor) -> float:
    """Standard error of a mean where only samples of different clusters are unrelated.

    Parameters
    ----------
    values : Tensor, shape (N,)
        The samples.
    clusters : Tensor, shape (N,)
        A number for each sample's cluster.

    Returns
    -------
    float
        The error; NaN if there is one cluster only. With one sample in each cluster
        it is that of independent samples.

    Examples
    --------
    >>> clustered_error(torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1]))
    0.5
    """
    _, index = torch.unique(clusters, return_inverse=True)
    count = int(index.max()) + 1
    if count < 2:
        return math.nan
    deviations = values.double() - values.double().mean()
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, index, deviations)
    return math.sqrt(count / (count - 1) * float(sums.square().sum())) / len(values)
