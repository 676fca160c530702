"""Two models on the same pairs or images: what each scores, and paired differences."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from scipy.stats import t
from torch import Tensor

from robustbook._checks.arguments import check_labels
from robustbook.agreement import Agreement, compare_agreement
from robustbook.scores import predictions


@dataclass(frozen=True)
class Difference:
    """A score of the first model minus that of the second, with its 95 % interval.

    The standard error is paired: what is hard for both models cancels.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models on the same pairs.

    Scores and differences are "pa", "same_answer_rate" and, with labels, "accuracy" and
    "shifted_accuracy".
    """

    agreements: tuple[Agreement, Agreement]
    scores: list[dict[str, float]]
    differences: dict[str, Difference]


def compare_models(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    labels: Any = None,
    *,
    prior: Any = None,
    tol: float = 1e-9,
) -> Comparison:
    """Compare two models, each on clean and shifted logits (N, K)."""
    paired = compare_agreement(*a, *b, prior=prior, tol=tol)
    # What could not be compared is refused by now.
    hits = _hits(*a, labels), _hits(*b, labels)
    pa = Difference(paired.difference, paired.standard_error, paired.interval)
    agreements = paired.a, paired.b
    rates = [{n: float(hit.double().mean()) for n, hit in own.items()} for own in hits]
    scores = [{"pa": one.pa, **r} for one, r in zip(agreements, rates, strict=True)]
    differences = {n: paired_rates(hit, hits[1][n]) for n, hit in hits[0].items()}
    return Comparison(agreements, scores, {"pa": pa, **differences})


def _hits(clean: Any, shifted: Any, labels: Any) -> dict[str, Tensor]:
    """Whether each sample counts for each rate."""
    before, after = predictions(clean), predictions(shifted)
    hits = {"same_answer_rate": before == after}
    if labels is not None:
        true = check_labels(
            "labels", labels, length=len(before), num_classes=clean.shape[1]
        )
        hits |= {"accuracy": before == true, "shifted_accuracy": after == true}
    return hits


def paired_means(one: Tensor, other: Tensor, unseen: float = 0.0) -> Difference:
    """A difference of two means over the same samples (N,), with Student's interval.

    If it is the same in all samples, the interval is as wide as what they may not show.
    """
    each = one.double() - other.double()
    value, error = float(each.mean()), float(each.std()) / math.sqrt(len(each))
    half = float(t.ppf(0.975, len(each) - 1)) * error or unseen
    return Difference(value, error, (value - half, value + half))


def paired_rates(one: Tensor, other: Tensor) -> Difference:
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
