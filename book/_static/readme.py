"""Draw the picture of the preface and of README: ``python book/_static/readme.py``.

Three networks of nearly the same accuracy, seen by Posterior Agreement, average-case
robustness and margin consistency, for light and dark pages, wide and narrow ones.
Nothing calls this script: run it when a checkpoint or a measure has changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robustbook.agreement import posterior_agreement
from robustbook.attacks import pgd
from robustbook.average_case import monte_carlo
from robustbook.datasets import load_dataset
from robustbook.margins import input_margin, logit_margin, margin_consistency
from robustbook.models import load_model, logits_of
from robustbook.scores import accuracy

FOLDER = Path(__file__).parent

# The sizes of attacks, the strength of noise, and how much is drawn of each.
ATTACKS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
SIGMA = 0.4
COPIES = 400
MEASURED = 250

NETWORKS = ("digits-cnn-s0", "digits-cnn-noise-s0", "digits-cnn-adv-s0")
LABELS = ("plain", "trained with noise", "trained against attacks")
MARKERS = ("o", "^", "v")


@dataclass(frozen=True)
class Page:
    """The colors of a page that is light or dark."""

    ending: str
    ink: str
    grid: str
    colors: tuple[str, str, str]

    def file(self, *, narrow: bool) -> Path:
        """Return where its picture is, for a wide or a narrow screen."""
        return FOLDER / f"readme{'-narrow' * narrow}{self.ending}.png"


PAGES = (
    Page("", "#22272e", "#e3e6ea", ("#0072B2", "#009E73", "#000000")),
    Page("-dark", "#d9dee4", "#39414b", ("#67bdf2", "#3fc79d", "#ffffff")),
)


@dataclass(frozen=True)
class Network:
    """What the three lenses say of one network."""

    accuracy: float
    #: Posterior Agreement for each of ATTACKS, and 1.96 standard errors.
    agreement: list[float]
    error: list[float]
    #: The share of noisy copies that keep the prediction, sorted.
    survival: NDArray[Any]
    #: Margins of the first MEASURED images, and Kendall's coefficient of the two.
    logit_margins: NDArray[Any]
    input_margins: NDArray[Any]
    tau: float


def measure() -> Iterator[Network]:
    """Look at each network through each lens."""
    test = load_dataset("digits", "test")
    for name in NETWORKS:
        model = load_model(name)
        clean = logits_of(model, test.images)
        agreements = []
        for eps in ATTACKS:
            images = test.images
            if eps:
                attack = pgd(model, images, eps=eps, steps=20, progress=False)
                images = attack.adversarial
            agreements.append(posterior_agreement(clean, logits_of(model, images)))
        survival = monte_carlo(model, test.images, SIGMA, samples=COPIES).probability
        far = input_margin(model, test.images[:MEASURED], progress=False).margins
        near = logit_margin(clean[:MEASURED])
        yield Network(
            accuracy=float(accuracy(clean, test.labels)),
            agreement=[float(a.pa) for a in agreements],
            error=[1.96 * float(a.standard_error) for a in agreements],
            survival=np.sort(survival.numpy()),
            logit_margins=near.numpy(),
            input_margins=far.numpy(),
            tau=float(margin_consistency(near, far).tau),
        )


def draw(networks: list[Network], page: Page, *, narrow: bool) -> Figure:
    """Draw three panels with one legend, on no ground; stacked for a telephone."""
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
        figure = Figure(
            figsize=(4.2, 9) if narrow else (7.9, 3.7), layout="constrained"
        )
        panels = figure.subplots(3, 1) if narrow else figure.subplots(1, 3)
        draw_agreement(panels[0], networks, page)
        draw_survival(panels[1], networks, page)
        draw_margins(panels[2], networks, page)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=1 if narrow else 3,
            columnspacing=1.2,
            handletextpad=0.5,
            title="accuracy on the test images",
        )
    return figure


def draw_agreement(ax: Axes, networks: list[Network], page: Page) -> None:
    for network, color, marker, label in zip(
        networks, page.colors, MARKERS, LABELS, strict=True
    ):
        ax.errorbar(
            ATTACKS,
            network.agreement,
            yerr=network.error,
            color=color,
            marker=marker,
            lw=2,
            ms=6,
            capsize=3,
            label=f"{label}: {100 * network.accuracy:.1f} %",
        )
    ax.axhline(math.log(10), color=page.ink, lw=1, ls="--")
    ax.set(
        title="Posterior Agreement\n",
        xlabel="size of the attack",
        ylabel="nats per image",
        ylim=(0, 2.45),
    )
    question(ax, "What survives a shift?")


def draw_survival(ax: Axes, networks: list[Network], page: Page) -> None:
    for network, color, marker in zip(networks, page.colors, MARKERS, strict=True):
        share = np.linspace(0, 100, len(network.survival))
        step = len(share) // 6
        ax.plot(
            share,
            network.survival,
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
    question(ax, "Does it outlast noise?")


def draw_margins(ax: Axes, networks: list[Network], page: Page) -> None:
    for network, color, marker in zip(networks, page.colors, MARKERS, strict=True):
        # Each network has its own unit of logits: show the order only.
        order = network.logit_margins.argsort().argsort()
        rank = 100 * order / (len(order) - 1)
        far = np.minimum(network.input_margins, 0.45)
        ax.plot(rank, far, marker, color=color, ms=3.2, alpha=0.45, mec="none")
        ax.annotate(
            f"τ = {network.tau:.2f}",
            (1.0, float(np.median(network.input_margins))),
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
    question(ax, "Does it know its limits?")


def question(ax: Axes, text: str) -> None:
    ax.text(
        0, 1.03, text, transform=ax.transAxes, ha="left", va="bottom", fontsize=10.5
    )


if __name__ == "__main__":
    networks = list(measure())
    for page, narrow in itertools.product(PAGES, (False, True)):
        draw(networks, page, narrow=narrow).savefig(
            page.file(narrow=narrow),
            dpi=160,
            transparent=True,
            metadata={"Software": None},
        )
