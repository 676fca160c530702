"""The pictures of the page: SVG in the colors of its style sheet, and thumbnails."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.lenses import ThreeLenses
from robustbook.report._words import eps_in_words, shift_name
from robustbook.style import style_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Placeholder colors of the figures. On the page, variables of the style sheet replace
#: them, which differ between light and dark.
_COLORS: Final = {
    "ink": "#010203",
    "muted": "#040506",
    "line": "#070809",
    "blue": "#0a0b0c",
    "orange": "#0d0e0f",
    "paper": "#101112",
}
_STYLE: Final = {
    **dict.fromkeys(("text.color", "axes.labelcolor"), _COLORS["ink"]),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), _COLORS["ink"]),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), _COLORS["muted"]),
    "grid.color": _COLORS["line"],
    "savefig.bbox": None,
    "svg.fonttype": "none",
}
_METADATA: Final[Any] = ("Creator", "Date", "Format", "Type")

#: The size of a figure in inches, of 72 units each.
_SIZE: Final = (3.7, 3.1)
VIEW_BOX: Final = "0 0 {:.1f} {:.1f}".format(*(72 * side for side in _SIZE))

#: A dashed line for a reference value, and crosses for images that are worth a look.
_DASHED: Final[Any] = {"color": _COLORS["muted"], "lw": 1.2, "ls": (0, (4, 3))}
_CROSSES: Final[Any] = {"mew": 0.6, "mec": _COLORS["paper"]}

#: A prediction that survives noise with a smaller probability is called fragile.
FRAGILE: Final = 0.9
#: Points of a curve: more could not be seen.
_POINTS: Final = 240
#: The longest side of a thumbnail in pixels, and how many stand in a row.
SIDE: Final = 96
SHOWN: Final = 8


def _plot_agreements(lenses: ThreeLenses, ax: Axes) -> None:
    most, agreements = math.log(lenses.num_classes), lenses.agreements.values()
    values = np.array([agreement.pa for agreement in agreements])
    ends = np.array([agreement.interval() for agreement in agreements])
    hard = np.array([agreement.hard_part for agreement in agreements])
    rows, low = np.arange(len(values))[::-1], min(ends.min(), hard.min())
    ax.axvline(most, **_DASHED)
    _annotate(ax, "log K", (most, 1), ("data", "axes fraction"), "center")
    look: Any = {"ms": 6, "mew": 1.3, "mfc": _COLORS["paper"], "zorder": 2}
    ax.plot(hard, rows, "D", mec=_COLORS["muted"], label="hard part", **look)
    look = {"fmt": "o", "ms": 6.5, "color": _COLORS["blue"], "zorder": 3}
    ax.errorbar(values, rows, xerr=np.abs(ends.T - values), label="PA", **look)
    ax.set_yticks(rows, [shift_name(name) for name in lenses.agreements])
    ax.set_ylim(-0.6, len(values) - 0.4)
    room = 0.06 * (most - low) or 0.1
    ax.set_xlim(max(0.0, low - room) if low > 0 else -room, most + room)
    ax.set_xlabel("Posterior Agreement (nats)")
    ax.locator_params(axis="x", nbins=5)
    ax.grid(axis="y", visible=False)
    above: Any = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": 2}
    ax.legend(**above, borderaxespad=0.1, handletextpad=0.2, columnspacing=1.2)


def _plot_survival(lenses: ThreeLenses, ax: Axes) -> None:
    assert lenses.robustness is not None
    order = torch.argsort(lenses.robustness.probability, stable=True)
    total = len(order)
    places = np.unique(np.geomspace(1, total, min(total, _POINTS)).round().astype(int))
    chosen = order[torch.from_numpy(places - 1)]
    probability = lenses.robustness.probability[chosen].numpy()
    low, high = (side[chosen].numpy() for side in lenses.robustness.interval())
    ax.axhline(FRAGILE, **_DASHED)
    ax.fill_between(places, low, high, color=_COLORS["blue"], alpha=0.22, lw=0)
    ax.plot(places, probability, color=_COLORS["blue"], lw=1.8)
    if lenses.correct is not None and not lenses.correct[chosen].all():
        wrong = ~lenses.correct[chosen].numpy()
        look: Any = {"ms": 6.5, "mfc": _COLORS["orange"], "zorder": 3, **_CROSSES}
        ax.plot(places[wrong], probability[wrong], "X", label="misclassified", **look)
        ax.legend(loc="lower right", handletextpad=0.2)
    ax.set_xscale("log")
    # Plain numbers: 1, 10, 100 instead of powers of ten.
    ticks = [10**k for k in range(int(math.log10(total)) + 1)]
    ax.set_xticks(ticks, [f"{tick:d}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(0.9, 1.1 * total)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("images, the most fragile first")
    ax.set_ylabel("survives noise")


def _plot_margins(lenses: ThreeLenses, ax: Axes) -> None:
    assert lenses.margins is not None
    free = lenses.logit_margins[lenses.measured].numpy()
    measured = lenses.margins.numpy()
    finite, eps = np.isfinite(measured), lenses.settings.eps
    brittle = measured <= eps
    for kind, color, marker in ((~brittle, "blue", "o"), (brittle, "orange", "X")):
        x, y = free[finite & kind], measured[finite & kind]
        ax.plot(x, y, marker, ms=5.5, mfc=_COLORS[color], alpha=0.85, **_CROSSES)
    ax.axhline(eps, **_DASHED)
    name = f"ε = {eps_in_words(eps)}"
    _annotate(ax, name, (1, eps), ("axes fraction", "data"), "right")
    ax.set_ylim(0, 1.08 * max([eps, *measured[finite]]))
    ax.set_xlim(left=0)
    ax.set_xlabel("logit margin")
    ax.set_ylabel("input margin")


def _annotate(ax: Axes, text: str, point: Any, coordinates: Any, align: str) -> None:
    """Write a text just above a point."""
    above: Any = {"xytext": (0, 3), "textcoords": "offset points", "ha": align}
    ax.annotate(text, point, xycoords=coordinates, color=_COLORS["muted"], **above)


_PLOTS: Final = {
    "agreement": _plot_agreements,
    "average-case": _plot_survival,
    "margins": _plot_margins,
}


def figures(lenses: ThreeLenses) -> dict[str, str]:
    """Return the content of an SVG element for each lens that was measured."""
    return {name: _svg(_PLOTS[name], lenses) for name in _scores(lenses)}


def _svg(plot: Callable[[ThreeLenses, Axes], None], lenses: ThreeLenses) -> str:
    with extra("report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure  # pyplot would keep it open

    content, nameless = io.StringIO(), dict.fromkeys(_METADATA)
    # Another salt for each figure makes identifiers unique on the page.
    style: Any = style_parameters() | _STYLE | {"svg.hashsalt": plot.__name__}
    with mpl.rc_context(style):
        figure = Figure(figsize=_SIZE)
        plot(lenses, figure.subplots())
        figure.savefig(content, format="svg", metadata=nameless, transparent=True)
    # The first tag is of no use in a page; names of groups are those of other figures.
    _, _, body = content.getvalue().partition("<svg")[2].partition(">")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    for name, color in _COLORS.items():
        body = body.replace(color, f"var(--{name})")
    return body


def thumbnails(
    lenses: ThreeLenses, images: Tensor
) -> dict[str, list[tuple[int, float, str]]]:
    """Return position, score and picture of the most fragile images by each lens."""
    rows = {}
    for name, scores in _scores(lenses).items():
        order = torch.argsort(torch.nan_to_num(scores, nan=math.inf), stable=True)
        lowest = [k for k in order[:SHOWN].tolist() if not scores[k].isnan()]
        rows[name] = [(k, float(scores[k]), _png(images[k])) for k in lowest]
    return rows


def _scores(lenses: ThreeLenses) -> dict[str, Tensor]:
    """Return a score of each image (N,) by each lens that was measured.

    The smaller, the more fragile: nats, percent, and steps of 1/255; NaN is unknown.
    """
    known, scores = lenses.scores(), {}
    if lenses.agreements:
        shifts = [result.per_sample for result in lenses.agreements.values()]
        scores["agreement"] = torch.stack(shifts).mean(dim=0)
    if lenses.robustness is not None:
        scores["average-case"] = 100 * known["average-case"]
    if lenses.margins is not None:
        scores["margins"] = 255 * known["input margin"]
    return scores


def _png(image: Tensor) -> str:
    """Return a small PNG as data URI; one channel is ink on white, as in the book."""
    from PIL import Image

    pixels = image.detach().float().cpu().clamp(0, 1)
    if len(pixels) == 1:
        pixels = 1 - pixels.expand(3, -1, -1)
    levels = (255 * pixels).round().to(torch.uint8).permute(1, 2, 0)
    picture = Image.fromarray(np.ascontiguousarray(levels.numpy()))
    picture.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    content = io.BytesIO()
    picture.save(content, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
