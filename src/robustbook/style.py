"""One figure style for the whole book, and the few plots that recur.

Importing this module changes nothing: matplotlib is imported and configured only
when :func:`use_style` or a helper is called.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._checks.extras import extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

__all__ = [
    "COLORS",
    "LABELS",
    "MARKERS",
    "PALETTE",
    "band",
    "color_of",
    "image_grid",
    "image_rows",
    "label_of",
    "mark_maximum",
    "marker_of",
    "style_parameters",
    "use_style",
]

#: The palette of Okabe and Ito (2008), which people with any of the common
#: forms of color blindness can tell apart. The yellow is left for fills: it is
#: too light for a line on white.
PALETTE: Final[Mapping[str, str]] = MappingProxyType({
    "black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73",
    "yellow": "#F0E442", "blue": "#0072B2", "vermilion": "#D55E00",
    "purple": "#CC79A7", "gray": "#666666",
})  # fmt: skip


@dataclass(frozen=True)
class _Look:
    """How a role or a model is shown; its color is a name in :data:`PALETTE`."""

    color: str
    marker: str = ""
    label: str = ""


# One line for each role and each model, the same in every chapter. Models that share a
# figure differ in color and in marker, so that color is never the only cue; labels are
# for legends and tables, short enough for a phone.
_LOOKS: Final = {
    # roles
    "clean": _Look("blue", "o"),
    "shifted": _Look("vermilion", "s"),
    "pa": _Look("blue", "o"),
    "accuracy": _Look("orange", "s"),
    "shifted_accuracy": _Look("orange", "s"),
    "same_answer_rate": _Look("green", "^"),
    "bound": _Look("gray"),
    "adam": _Look("purple", "v"),
    "hard": _Look("sky", "D"),
    "confidence": _Look("purple", "P"),
    "curve": _Look("black"),
    "muted": _Look("gray"),
    "undefended": _Look("blue", "o"),
    # the three classifiers of the first chapter
    "perfect": _Look("green", "o"),
    "constant": _Look("sky", "s"),
    "random": _Look("vermilion", "X"),
    # trained by this project
    "linear": _Look("orange", "s", "logistic regression"),
    "cnn": _Look("blue", "o", "CNN"),
    "cnn-noise": _Look("green", "^", "CNN, noise"),
    "cnn-adv": _Look("black", "v", "CNN, PGD"),
    "preact-adv": _Look("black", "v", "PreAct, PGD"),
    **{
        f"cnn-grad{weight}": _Look("sky", "D", f"CNN, λ = {float(weight):g}")
        for weight in ("1e-4", "1e-3", "1e-2", "1e-1", "1")
    },
    # a plain model behind a weak defense
    "jpeg-rs": _Look("vermilion", "X", "JPEG + RS"),
    # public, undefended
    "resnet20": _Look("blue", "o", "undefended"),
    **{f"resnet{n}": _Look("blue", "o", f"ResNet-{n}") for n in (32, 44, 56)},
    "advertorch_lenet5_clean": _Look("blue", "o", "LeNet-5, clean"),
    "captum_lenet": _Look("vermilion", "X", "LeNet, clean"),
    "conv_small_nat": _Look("sky", "D", "small CNN, clean"),
    "marabou_small": _Look("sky", "D", "tiny CNN, clean"),
    "marabou_medium": _Look("sky", "D", "CNN, clean"),
    "marabou_large": _Look("vermilion", "X", "large CNN, clean"),
    # public, trained against attacks
    "advertorch_lenet5_adv": _Look("green", "^", "LeNet-5, adv"),
    "cnn_a_adv": _Look("orange", "s", "CNN-A, adv"),
    "cnn_a_adv4": _Look("orange", "s", "CNN-A, adv 4"),
    "cnn_a_adv_alt": _Look("sky", "D", "CNN-A, adv alt"),
    "cnn_a_mix": _Look("orange", "s", "CNN-A, mix"),
    "cnn_a_mix4": _Look("sky", "D", "CNN-A, mix 4"),
    "conv_small_pgd": _Look("black", "v", "small CNN, PGD"),
    "madry_tiny_adv": _Look("black", "v", "tiny CNN, PGD"),
    "resnet2b_adv": _Look("green", "^", "ResNet-2b, adv"),
    "resnet4b_adv": _Look("green", "^", "ResNet-4b, adv"),
    # public, with a proof
    "kw": _Look("purple", "P", "CNN, KW"),
    "oval_wide_kw": _Look("purple", "P", "wide CNN, KW"),
}


def _looks(part: str) -> Mapping[str, str]:
    values = {name: getattr(look, part) for name, look in _LOOKS.items()}
    return MappingProxyType({name: value for name, value in values.items() if value})


#: One marker for each model, and for the roles that are drawn as points.
MARKERS: Final = _looks("marker")
#: What a model is called in legends and tables.
LABELS: Final = _looks("label")
#: One color for each role and each model.
COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {name: PALETTE[color] for name, color in _looks("color").items()}
)

_SETS: Final = {
    "digits": "digits", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100",
}  # fmt: skip

_CYCLE: Final = ("blue", "vermilion", "green", "orange", "purple", "sky", "black")

_DATASETS: Final = re.compile("^(digits|mnist|fashion(-mnist)?|cifar10)-")
_SEED: Final = re.compile(r"(?<=.)-s\d+$")


def color_of(name: str) -> str:
    """Return the color of a role or of a model, whatever its data set and seed.

    Parameters
    ----------
    name : str
        A role ("clean", "pa", ...) or a model name ("digits-cnn-s3"). A model
        behind a defense ("digits-cnn-s3+jpeg-rs") has the color of the defense.
        Another name is a KeyError.

    Examples
    --------
    >>> color_of("digits-cnn-s3") == COLORS["cnn"]
    True
    """
    return _reserved(COLORS, name, "color")


def marker_of(name: str) -> str:
    """Return the matplotlib marker of a role or of a model, as :func:`color_of`.

    Examples
    --------
    >>> marker_of("digits-linear")
    's'
    """
    return _reserved(MARKERS, name, "marker")


def label_of(name: str) -> str:
    """Return what a model, or a data set, is called in legends and tables.

    Examples
    --------
    >>> label_of("digits-cnn-adv-s0"), label_of("cifar10-marabou_large+jpeg-rs")
    ('CNN, PGD', 'JPEG + RS')
    >>> label_of("cifar10")
    'CIFAR-10'
    """
    return _SETS.get(name) or _reserved(LABELS, name, "label")


def _reserved(table: Mapping[str, str], name: str, what: str) -> str:
    """Look up a name, or it without the data set, the seed, and what is defended."""
    bare = _SEED.sub("", _DATASETS.sub("", name.rpartition("+")[2]))
    for key in (name, bare):
        if key in table:
            return table[key]
    raise KeyError(
        f"no {what} is reserved for {name!r}; known names: {', '.join(sorted(table))}"
    )


def style_parameters() -> dict[str, Any]:
    """Return the matplotlib parameters of the book, which :func:`use_style` sets.

    Examples
    --------
    >>> style_parameters()["figure.figsize"]
    (5.8, 3.6)
    """
    with extra("plot"):
        from cycler import cycler

    white = ("axes.facecolor", "figure.facecolor", "savefig.facecolor")
    return {
        # At this width letters are 9 px high on a telephone, 350 px wide.
        "figure.figsize": (5.8, 3.6),
        "figure.dpi": 144, "savefig.dpi": 144, "savefig.bbox": "tight",
        "figure.constrained_layout.use": True,
        **dict.fromkeys(white, "white"),
        "axes.edgecolor": "#444444", "axes.labelcolor": "#222222",
        "xtick.color": "#444444", "ytick.color": "#444444",
        "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlelocation": "left", "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=[PALETTE[name] for name in _CYCLE]),
        "axes.grid": True, "grid.color": "#E2E2E2", "grid.linewidth": 0.8,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
        "mathtext.fontset": "dejavusans",
        "font.size": 12, "axes.labelsize": 12, "axes.titlesize": 12.5,
        "figure.titlesize": 13, "legend.fontsize": 11,
        "xtick.labelsize": 11, "ytick.labelsize": 11,
        "legend.frameon": False, "errorbar.capsize": 3.0,
        "lines.linewidth": 2.0, "lines.markersize": 6.0,
        "image.cmap": "gray_r", "image.interpolation": "nearest",
        "svg.hashsalt": "robustbook",
    }  # fmt: skip


def use_style() -> None:
    """Configure matplotlib for the book: call once, at the top of a chapter.

    In Jupyter, PNG figures are written without the name and version of the
    software, so that two runs give the same bytes.
    """
    with extra("chapters"):
        import matplotlib as mpl
        import seaborn as sns

    sns.set_theme(style="white", rc=style_parameters())
    parameters: Any = style_parameters()
    mpl.rcParams.update(parameters)  # rcParams that seaborn's theme does not pass on
    _strip_notebook_metadata()


def _strip_notebook_metadata() -> None:
    try:
        from IPython.core.getipython import get_ipython
        from matplotlib_inline.config import InlineBackend
    except ImportError:
        return
    shell = get_ipython()
    if shell is None:
        return
    backend = InlineBackend.instance(parent=shell)
    options: dict[str, Any] = dict(backend.print_figure_kwargs)
    options["metadata"] = {**options.get("metadata", {}), "Software": None}
    with warnings.catch_warnings():  # matplotlib-inline observes in an old way
        warnings.simplefilter("ignore", DeprecationWarning)
        backend.print_figure_kwargs = options


def band(
    ax: Axes,
    x: npt.ArrayLike | Tensor,
    y: npt.ArrayLike | Tensor,
    err: npt.ArrayLike | Tensor,
    *,
    color: str,
    label: str | None = None,
    marker: str | None = "o",
    alpha: float = 0.2,
    **line: Any,
) -> None:
    """Draw a line with a band around it, ``y - err`` to ``y + err``.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    x, y, err : array_like or Tensor, shape (n,)
        Abscissae, values, and half widths of the band. `err` may be one number, or
        of shape (2, n) for widths below and above, as ``Axes.errorbar`` takes them.
    color, label, marker, **line
        Of the line, as ``Axes.plot`` takes them; `alpha` is the band's opacity.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> band(ax, [0, 1], [1.0, 2.0], 0.1, color=COLORS["pa"], label="PA")
    >>> len(ax.lines), len(ax.collections)
    (1, 1)
    """
    x, y, err = _floats("x", x), _floats("y", y), _floats("err", err)
    below, above = err if err.ndim == 2 else (err, err)
    ax.fill_between(x, y - below, y + above, color=color, alpha=alpha, linewidth=0)
    ax.plot(x, y, color=color, label=label, marker=marker, **line)


def _floats(name: str, values: Any) -> npt.NDArray[np.float64]:
    from robustbook._checks.arguments import as_tensor  # imports torch

    return as_tensor(name, values).double().cpu().numpy()


def mark_maximum(
    ax: Axes,
    x: float,
    y: float,
    *,
    label: str,
    color: str = COLORS["shifted"],
    offset: tuple[float, float] = (10.0, 10.0),
) -> None:
    """Mark a point, usually the maximum of a curve, and write beside it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    x, y : float
        The point, in data coordinates.
    label, color : str
        What to write, and the color of the mark and the words.
    offset : (float, float), default (10, 10)
        Place of the words, in points from the mark.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> mark_maximum(ax, 1.0, 2.0, label="PA")
    >>> [text.get_text() for text in ax.texts]
    ['PA']
    """
    mark: dict[str, Any] = {"markersize": 8, "markeredgecolor": "white", "zorder": 5}
    ax.plot([x], [y], marker="o", color=color, linestyle="none", **mark)
    place: dict[str, Any] = {"xytext": offset, "textcoords": "offset points"}
    place["ha"] = "left" if offset[0] >= 0 else "right"
    place["va"] = "bottom" if offset[1] >= 0 else "top"
    ax.annotate(label, (x, y), color=color, **place)


def image_grid(
    images: npt.ArrayLike | Tensor,
    *,
    titles: Sequence[str] | None = None,
    row_labels: Sequence[str] | None = None,
    columns: int = 8,
    size: float = 0.9,
) -> Figure:
    """Show images in rows and columns, in a figure made with pyplot.

    Parameters
    ----------
    images : array_like or Tensor, shape (n, C, H, W) or (n, H, W)
        Images in [0, 1], or from 0 to 255 if their type is uint8, with C = 1
        (shown as ink on white) or 3.
    titles, row_labels : sequence of str, optional
        A title for each image, and a label in front of each row.
    columns, size : int, float
        Images in a row, and the side of an image in inches.

    Raises
    ------
    TypeError, ValueError
        If the images have another type or shape, or the labels another number.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> fig = image_grid(np.zeros((6, 1, 8, 8)), columns=3)
    >>> len(fig.axes)
    6
    >>> plt.close(fig)
    """
    pixels = _pixels("images", images)
    plt = _pyplot(columns)
    rows = -(-len(pixels) // columns)
    wanted = {"titles": (titles, len(pixels)), "row_labels": (row_labels, rows)}
    for name, (labels, expected) in wanted.items():
        if labels is not None and len(labels) != expected:
            raise ValueError(f"{name}: expected {expected} labels, got {len(labels)}")
    extra_height = 0.3 if titles is not None else 0.05
    width = columns * size + (1.1 if row_labels is not None else 0.0)
    figsize = (width, rows * (size + extra_height))
    fig, axes = plt.subplots(rows, columns, figsize=figsize, squeeze=False)
    for index, ax in enumerate(axes.flat):
        if index >= len(pixels):
            ax.remove()
            continue
        _show_image(ax, pixels[index])
        if titles is not None:
            ax.set_title(titles[index], fontsize=11, loc="center")
        if row_labels is not None and index % columns == 0:
            _label_row(ax, row_labels[index // columns])
    return fig


def image_rows(
    rows: Sequence[tuple[str, Sequence[str], npt.ArrayLike | Tensor]],
    *,
    columns: int = 6,
    size: float = 0.95,
) -> Figure:
    """Show groups of images, each group under its name and in rows of its own.

    Parameters
    ----------
    rows : sequence of (str, sequence of str, images)
        For each group: its name, a title for each image, and the images.
    columns, size
        As for :func:`image_grid`; a larger group goes on in the next row.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> fig = image_rows([("hue", ["red", "blue"], np.zeros((2, 3, 8, 8)))])
    >>> [ax.get_title() for ax in fig.axes]
    ['red', 'blue']
    >>> plt.close(fig)
    """
    plt = _pyplot(columns)
    if not rows:
        raise ValueError("rows: expected at least one group of images, got none")
    groups = [(name, titles, _pixels(name, images)) for name, titles, images in rows]
    for name, titles, pixels in groups:
        if len(titles) != len(pixels):
            raise ValueError(
                f"{name}: expected {len(pixels)} titles, one for each image, got "
                f"{len(titles)}"
            )
    lines = [-(-len(titles) // columns) for _, titles, _ in groups]
    fig = plt.figure(figsize=(columns * size + 1.05, sum(lines) * (size + 0.27)))
    grid = fig.add_gridspec(sum(lines), columns)
    above = 0
    for (name, titles, pixels), height in zip(groups, lines, strict=True):
        for index, (title, image) in enumerate(zip(titles, pixels, strict=True)):
            ax = fig.add_subplot(grid[above + index // columns, index % columns])
            _show_image(ax, image)
            ax.set_title(title, fontsize=10, loc="center", pad=3)
            if index == 0:
                _label_row(ax, name, labelpad=8)
        above += height
    return fig


def _pyplot(columns: int) -> Any:
    from robustbook._checks.arguments import check_count  # imports torch

    check_count("columns", columns)
    with extra("plot"):
        import matplotlib.pyplot as plt
    return plt


def _pixels(name: str, images: npt.ArrayLike | Tensor) -> npt.NDArray[np.float64]:
    """Images as (n, C, H, W) in [0, 1]."""
    from robustbook._checks.arguments import as_tensor  # imports torch

    tensor = as_tensor(name, images)
    pixels = _floats(name, tensor)
    if str(tensor.dtype) == "torch.uint8":
        pixels /= 255.0
    elif not tensor.is_floating_point():
        raise TypeError(
            f"{name}: expected floats in [0, 1] or uint8, got {tensor.dtype}; "
            "divide by the largest value that a pixel can have"
        )
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or len(pixels) == 0:
        raise ValueError(
            f"{name}: expected shape (n, C, H, W) with n > 0 and C = 1 or 3, "
            f"or (n, H, W); got {tuple(tensor.shape)}"
        )
    return pixels


def _show_image(ax: Axes, image: npt.NDArray[np.float64]) -> None:
    """One image (C, H, W) without ticks, in a thin frame."""
    pixels = np.clip(image.transpose(1, 2, 0), 0.0, 1.0)
    ax.imshow(pixels.squeeze(), vmin=0.0, vmax=1.0, cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#BBBBBB", linewidth=0.8)


def _label_row(ax: Axes, text: str, **options: Any) -> None:
    ax.set_ylabel(text, rotation=0, ha="right", **options)
    ax.yaxis.label.set_verticalalignment("center")
