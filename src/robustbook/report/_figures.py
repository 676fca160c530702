"""The figures of the page: SVG in the colors of its style sheet, and thumbnails."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robustbook._checks.extras import extra
from robustbook.average_case import Robustness
from robustbook.lenses import ThreeLenses
from robustbook.margins import InputMargins
from robustbook.report import _words as words
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

#: Points of a curve: more could not be seen.
_POINTS: Final = 240

#: A dashed line for a reference value.
_DASHED: Final[Any] = {"color": _COLORS["muted"], "lw": 1.2, "ls": (0, (4, 3))}
_CROSSES: Final[Any] = {"mew": 0.6, "mec": _COLORS["paper"]}


def figures(lenses: ThreeLenses) -> list[dict[str, str]]:
    """Return title, caption and SVG of a figure for each lens that was measured."""
    shown = []
    if lenses.agreements:
        shown.append(_agreements(lenses))
    if lenses.robustness:
        shown.append(_survival(lenses, lenses.robustness))
    if lenses.margins:
        shown.append(_margins(lenses, lenses.margins))
    return shown


# --- agreement under each shift ---------------------------------------------------


def _agreements(lenses: ThreeLenses) -> dict[str, str]:
    most, names = math.log(lenses.num_classes), list(lenses.agreements)
    agreements = lenses.agreements.values()
    values = np.array([agreement.pa for agreement in agreements])
    ends = np.array([agreement.interval() for agreement in agreements])
    hard = np.array([agreement.hard_part for agreement in agreements])
    low = min(ends.min(), hard.min())
    rows = np.arange(len(names))[::-1]

    def draw(ax: Axes) -> None:
        ax.axvline(most, **_DASHED)
        _annotate(ax, "log K", (most, 1), ("data", "axes fraction"), "center")
        look: Any = {"ms": 6, "mew": 1.3, "mfc": _COLORS["paper"], "zorder": 2}
        ax.plot(hard, rows, "D", mec=_COLORS["muted"], label="hard part", **look)
        look = {"fmt": "o", "ms": 6.5, "color": _COLORS["blue"], "zorder": 3}
        ax.errorbar(values, rows, xerr=np.abs(ends.T - values), label="PA", **look)
        ax.set_yticks(rows, [words.shift_name(name) for name in names])
        ax.set_ylim(-0.6, len(names) - 0.4)
        room = 0.06 * (most - low) or 0.1
        ax.set_xlim(max(0.0, low - room) if low > 0 else -room, most + room)
        ax.set_xlabel("Posterior Agreement (nats)")
        ax.locator_params(axis="x", nbins=5)
        ax.grid(axis="y", visible=False)
        above: Any = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": 2}
        ax.legend(**above, borderaxespad=0.1, handletextpad=0.2, columnspacing=1.2)

    worst = names[int(values.argmin())]
    title = "What each shift leaves of agreement"
    alternative = (
        f"{title}. Posterior Agreement under {len(names)} shifts lies between "
        f"{values.min():.2f} nats ({words.shift_name(worst)}) and {values.max():.2f}; "
        f"log K is {most:.2f}."
    )
    caption = (
        "Dots: Posterior Agreement with 95 % intervals. Diamonds: its hard part, from "
        "the predictions alone. Dashed: as much as there can be."
    )
    return {"title": title, "caption": caption, "svg": _svg(draw, "a", alternative)}


# --- average-case robustness of each image -----------------------------------------


def _survival(lenses: ThreeLenses, robustness: Robustness) -> dict[str, str]:
    order = torch.argsort(robustness.probability, stable=True)
    total = len(order)
    places = np.unique(np.geomspace(1, total, min(total, _POINTS)).round().astype(int))
    chosen = order[torch.from_numpy(places - 1)]
    probability = robustness.probability[chosen].numpy()
    low, high = (side[chosen].numpy() for side in robustness.interval())
    correct = lenses.correct

    def draw(ax: Axes) -> None:
        ax.axhline(words.FRAGILE, **_DASHED)
        ax.fill_between(places, low, high, color=_COLORS["blue"], alpha=0.22, lw=0)
        ax.plot(places, probability, color=_COLORS["blue"], lw=1.8)
        if correct is not None:
            wrong = ~correct[chosen].numpy()
            look: Any = {"ms": 6.5, "mfc": _COLORS["orange"], "zorder": 3, **_CROSSES}
            ax.plot(
                places[wrong], probability[wrong], "X", label="misclassified", **look
            )
            if wrong.any():
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

    count = int(words.fragile(lenses).sum())
    least = words.percent(float(robustness.probability.min()))
    title = "How often each prediction survives noise"
    alternative = (
        f"{title}, images in rising order, from {least}. {count} of {total} "
        "are below nine times in ten."
    )
    marks = " Crosses: misclassified without noise." if correct is not None else ""
    caption = (
        f"Estimates from {lenses.settings.noise_samples} noisy copies each, with 95 % "
        f"intervals. Dashed: nine times in ten.{marks}"
    )
    return {"title": title, "caption": caption, "svg": _svg(draw, "b", alternative)}


# --- the two margins ---------------------------------------------------------------


def _margins(lenses: ThreeLenses, margins: InputMargins) -> dict[str, str]:
    free = lenses.logit_margins[lenses.measured].numpy()
    measured = margins.margins.double().cpu().numpy()
    finite = np.isfinite(measured)
    eps = lenses.settings.eps
    brittle = measured <= eps

    def draw(ax: Axes) -> None:
        for kind, color, marker in ((~brittle, "blue", "o"), (brittle, "orange", "X")):
            x, y = free[finite & kind], measured[finite & kind]
            ax.plot(x, y, marker, ms=5.5, mfc=_COLORS[color], alpha=0.85, **_CROSSES)
        ax.axhline(eps, **_DASHED)
        name = f"ε = {words.eps_in_words(eps)}"
        _annotate(ax, name, (1, eps), ("axes fraction", "data"), "right")
        top = max([eps, *measured[finite]])
        ax.set_ylim(0, 1.08 * top)
        ax.set_xlim(left=0)
        ax.set_xlabel("logit margin")
        ax.set_ylabel("input margin")

    order = lenses.consistency
    title = "Does the free margin tell the measured one?"
    tau = "" if order is None else f" Kendall's τ is {order.tau:.2f}."
    alternative = (
        f"{title} Input margin against logit margin of {len(measured)} images; "
        f"{int(brittle.sum())} input margins are at most ε.{tau}"
    )
    unknown = int((~finite).sum())
    left_out = f" Of {unknown} images no attack changed the prediction." * bool(unknown)
    shown = "" if order is None else f" τ = {order.tau:.2f}."
    caption = (
        f"{len(measured)} images, drawn at random; input margins are upper bounds, in "
        f"units where a pixel lies in [0, 1].{shown} Crosses: a change within ε was "
        f"found.{left_out}"
    )
    return {"title": title, "caption": caption, "svg": _svg(draw, "c", alternative)}


def _annotate(ax: Axes, text: str, point: Any, coordinates: Any, align: str) -> None:
    """Write a text just above a point."""
    above: Any = {"xytext": (0, 3), "textcoords": "offset points", "ha": align}
    ax.annotate(text, point, xycoords=coordinates, color=_COLORS["muted"], **above)


# --- SVG ---------------------------------------------------------------------------


def _style() -> dict[str, Any]:
    values = {
        _COLORS["ink"]: "text.color axes.labelcolor legend.labelcolor xtick.labelcolor "
        "ytick.labelcolor",
        _COLORS["muted"]: "axes.edgecolor xtick.color ytick.color",
        _COLORS["line"]: "grid.color",
        "none": "axes.facecolor figure.facecolor savefig.facecolor svg.fonttype",
        11: "font.size axes.labelsize",
        10.5: "legend.fontsize xtick.labelsize ytick.labelsize",
        None: "savefig.bbox",
    }
    settings = {key: value for value, keys in values.items() for key in keys.split()}
    return style_parameters() | settings


def _svg(draw: Any, prefix: str, alternative: str) -> str:
    """Return a drawing as an SVG element that can stand beside others.

    Without pyplot, so that no figure stays open in a notebook.
    """
    with extra("report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas

    content = io.StringIO()
    style: Any = _style()
    with mpl.rc_context(style):
        figure = Canvas(figsize=(3.5, 2.95))
        draw(figure.subplots())
        figure.savefig(content, format="svg", metadata={"Date": None})
    return _inline(content.getvalue(), prefix, alternative)


def _inline(text: str, prefix: str, alternative: str) -> str:
    body = text[text.index("<svg") : text.rindex("</svg>")]
    head, _, body = body.partition(">")
    box = re.search(r'viewBox="([^"]*)"', head)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    # Identifiers are unique on the page, and groups need none.
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'xlink:href="#([^"]*)"', rf'href="#{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r"(font: [\d.]+px) [^;\"]*", r"\1 var(--sans)", body)
    for name, color in _COLORS.items():
        body = body.replace(color, f"var(--{name})")
    body = re.sub(r">\s+<", ">\n<", body).strip()
    return (
        f'<svg viewBox="{box.group(1) if box else "0 0 252 212"}" role="img" '
        f'aria-label="{escape(alternative)}">\n{body}\n</svg>'
    )


#: Images in a row, and the longest side of one, in pixels.
SHOWN: Final = 8
SIDE: Final = 96


def fragile_rows(
    lenses: ThreeLenses, images: Tensor, positions: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the most fragile images (N, C, H, W) by each lens that was measured.

    For each lens, its title, an explanation of the scores, and the images.
    """
    scores = lenses.scores()
    rows = []

    def add(title: str, explanation: str, score: Tensor, form: str) -> None:
        thumbnails = []
        for index in words.lowest(score, SHOWN):
            number = form.format(float(score[index]))
            number = number.replace("-", "−").replace("inf", "∞")
            shown = _thumbnail(lenses, images[index], index, positions[index])
            thumbnails.append(shown | {"score": number})
        row = {"title": title, "explanation": explanation, "thumbnails": thumbnails}
        rows.append(row)

    if lenses.agreements:
        shifts = torch.stack(
            [result.per_sample for result in lenses.agreements.values()]
        )
        text = "contribution to it in nats, mean over the shifts"
        add("Posterior Agreement", text, shifts.mean(dim=0), "{:.2f}")
    if lenses.robustness is not None:
        text, share = "how often the prediction survives noise", scores["average-case"]
        add("Average case", text, share * 100, "{:.1f}\N{NO-BREAK SPACE}%")
    if lenses.margins is not None:
        text = f"input margin in steps of 1/255, of the {len(lenses.measured)} measured"
        text += f"; ε is {words.eps_in_words(lenses.settings.eps)}"
        add("Margins", text, scores["input margin"] * 255, "{:.1f}")
    return rows


def _thumbnail(
    lenses: ThreeLenses, image: Tensor, index: int, position: int
) -> dict[str, Any]:
    """Return a PNG as data URI, its prediction and its alternative text."""
    predicted = int(lenses.logits[index].argmax())
    says, wrong = f"says {predicted}", False
    alternative = f"Image {position}, predicted class {predicted}"
    if lenses.labels is not None:
        true = int(lenses.labels[index])
        wrong = true != predicted
        alternative += f", true class {true}"
        if wrong:
            says += f", is {true}"
    return {
        "source": _png(image),
        "alternative": f"{alternative}.",
        "says": says,
        "wrong": wrong,
    }


def _png(image: Tensor) -> str:
    """Return a small PNG as data URI; one channel is ink on white, as in the book."""
    from matplotlib.image import imsave

    pixels = image.detach().float().cpu()
    larger = max(pixels.shape[1:])
    if larger > SIDE:
        height, width = (max(1, side * SIDE // larger) for side in pixels.shape[1:])
        pixels = functional.interpolate(pixels[None], (height, width), mode="area")[0]
    if len(pixels) == 1:
        pixels = 1 - pixels.expand(3, -1, -1)
    array = (255 * pixels.clamp(0, 1)).round().to(torch.uint8).permute(1, 2, 0)
    content = io.BytesIO()
    # Without the software's name and version, the bytes are the same everywhere.
    nameless: Any = {"Software": None}
    imsave(
        content,
        np.ascontiguousarray(array.numpy()),
        format="png",
        metadata=nameless,
        pil_kwargs={"optimize": True},
    )
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
