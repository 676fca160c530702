"""The sentences of the page, which follow from the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._comparison import paired_means
from robustbook._intervals import Estimate, normal_quantile
from robustbook.agreement import PairedAccuracy
from robustbook.lenses import Share, ThreeLenses

#: Where the book is published; the same address stands in its _config.yml.
BOOK: Final = "https://robustness-measured.github.io/robustness-measured/"

#: Half the width of a 95 % interval, in standard errors.
Z: Final = normal_quantile(0.95)

#: A prediction that survives noise with a smaller probability is called fragile.
FRAGILE: Final = 0.9

#: The estimated accuracy under each shift.
Estimates = Mapping[str, PairedAccuracy]

_SPACE: Final = "\N{NO-BREAK SPACE}"


#: The titles of the lenses.
TITLES: Final = {
    "agreement": "Posterior Agreement",
    "average-case": "Average-case robustness",
    "margins": "Margins",
}


# --- numbers in words -------------------------------------------------------------


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{_SPACE}%"


def interval(low: float, high: float, *, digits: int = 1) -> str:
    return f"{100 * low:.{digits}f}–{100 * high:.{digits}f}{_SPACE}%"


def nats(low: float, high: float) -> str:
    return f"{low:.3f}–{high:.3f}"


def eps_in_words(eps: float) -> str:
    """Return ε as people write it: 8/255, where it is a multiple of 1/255."""
    steps = 255 * eps
    if abs(steps - round(steps)) < 1e-6:
        return f"{round(steps)}/255"
    return f"{eps:.3g}"


def calibration(estimates: Estimates, name: str | None) -> str:
    """Return how the estimates of the accuracy were calibrated; "" without any."""
    for estimate in estimates.values():
        calibrated = estimate.calibration
        low, high = map(infinite, calibrated.interval)
        count, of_data = calibrated.num_samples, f" of {name}" if name else ""
        return (
            f"on {count} labeled images{of_data}, none of them measured: "
            f"β = {infinite(calibrated.beta)} ({low} to {high})"
        )
    return ""


def true_accuracies(lenses: ThreeLenses) -> dict[str, Share]:
    """Return the accuracy under each shift, if the labels are known."""
    if lenses.labels is None:
        return {}
    return {
        shift: Share.of(logits.argmax(dim=1) == lenses.labels)
        for shift, logits in lenses.shifted_logits.items()
    }


def estimates(lenses: ThreeLenses, accuracies: Estimates) -> dict[str, Any]:
    """Return the estimates, the true accuracies and the calibration as numbers."""
    true = true_accuracies(lenses)
    calibrated = next(iter(accuracies.values())).calibration
    names = "beta", "interval", "num_samples", "cross_entropy"
    shifts = {
        shift: {part.name: getattr(estimate, part.name) for part in fields(Estimate)}
        | {"accuracy": true[shift].value if true else None}
        for shift, estimate in accuracies.items()
    }
    return {
        "calibration": {name: getattr(calibrated, name) for name in names},
        "shifts": shifts,
    }


def shift_name(name: str) -> str:
    return "attack" if name == "adversarial" else name


def half_width(standard_error: float) -> str:
    """Return half a 95 % interval, unless no variation was seen."""
    if math.isnan(standard_error) or standard_error == 0:
        return "no variation seen"
    return f"± {Z * standard_error:.3f}"


def mean_interval(mean: float, error: float) -> tuple[float, float]:
    return max(0.0, mean - Z * error), min(1.0, mean + Z * error)


def fragile(lenses: ThreeLenses) -> Tensor:
    """Return whether a prediction survives noise less often than 9 in 10, (N,)."""
    if lenses.robustness is None:
        return torch.zeros(len(lenses), dtype=torch.bool)
    return lenses.robustness.probability < FRAGILE


def left_out(lenses: ThreeLenses) -> list[str]:
    """Return the titles of the lenses that were not measured."""
    results = lenses.agreements, lenses.robustness, lenses.margins
    pairs = zip(TITLES.values(), results, strict=True)
    return [title for title, result in pairs if not result]


# --- the summary -----------------------------------------------------------------


def cards(lenses: ThreeLenses) -> dict[str, dict[str, str]]:
    """Return a number, its name and a sentence for each lens that was measured."""
    cards = {}
    if lenses.agreements:
        worst = min(lenses.agreements, key=lambda name: lenses.agreements[name].pa)
        share = lenses.agreements[worst].pa / math.log(lenses.num_classes)
        cards["agreement"] = {
            "title": "Agreement",
            "number": percent(share),
            "what": f"of log K under {shift_name(worst)}, the costliest shift",
            "sentence": agreement_sentence(lenses),
        }
    if lenses.mean_robustness is not None:
        cards["average-case"] = {
            "title": "Average case",
            "number": percent(lenses.mean_robustness[0]),
            "what": "of predictions survive noise",
            "sentence": average_sentence(lenses),
        }
    if lenses.margins is not None and lenses.robust_share is not None:
        eps = eps_in_words(lenses.settings.eps)
        cards["margins"] = {
            "title": "Margins",
            "number": percent(lenses.robust_share.value),
            "what": f"of predictions unchanged up to ε = {eps}",
            "sentence": margin_sentence(lenses),
        }
    return cards


def agreement_sentence(lenses: ThreeLenses) -> str:
    """Say which shift costs most, and how much."""
    most = math.log(lenses.num_classes)
    agreements = lenses.agreements
    if all(agreement.mismatch == 0 for agreement in agreements.values()):
        return (
            f"None of the {len(agreements)} shifts changes a prediction on any of "
            f"{len(lenses)} images: agreement is complete, at log K = {most:.2f} nats."
        )
    order = sorted(agreements, key=lambda shift: agreements[shift].pa)
    worst, best = order[0], order[-1]
    tied = [shift for shift in order if not _differ(lenses, worst, shift)]
    count, name = f"{len(order)} shifts", shift_name(worst)
    start = f"Of {count}, {name} costs most: there"
    if len(tied) == len(order):
        start = f"The costs of {count} cannot be told apart: under {name}, which "
        start += "seems to cost most,"
    elif len(tied) > 1:
        *others, last = map(shift_name, tied)
        start = f"Of {count}, {', '.join(others)} and {last} cost most and cannot be "
        start += f"told apart: under {name}"
    end = ""
    if best not in tied:
        share = percent(agreements[best].pa / most)
        end = f", against {share} under {shift_name(best)}"
    return (
        f"{start} {percent(agreements[worst].mismatch)} of the predictions change, and "
        f"{percent(agreements[worst].pa / most)} of the agreement that "
        f"{lenses.num_classes} classes allow is left{end}."
    )


def _differ(lenses: ThreeLenses, shift: str, other: str) -> bool:
    """Return whether two agreements differ significantly, in a paired comparison."""
    a, b = (lenses.agreements[name].per_sample for name in (shift, other))
    low, high = paired_means(a, b).interval
    return not low <= 0 <= high


def average_sentence(lenses: ThreeLenses) -> str:
    """Say how often predictions survive noise, and how many are fragile."""
    mean, error = lenses.mean_robustness or (math.nan, 0.0)
    fragile_images = fragile(lenses)
    count = int(fragile_images.sum())
    between = f" ({interval(*mean_interval(mean, error))})" if error > 0 else ""
    wrong = ""
    if count and lenses.correct is not None:
        missed = int((fragile_images & ~lenses.correct).sum())
        verb = "is" if missed == 1 else "are"
        wrong = f", of which {missed} {verb} misclassified anyhow"
        if missed == 0:
            wrong = ", all of which are classified correctly without noise"
    return (
        f"Under Gaussian noise of σ = {lenses.settings.sigma:g} a prediction survives "
        f"{percent(mean)} of the time{between}, and {count or 'none'} of {len(lenses)} "
        f"images less often than nine times in ten{wrong}."
    )


def margin_sentence(lenses: ThreeLenses) -> str:
    """Say how many predictions withstand attacks, and whether logit margins warn."""
    share, right, order = lenses.robust_share, "", lenses.consistency
    assert share is not None
    if lenses.robust_accuracy is not None:
        right = f", and {percent(lenses.robust_accuracy.value)} are right as well"
    start = (
        f"For {percent(share.value)} of the predictions ({interval(*share.interval)}) "
        f"no attack found a change up to ε = {eps_in_words(lenses.settings.eps)}{right}"
    )
    if order is None:
        return f"{start}; an order of margins is not defined here."
    low, high = order.interval
    if low > 0:
        meaning = "so the smaller logit margin is a warning"
    elif high < 0:
        meaning = "so logit margins mislead"
    else:
        meaning = "which may be chance, so logit margins are no warning here"
    return (
        f"{start}; logit margins order the input margins of {order.num_samples} images "
        f"with τ = {order.tau:.2f} ({low:.2f} to {high:.2f}), {meaning}."
    )


def infinite(number: float) -> str:
    """Return a number that may be infinite."""
    return "∞" if math.isinf(number) else f"{number:.3g}"


def lowest(scores: Tensor, count: int) -> list[int]:
    """Return the positions of the smallest scores, without NaN."""
    finite = torch.nan_to_num(scores, nan=math.inf)
    order = torch.argsort(finite, stable=True)[:count].tolist()
    return [index for index in order if not math.isnan(float(scores[index]))]


def total_cost(lenses: ThreeLenses) -> str:
    """Return the passes of the whole measurement."""
    counts = dict.fromkeys(lenses.passes, len(lenses))
    counts["input margin"] = len(lenses.measured)
    forward, backward = (
        sum(counts[name] * getattr(cost, kind) for name, cost in lenses.passes.items())
        for kind in ("forward", "backward")
    )
    grouped = f"{round(forward):,} forward and {round(backward):,} backward passes"
    return grouped.replace(",", "\N{NARROW NO-BREAK SPACE}") + " of single images"
