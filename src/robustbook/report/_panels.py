"""What the page shows of each lens, which follows from the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from robustbook._comparison import paired_means
from robustbook.lenses import ThreeLenses
from robustbook.report import _figures
from robustbook.report._words import (
    eps_in_words,
    interval,
    mean_interval,
    percent,
    shift_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The titles of the lenses.
TITLES: Final = {
    "agreement": "Posterior Agreement",
    "average-case": "Average-case robustness",
    "margins": "Margins",
}


@dataclass(frozen=True, eq=False)
class Panel:
    """A card with a number and a sentence, a figure, and the most fragile images."""

    #: The number of the card, and what it counts.
    number: str
    measure: str
    sentence: str
    figure: str
    plot: Callable[[Axes], None]
    caption: str
    #: A score of each image, (N,): the smaller, the more fragile; NaN is unknown.
    scores: Tensor
    score_meaning: str
    score_format: str


def panels(lenses: ThreeLenses) -> dict[str, Panel]:
    """Return a panel for each lens that was measured."""
    shown = {}
    if lenses.agreements:
        shown["agreement"] = _agreement(lenses)
    if lenses.robustness is not None:
        shown["average-case"] = _average_case(lenses)
    if lenses.margins is not None:
        shown["margins"] = _margins(lenses)
    return shown


def _agreement(lenses: ThreeLenses) -> Panel:
    agreements = lenses.agreements
    worst = min(agreements, key=lambda shift: agreements[shift].pa)
    share = agreements[worst].pa / math.log(lenses.num_classes)
    scores = torch.stack([result.per_sample for result in agreements.values()])
    return Panel(
        number=percent(share),
        measure=f"of log K under {shift_name(worst)}, the costliest shift",
        sentence=agreement_sentence(lenses),
        figure="What each shift leaves of agreement",
        plot=partial(_figures.plot_agreements, lenses),
        caption="Dots: Posterior Agreement with 95 % intervals. Diamonds: its hard "
        "part, from the predictions alone. Dashed: as much as there can be.",
        scores=scores.mean(dim=0),
        score_meaning="contribution to it in nats, mean over the shifts",
        score_format="{:.2f}",
    )


def _average_case(lenses: ThreeLenses) -> Panel:
    assert lenses.mean_robustness is not None
    crosses = " Crosses: misclassified without noise."
    return Panel(
        number=percent(lenses.mean_robustness[0]),
        measure="of predictions survive noise",
        sentence=average_sentence(lenses),
        figure="How often each prediction survives noise",
        plot=partial(_figures.plot_survival, lenses),
        caption=f"Estimates from {lenses.settings.noise_samples} noisy copies each, "
        "with 95 % intervals. Dashed: nine times in ten."
        + crosses
        * (lenses.labels is not None),
        scores=100 * lenses.scores()["average-case"],
        score_meaning="how often the prediction survives noise",
        score_format="{:.1f}\N{NO-BREAK SPACE}%",
    )


def _margins(lenses: ThreeLenses) -> Panel:
    assert lenses.robust_share is not None
    assert lenses.margins is not None
    eps, count = eps_in_words(lenses.settings.eps), len(lenses.measured)
    unknown = int(lenses.margins.failed.sum())
    left_out = f" Of {unknown} images no attack changed the prediction."
    return Panel(
        number=percent(lenses.robust_share.value),
        measure=f"of predictions unchanged up to ε = {eps}",
        sentence=margin_sentence(lenses),
        figure="The free margin against the measured one",
        plot=partial(_figures.plot_margins, lenses),
        caption=f"{count} images, drawn at random; input margins are upper bounds, in "
        "units where a pixel lies in [0, 1]. Crosses: a change within ε was found."
        + left_out
        * bool(unknown),
        scores=255 * lenses.scores()["input margin"],
        score_meaning=f"input margin in steps of 1/255, of the {count} measured; ε is "
        f"{eps}",
        score_format="{:.1f}",
    )


def agreement_sentence(lenses: ThreeLenses) -> str:
    """Say which shift costs most, and how much."""
    most, agreements = math.log(lenses.num_classes), lenses.agreements
    if all(agreement.mismatch == 0 for agreement in agreements.values()):
        return (
            f"None of the {len(agreements)} shifts changes a prediction on any of "
            f"{len(lenses)} images: agreement is complete, at log K = {most:.2f} nats."
        )
    worst, *others = sorted(agreements, key=lambda shift: agreements[shift].pa)
    tied = [shift for shift in others if not _differ(lenses, worst, shift)]
    doubt = contrast = ""
    if tied:
        listed = ", ".join(map(shift_name, tied))
        beaten = "any other" if tied == others else f"these: {listed}"
        doubt = f" (not significantly more than {beaten})"
    if others and others[-1] not in tied:
        share = percent(agreements[others[-1]].pa / most)
        contrast = f", against {share} under {shift_name(others[-1])}"
    return (
        f"Of {len(agreements)} shifts, {shift_name(worst)} costs most{doubt}: there "
        f"{percent(agreements[worst].mismatch)} of the predictions change, and "
        f"{percent(agreements[worst].pa / most)} of the agreement that "
        f"{lenses.num_classes} classes allow is left{contrast}."
    )


def _differ(lenses: ThreeLenses, shift: str, other: str) -> bool:
    """Return whether two agreements differ significantly, in a paired comparison."""
    a, b = (lenses.agreements[name].per_sample for name in (shift, other))
    low, high = paired_means(a, b).interval
    return not low <= 0 <= high


def average_sentence(lenses: ThreeLenses) -> str:
    """Say how often predictions survive noise, and how many are fragile."""
    assert lenses.mean_robustness is not None
    mean, error = lenses.mean_robustness
    fragile = _figures.fragile(lenses)
    count, wrong = int(fragile.sum()), ""
    between = f" ({mean_interval(mean, error)})" if error > 0 else ""
    if count and lenses.correct is not None:
        missed = int((fragile & ~lenses.correct).sum())
        verb = "is" if missed == 1 else "are"
        wrong = f", of which {missed or 'none'} {verb} misclassified without noise"
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
    meaning = "which may be chance, so logit margins are no warning here"
    if low > 0:
        meaning = "so the smaller logit margin is a warning"
    elif high < 0:
        meaning = "so logit margins mislead"
    return (
        f"{start}; logit margins order the input margins of {order.num_samples} images "
        f"with τ = {order.tau:.2f} ({low:.2f} to {high:.2f}), {meaning}."
    )
