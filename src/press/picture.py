"""The picture of the preface and of README: what each lens sees that accuracy does not.

Three networks of nearly the same accuracy, seen by Posterior Agreement, average-case
robustness and margin consistency. It is computed from committed checkpoints, once for a
light and once for a dark page. Each file carries the hash of what it was drawn from, so
that whether it is in step can be told without drawing it again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .source import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["picture_paths", "stale_pictures", "write_pictures"]

#: The networks, by name in data/checkpoints.
NETWORKS: Final = ("digits-cnn-s0", "digits-cnn-noise-s0", "digits-cnn-adv-s0")

#: The sizes of attacks, the strength of noise, and how much is drawn of each.
ATTACKS: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
SIGMA: Final = 0.4
COPIES: Final = 400
MEASURED: Final = 250

_STAMP = "robustbook"


@dataclass(frozen=True)
class _Page:
    """The colors of a page that is light or dark."""

    file: str
    ink: str
    grid: str
    colors: tuple[str, str, str]


_PAGES: Final = (
    _Page("readme.png", "#22272e", "#e3e6ea", ("#0072B2", "#009E73", "#000000")),
    _Page("readme-dark.png", "#d9dee4", "#39414b", ("#67bdf2", "#3fc79d", "#ffffff")),
)
_MARKERS: Final = ("o", "^", "v")
_LABELS: Final = ("plain", "trained with noise", "trained against attacks")


def picture_paths(root: Path) -> list[Path]:
    """Return where the pictures are: the light and the dark one."""
    return [root / "book" / "_static" / page.file for page in _PAGES]


def _source_sha256(root: Path) -> str | None:
    """Hash what the pictures are made from; None where a checkpoint is not here."""
    registry = root / "data" / "checkpoints" / "registry.json"
    if not registry.is_file():
        return None
    entries = json.loads(registry.read_text(encoding="utf-8"))["checkpoints"]
    if not set(NETWORKS) <= set(entries):
        return None
    total = hashlib.sha256(Path(__file__).read_bytes())
    for name in NETWORKS:
        total.update(entries[name]["sha256"].encode())
    return total.hexdigest()


def _stamp(path: Path) -> str | None:
    """Read the stamp of a PNG file from its text chunks."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    position = 8
    while position + 8 <= len(content):
        (length,) = struct.unpack(">I", content[position : position + 4])
        kind = content[position + 4 : position + 8]
        key, _, text = content[position + 8 : position + 8 + length].partition(b"\0")
        if kind == b"tEXt" and key == _STAMP.encode():
            return text.decode("latin-1")
        position += length + 12
    return None


def stale_pictures(root: Path) -> list[Path]:
    """Return the pictures that are not in step with this file and the checkpoints."""
    expected = _source_sha256(root)
    if expected is None:
        return []
    return [path for path in picture_paths(root) if _stamp(path) != expected]


def write_pictures(root: Path) -> list[Path]:
    """Draw the pictures that are not in step; return those that changed."""
    stale = stale_pictures(root)
    if not stale:
        return []
    measured = list(_measure())
    stamp = _source_sha256(root)
    written = []
    for page in _PAGES:
        buffer = BytesIO()
        _draw(measured, page).savefig(
            buffer,
            format="png",
            dpi=160,
            transparent=True,
            metadata={"Software": None, _STAMP: stamp},
        )
        path = root / "book" / "_static" / page.file
        if write_bytes(path, buffer.getvalue()):
            written.append(path)
    return written


@dataclass(frozen=True)
class _Seen:
    """What the three lenses see of one network.

    Attributes
    ----------
    accuracy : float
        On clean images.
    agreement, error : list of float
        Posterior Agreement for each of ATTACKS, and 1.96 standard errors.
    survival : array, shape (N,)
        The share of noisy copies that keep the prediction, sorted.
    logit_margins, input_margins : array, shape (MEASURED,)
        Of the first images.
    tau : float
        Kendall's coefficient of the two.
    """

    accuracy: float
    agreement: list[float]
    error: list[float]
    survival: NDArray[Any]
    logit_margins: NDArray[Any]
    input_margins: NDArray[Any]
    tau: float


def _measure() -> Iterator[_Seen]:
    """Look at each network through each lens."""
    import numpy as np

    from robustbook.agreement import posterior_agreement
    from robustbook.attacks import pgd
    from robustbook.average_case import monte_carlo
    from robustbook.datasets import load_dataset
    from robustbook.margins import input_margin, logit_margin, margin_consistency
    from robustbook.models import load_model, logits_of
    from robustbook.scores import accuracy

    test = load_dataset("digits", "test")
    for name in NETWORKS:
        model = load_model(name)
        clean = logits_of(model, test.images)
        agreements = []
        for eps in ATTACKS:
            attacked = test.images
            if eps:
                found = pgd(model, attacked, eps=eps, steps=20, progress=False)
                attacked = found.adversarial
            agreements.append(posterior_agreement(clean, logits_of(model, attacked)))
        kept = monte_carlo(model, test.images, SIGMA, samples=COPIES)
        far = input_margin(model, test.images[:MEASURED], progress=False).margins
        near = logit_margin(clean[:MEASURED])
        yield _Seen(
            accuracy=float(accuracy(clean, test.labels)),
            agreement=[float(a.pa) for a in agreements],
            error=[1.96 * float(a.standard_error) for a in agreements],
            survival=np.sort(kept.probability.numpy()),
            logit_margins=near.numpy(),
            input_margins=far.numpy(),
            tau=float(margin_consistency(near, far).tau),
        )


def _draw(measured: list[_Seen], page: _Page) -> Figure:
    """Draw three panels with one legend, on no ground."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "text.color": page.ink,
        "axes.labelcolor": page.ink,
        "axes.edgecolor": page.ink,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10.8,
        "axes.titleweight": "bold",
        "grid.color": page.grid,
        "xtick.color": page.ink,
        "ytick.color": page.ink,
        "legend.frameon": False,
        "legend.fontsize": 11,
        "legend.title_fontsize": 11,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.9, 3.7), layout="constrained")
        panels = figure.subplots(1, 3)
        _draw_agreement(panels[0], measured, page)
        _draw_survival(panels[1], measured, page)
        _draw_margins(panels[2], measured, page)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=3,
            columnspacing=1.2,
            handletextpad=0.5,
            title="accuracy on the test images",
        )
    return figure


def _draw_agreement(ax: Axes, measured: list[_Seen], page: _Page) -> None:
    import math

    for seen, color, marker, label in zip(
        measured, page.colors, _MARKERS, _LABELS, strict=True
    ):
        ax.errorbar(
            ATTACKS,
            seen.agreement,
            yerr=seen.error,
            color=color,
            marker=marker,
            lw=2,
            ms=6,
            capsize=3,
            label=f"{label}: {100 * seen.accuracy:.1f} %",
        )
    ax.axhline(math.log(10), color=page.ink, lw=1, ls="--")
    ax.set(
        title="Posterior Agreement\n",
        xlabel="size of the attack",
        ylabel="nats per image",
        ylim=(0, 2.45),
    )
    _question(ax, "What survives a shift?")


def _draw_survival(ax: Axes, measured: list[_Seen], page: _Page) -> None:
    import numpy as np

    for seen, color, marker in zip(measured, page.colors, _MARKERS, strict=True):
        share = np.linspace(0, 100, len(seen.survival))
        step = len(share) // 6
        ax.plot(
            share,
            seen.survival,
            color=color,
            marker=marker,
            markevery=(step // 2, step),
            lw=2,
            ms=6,
        )
    ax.set(
        title="Average-case robustness\n",
        xlabel="images, weakest first (%)",
        ylabel="noise that it survives",
        ylim=(0, 1.04),
    )
    _question(ax, "Does it outlast noise?")


def _draw_margins(ax: Axes, measured: list[_Seen], page: _Page) -> None:
    import numpy as np

    for seen, color, marker in zip(measured, page.colors, _MARKERS, strict=True):
        # Each network has its own unit of logits: show the order only.
        order = seen.logit_margins.argsort().argsort()
        rank = 100 * order / (len(order) - 1)
        far = np.minimum(seen.input_margins, 0.45)
        ax.plot(rank, far, marker, color=color, ms=3.2, alpha=0.45, mec="none")
        ax.annotate(
            f"τ = {seen.tau:.2f}",
            (1.0, float(np.median(seen.input_margins))),
            xycoords=("axes fraction", "data"),
            xytext=(2, 0),
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=11,
            annotation_clip=False,
        )
    ax.set(
        title="Margin consistency\n",
        xlabel="logit margin, rank (%)",
        ylabel="distance to the border",
        ylim=(0, None),
    )
    _question(ax, "Does it know its limits?")


def _question(ax: Axes, text: str) -> None:
    ax.text(
        0, 1.03, text, transform=ax.transAxes, ha="left", va="bottom", fontsize=10.5
    )
