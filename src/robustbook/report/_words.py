"""What the page says: sentences that follow from the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import torch
from scipy.stats import binomtest
from torch import Tensor

from robustbook.lenses import Share, ThreeLenses

__all__ = [
    "BOOK",
    "LENSES",
    "Lens",
    "agreement_sentence",
    "average_sentence",
    "bound",
    "fragile",
    "half_width",
    "infinite",
    "interval",
    "lowest",
    "margin_sentence",
    "mean_interval",
    "percent",
    "shift_name",
    "wilson",
]

#: Where the book is published; the same address stands in its _config.yml.
BOOK: Final = "https://robustness-measured.github.io/robustness-measured/"

#: Half the width of a 95 % interval, in standard errors.
Z: Final = NormalDist().inv_cdf(0.975)

#: A prediction that survives noise less often than this is called fragile.
OFTEN: Final = 0.9

_SPACE: Final = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Lens:
    """How to read one lens.

    Attributes
    ----------
    title : str
        What it is called.
    meaning : str
        What its number means.
    limits : str
        What it does not promise.
    chapters : dict of str to str
        Numbers of the chapters and their pages.
    """

    title: str
    meaning: str
    limits: str
    chapters: dict[str, str]


def _chapters(*names: str) -> dict[str, str]:
    return {
        str(int(name[:2])): f"{BOOK}book/chapters/{name}.html" for name in names
    }  # fmt: skip


LENSES: Final = (
    Lens(
        "Posterior Agreement",
        "How much of what the model said of the clean images it still says of the "
        "shifted ones, in nats for each image: log K if every prediction stays, 0 if "
        "nothing of them can be relied on. The inverse temperature that suits both "
        "sides best is found with a proof (β*); scaled logits give the same number. "
        "The hard part is what the predictions alone are worth, without confidences.",
        "It is not accuracy: a model that makes the same mistake twice agrees. And it "
        "speaks of the shifts that were tried, and of this attack.",
        _chapters("04_agreement_kernel", "07_hard_decisions", "08_first_measurement"),
    ),
    Lens(
        "Average-case robustness",
        "The probability that a prediction stays under Gaussian noise on every pixel, "
        "estimated for each image by counting. The few fragile images tell more than "
        "the mean.",
        "It is an average: a prediction that survives nearly all noise can still have "
        "an adversarial example close by. It holds for this σ.",
        _chapters(
            "19_robustness_on_average", "21_unbiased_with_an_error_bar",
            "22_who_is_robust",
        ),
    ),
    Lens(
        "Margins",
        "The input margin is the smallest change of the pixels at which attacks found "
        "another prediction. The logit margin, the lead of the first class over the "
        "second, comes free with the prediction. τ says how well the free one orders "
        "images as the measured one does: 1 the same order, 0 none.",
        "Measured margins are upper bounds; a better attack may find smaller ones. "
        "Nothing here is a certificate, and an order is no threshold.",
        _chapters(
            "23_margins_in_and_out", "24_detecting_brittle_decisions",
            "25_robust_accuracy_from_a_small_sample",
        ),
    ),
)  # fmt: skip


# --- numbers in words -------------------------------------------------------------


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * share:.{digits}f}{_SPACE}%"


def interval(low: float, high: float, *, digits: int = 1) -> str:
    """An interval of shares as percentages."""
    return f"{100 * low:.{digits}f}–{100 * high:.{digits}f}{_SPACE}%"


def bound(eps: float) -> str:
    """ε as people write it: in steps of a byte where it is a whole number of them."""
    steps = 255 * eps
    if abs(steps - round(steps)) < 1e-6:
        return f"{round(steps)}/255"
    return f"{eps:.3g}"


def shift_name(name: str) -> str:
    """A shift as the page calls it."""
    return "attack" if name == "adversarial" else name


def half_width(standard_error: float) -> str:
    """Half a 95 % interval; where no variation was seen, no error can be said."""
    if math.isnan(standard_error) or standard_error == 0:
        return "no variation seen"
    return f"± {Z * standard_error:.3f}"


def wilson(kept: Tensor) -> Share:
    """A share of images with Wilson's 95 % interval, of one bool for each image."""
    count, total = int(kept.sum()), len(kept)
    found = binomtest(count, total).proportion_ci(method="wilson")
    return Share(count / total, (float(found.low), float(found.high)))


def mean_interval(mean: float, error: float) -> tuple[float, float]:
    """A 95 % interval for the mean of probabilities, cut to [0, 1]."""
    return max(0.0, mean - Z * error), min(1.0, mean + Z * error)


def fragile(seen: ThreeLenses) -> Tensor:
    """Whether a prediction survives noise less often than nine times in ten."""
    return seen.robustness.probability < OFTEN


# --- the summary -----------------------------------------------------------------


def agreement_sentence(seen: ThreeLenses) -> str:
    """Which shift costs most, and what."""
    most = math.log(seen.num_classes)
    if all(found.mismatch == 0 for found in seen.agreements.values()):
        return (
            f"None of the {len(seen.agreements)} shifts changes a prediction on any of "
            f"{len(seen)} images: agreement is complete, at log K = {most:.2f} nats."
        )
    order = sorted(seen.agreements, key=lambda shift: seen.agreements[shift].pa)
    worst = seen.agreements[order[0]]
    tied = [shift for shift in order if not _told_apart(seen, order[0], shift)]
    least = order[-1]
    start = f"Of {len(order)} shifts, {shift_name(order[0])} costs most: there"
    if len(tied) == len(order):
        start = (
            f"The costs of {len(order)} shifts cannot be told apart: under "
            f"{shift_name(order[0])}, which seems to cost most,"
        )
    elif len(tied) > 1:
        names = _listed([shift_name(shift) for shift in tied])
        start = (
            f"Of {len(order)} shifts, {names} cost most and cannot be told apart: "
            f"under {shift_name(order[0])}"
        )
    end = ""
    if least not in tied:
        share = seen.agreements[least].pa / most
        end = f", against {percent(share)} under {shift_name(least)}"
    return (
        f"{start} {percent(worst.mismatch)} of the predictions change, and "
        f"{percent(worst.pa / most)} of the agreement that {seen.num_classes} "
        f"classes allow is left{end}."
    )


def _told_apart(seen: ThreeLenses, one: str, other: str) -> bool:
    """Whether the paired difference of two agreements has an interval without 0."""
    a, b = seen.agreements[one].per_sample, seen.agreements[other].per_sample
    difference = a - b
    error = float(difference.std(correction=1)) / math.sqrt(len(difference))
    return abs(float(difference.mean())) > Z * error


def average_sentence(seen: ThreeLenses) -> str:
    """How often predictions survive noise, and how many seldom do."""
    mean, error = seen.mean_robustness
    few = fragile(seen)
    count = int(few.sum())
    sure = f" ({interval(*mean_interval(mean, error))})" if error > 0 else ""
    if not count:
        end = f"none of {len(seen)} images less often than nine times in ten"
    else:
        end = f"{count} of {len(seen)} images less often than nine times in ten"
    wrong = ""
    if count and seen.correct is not None:
        also = int((few & ~seen.correct).sum())
        wrong = f", of which {also} {'is' if also == 1 else 'are'} misclassified anyhow"
        if also == 0:
            wrong = ", all of which are classified correctly without noise"
    return (
        f"Under Gaussian noise of σ = {seen.settings.sigma:g} a prediction survives "
        f"{percent(mean)} of the time{sure}, and {end}{wrong}."
    )


def margin_sentence(seen: ThreeLenses) -> str:
    """What no attack changed, and whether logit margins tell which predictions."""
    share = seen.robust_share
    right = ""
    if seen.robust_accuracy is not None:
        right = f", and {percent(seen.robust_accuracy.value)} are right as well"
    start = (
        f"For {percent(share.value)} of the predictions ({interval(*share.interval)}) "
        f"no attack found a change up to ε = {bound(seen.settings.eps)}{right}"
    )
    found = seen.consistency
    if found is None:
        return f"{start}; an order of margins is not defined here."
    low, high = found.interval
    if low > 0:
        meaning = "so the smaller logit margin is a warning"
    elif high < 0:
        meaning = "so logit margins mislead"
    else:
        meaning = "which may be chance, so logit margins are no warning here"
    return (
        f"{start}; logit margins order the input margins of {found.num_samples} images "
        f"with τ = {found.tau:.2f} ({low:.2f} to {high:.2f}), {meaning}."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def infinite(number: float) -> str:
    """A number of which infinity is a possible value."""
    return "∞" if math.isinf(number) else f"{number:.3g}"


def lowest(scores: Tensor, count: int) -> list[int]:
    """Positions of the smallest scores, NaN left out; ties in the order given."""
    known = torch.nan_to_num(scores, nan=math.inf)
    order = torch.argsort(known, stable=True)[:count].tolist()
    return [place for place in order if not math.isnan(float(scores[place]))]
