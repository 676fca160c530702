"""Models side by side, on the same pairs: what each scores, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

from torch import Tensor

from robustbook._checks.arguments import check_labels
from robustbook.agreement import Agreement, compare_agreement
from robustbook.scores import predictions

__all__ = ["Comparison", "Difference", "compare_models"]


@dataclass(frozen=True)
class Difference:
    """One score of the first model less that of the second.

    Attributes
    ----------
    value : float
        The difference of the two means.
    standard_error : float
        Paired: what is hard for both models cancels.
    interval : tuple of float
        At 95 %.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several models on the same pairs.

    Attributes
    ----------
    agreements : list of Agreement
        One a model.
    scores : list of dict
        One a model: "pa", "afr_pred" and, with labels, "accuracy" and
        "shifted_accuracy".
    differences : dict of (int, int) to dict of str to Difference
        For any two models, the first less the second, by the names of `scores`.
    """

    agreements: list[Agreement]
    scores: list[dict[str, float]]
    differences: dict[tuple[int, int], dict[str, Difference]]


def compare_models(
    pairs: Sequence[tuple[Any, Any]],
    labels: Any = None,
    *,
    prior: Any = None,
    tol: float = 1e-9,
) -> Comparison:
    """Compare two models or more, each on clean and shifted logits (N, K).

    Raises
    ------
    TypeError, ValueError
        If logits, labels or prior cannot be used, or logits differ in shape.
    CertificateError
        If `tol` is not reached.

    Examples
    --------
    >>> import torch
    >>> clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    >>> worse = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    >>> comparison = compare_models([(clean, clean), (clean, worse)])
    >>> comparison.differences[0, 1]["afr_pred"].value
    0.25
    """
    if len(pairs) < 2:
        raise ValueError(f"pairs: expected those of two models, got {len(pairs)}")
    agreements: dict[int, Agreement] = {}
    differences = {}
    for one, other in combinations(range(len(pairs)), 2):
        paired = compare_agreement(*pairs[one], *pairs[other], prior=prior, tol=tol)
        agreements |= {one: paired.a, other: paired.b}
        differences[one, other] = {
            "pa": Difference(paired.difference, paired.standard_error, paired.interval)
        }
    # What could not be compared is refused by now.
    hits = [_hits(*pair, labels) for pair in pairs]
    for (one, other), found in differences.items():
        found |= {
            name: _paired_rates(hit, hits[other][name])
            for name, hit in hits[one].items()
        }
    return Comparison(
        [agreements[place] for place in range(len(pairs))],
        [
            {"pa": agreements[place].pa}
            | {name: float(hit.double().mean()) for name, hit in hits[place].items()}
            for place in range(len(pairs))
        ],
        differences,
    )


def _hits(clean: Any, shifted: Any, labels: Any) -> dict[str, Tensor]:
    """Whether each sample counts for each rate."""
    before, after = predictions(clean), predictions(shifted)
    hits = {"afr_pred": before == after}
    if labels is not None:
        true = check_labels(
            "labels", labels, length=len(before), num_classes=clean.shape[1]
        )
        hits |= {"accuracy": before == true, "shifted_accuracy": after == true}
    return hits


def _paired_rates(one: Tensor, other: Tensor) -> Difference:
    """A difference of two rates; the interval is Agresti and Min's.

    They add half a sample to each of the four ways that two models can answer: where
    no sample tells the models apart, the interval still has a width.
    """
    count = len(one)
    more, fewer = float((one & ~other).sum()), float((other & ~one).sum())

    def moments(more: float, fewer: float, count: float) -> tuple[float, float]:
        mean = (more - fewer) / count
        return mean, math.sqrt(max(0.0, (more + fewer) / count - mean**2))

    value, spread = moments(more, fewer, count)
    error = spread / math.sqrt(count - 1) if count > 1 else math.nan
    center, spread = moments(more + 0.5, fewer + 0.5, count + 2)
    half = NormalDist().inv_cdf(0.975) * spread / math.sqrt(count + 2)
    return Difference(value, error, (max(-1.0, center - half), min(1.0, center + half)))
