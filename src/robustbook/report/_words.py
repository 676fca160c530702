"""Numbers as the page writes them, and the shifts in order."""

from __future__ import annotations

import math
from typing import Final

from robustbook._comparison import paired_means
from robustbook._intervals import normal_quantile
from robustbook.lenses import ThreeLenses

#: Where the book is published; the same address stands in its _config.yml.
BOOK: Final = "https://robustness-measured.github.io/robustness-measured/"

#: The titles of the lenses.
TITLES: Final = {
    "agreement": "Posterior Agreement",
    "average-case": "Average-case robustness",
    "margins": "Margins",
}

#: Half the width of a 95 % interval, in standard errors.
Z: Final = normal_quantile(0.95)


def percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def interval(low: float, high: float) -> str:
    return f"{100 * low:.1f}–{percent(high)}"


def mean_interval(mean: float, error: float) -> str:
    """Return a 95 % interval for a mean between 0 and 1."""
    if error == 0:
        return "no variation seen"
    return interval(max(0.0, mean - Z * error), min(1.0, mean + Z * error))


def half_width(error: float) -> str:
    """Return half a 95 % interval in nats."""
    return f"± {Z * error:.3f}" if error > 0 else "no variation seen"


def infinite(number: float) -> str:
    """Return a number that may be infinite."""
    return "∞" if math.isinf(number) else f"{number:.3g}"


def eps_in_words(eps: float) -> str:
    """Return ε as people write it: 8/255, where it is a multiple of 1/255."""
    steps = 255 * eps
    if abs(steps - round(steps)) < 1e-6:
        return f"{round(steps)}/255"
    return f"{eps:.3g}"


def shift_name(name: str) -> str:
    return "attack" if name == "adversarial" else name


def costliest_first(lenses: ThreeLenses) -> tuple[list[str], list[str]]:
    """Return the shifts by rising agreement, and those that may cost as much as any.

    The latter do not differ significantly from the first one, in a paired comparison.
    """
    agreements = lenses.agreements
    order = sorted(agreements, key=lambda shift: agreements[shift].pa)
    worst, tied = agreements[order[0]].per_sample, []
    for shift in order[1:]:
        low, high = paired_means(worst, agreements[shift].per_sample).interval
        if low <= 0 <= high:
            tied.append(shift)
    return order, tied


def total_cost(lenses: ThreeLenses) -> str:
    """Return the passes of the whole measurement."""
    counts = dict.fromkeys(lenses.passes, len(lenses))
    counts["input margin"] = len(lenses.measured)
    forward, backward = (
        sum(counts[name] * getattr(cost, kind) for name, cost in lenses.passes.items())
        for kind in ("forward", "backward")
    )
    passes = f"{round(forward):,} forward and {round(backward):,} backward passes"
    return passes.replace(",", "\N{NARROW NO-BREAK SPACE}") + " of single images"
