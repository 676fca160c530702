"""The rows of the tables of the page, and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from robustbook.agreement import PairedAccuracy
from robustbook.lenses import Passes, Share, ThreeLenses
from robustbook.report import _words as words


def shift_rows(
    lenses: ThreeLenses, estimates: dict[str, PairedAccuracy]
) -> Iterator[list[Any]]:
    """Yield the shift, and value and style of each cell: intervals follow a bar."""
    most = math.log(lenses.num_classes)
    accuracies = words.true_accuracies(lenses)

    def cell(share: Share | PairedAccuracy) -> str:
        return f"{words.percent(share.value)}|{words.interval(*share.interval)}"

    row: list[Any] = []
    for shift, agreement in lenses.agreements.items():
        shares = [one[shift] for one in (estimates, accuracies) if estimates and one]
        row = [
            words.shift_name(shift),
            (f"{agreement.pa:.3f}|{words.nats(*agreement.interval())}", ""),
            (words.percent(agreement.pa / most), "deep"),
            (cell(Share.of(lenses.changed(shift))), "share" if estimates else ""),
            *((cell(share), "share") for share in shares),
            (f"{agreement.hard_part:.3f}", ""),
            (words.infinite(agreement.beta), "deep"),
            (_passes(lenses.passes[shift]), "deep" if estimates else ""),
        ]
        yield row
    if lenses.domain_agreement is not None:
        mean, error = lenses.domain_agreement
        value = f"{mean:.3f}|{words.half_width(error)}"
        rest = [("", kind) for _, kind in row[3:]]
        share = words.percent(mean / most)
        yield ["mean of corruptions", (value, ""), (share, "deep"), *rest]


def measure_rows(lenses: ThreeLenses) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, value, interval and passes of each of the other measures."""
    settings, passes = lenses.settings, lenses.passes

    def row(name: str, share: Share, cost: str = "") -> tuple[str, str, str, str]:
        return name, words.percent(share.value), words.interval(*share.interval), cost

    if lenses.correct is not None:
        cost = _passes(passes["clean"])
        yield row("accuracy, clean images", Share.of(lenses.correct), cost)
    if lenses.mean_robustness is not None:
        mean, error = lenses.mean_robustness
        between = words.interval(*words.mean_interval(mean, error))
        name = f"predictions that survive noise, σ = {settings.sigma:g}"
        between = between if error > 0 else "no variation seen"
        yield name, words.percent(mean), between, _passes(passes["average-case"])
        name = "images whose prediction survives less than nine times in ten"
        yield row(name, Share.of(words.fragile(lenses)))
    if lenses.robust_share is not None:
        eps = words.eps_in_words(settings.eps)
        name = f"predictions unchanged by attacks up to ε = {eps}"
        yield row(name, lenses.robust_share)
    if lenses.robust_accuracy is not None:
        yield row("classified correctly, and so", lenses.robust_accuracy)
    if lenses.margins is not None:
        tau, between = "not defined", ""
        if (order := lenses.consistency) is not None:
            tau = f"{order.tau:.2f}"
            between = "{:.2f} to {:.2f}".format(*order.interval)
        name = "τ of logit margins and input margins"
        yield name, tau, between, _passes(passes["input margin"])


def _passes(cost: Passes) -> str:
    """Return forward and backward passes for each image."""
    backward = f" + {cost.backward:.0f}" if cost.backward else ""
    return f"{cost.forward:.0f}{backward}"


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
