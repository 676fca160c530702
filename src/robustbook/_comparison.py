"""Two models on the same pairs or images: their scores and the paired differences."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_labels
from robustbook._intervals import Estimate, normal_quantile, student_quantile
from robustbook.agreement import Agreement, compare_agreement, compare_paired_accuracy
from robustbook.scores import predictions


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models on the same pairs.

    Scores and differences are "pa", "same_answer_rate"; with labels, "accuracy" and
    "shifted_accuracy"; with calibration data, "paired_accuracy". Standard errors are
    paired, so that samples that are hard for both models cancel.
    """

    agreements: tuple[Agreement, Agreement]
    scores: list[dict[str, float]]
    differences: dict[str, Estimate]


def compare_models(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    labels: ArrayLike | None = None,
    *,
    prior: Any = None,
    tol: float = 1e-9,
    calibrated_on: Any = None,
) -> Comparison:
    """Compare two models, each on clean and shifted logits (N, K)."""
    paired = compare_agreement(*a, *b, prior=prior, tol=tol)
    scores = [{"pa": paired.first.pa}, {"pa": paired.second.pa}]
    differences: dict[str, Estimate] = {"pa": paired}
    hits = _hits(*a, labels), _hits(*b, labels)
    for name in hits[0]:
        rates = hits[0][name], hits[1][name]
        for of_model, hit in zip(scores, rates, strict=True):
            of_model[name] = float(hit.double().mean())
        differences[name] = paired_rates(*rates)
    if calibrated_on is not None:
        paired_accuracy = compare_paired_accuracy(*a, *b, calibrated_on=calibrated_on)
        estimates = paired_accuracy.first, paired_accuracy.second
        for of_model, estimate in zip(scores, estimates, strict=True):
            of_model["paired_accuracy"] = estimate.value
        differences["paired_accuracy"] = paired_accuracy
    return Comparison((paired.first, paired.second), scores, differences)


def _hits(clean: Any, shifted: Any, labels: Any) -> dict[str, Tensor]:
    """Return, for each rate, which samples count."""
    before, after = predictions(clean), predictions(shifted)
    hits = {"same_answer_rate": before == after}
    if labels is not None:
        true = check_labels(
            "labels", labels, length=len(before), num_classes=clean.shape[1]
        )
        hits |= {"accuracy": before == true, "shifted_accuracy": after == true}
    return hits


def paired_means(a: Tensor, b: Tensor, unseen: float = 0.0) -> Estimate:
    """Return the difference of two means over the same samples, by Student's law.

    Where all samples have the same difference, the half-width of the interval is
    `unseen`, for variation that so few samples may not show.
    """
    each = a.double() - b.double()
    value, error = float(each.mean()), float(each.std()) / math.sqrt(len(each))
    half = student_quantile(0.95, len(each) - 1) * error or unseen
    return Estimate(value, error, (value - half, value + half))


def paired_rates(a: Tensor, b: Tensor) -> Estimate:
    """Return the difference of two rates, with Agresti and Min's interval.

    They add half a sample to each of the four ways in which two models can answer, so
    that the interval has a width also where the models never differ.
    """
    count = len(a)
    more, fewer = float((a & ~b).sum()), float((b & ~a).sum())

    def moments(more: float, fewer: float, count: float) -> tuple[float, float]:
        mean = (more - fewer) / count
        return mean, math.sqrt(max(0.0, (more + fewer) / count - mean**2))

    value, spread = moments(more, fewer, count)
    error = spread / math.sqrt(count - 1) if count > 1 else math.nan
    center, spread = moments(more + 0.5, fewer + 0.5, count + 2)
    half = normal_quantile(0.95) * spread / math.sqrt(count + 2)
    return Estimate(value, error, (max(-1.0, center - half), min(1.0, center + half)))
