"""The figure style of the book, and a few plots that recur."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._checks.extras import extra
from robustbook.style._looks import COLORS, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

#: Parameters of matplotlib, by their value.
_PARAMETERS: Final[Mapping[Any, str]] = {
    True: "figure.constrained_layout.use axes.axisbelow axes.grid",
    False: "axes.spines.top axes.spines.right legend.frameon",
    "white": "axes.facecolor figure.facecolor savefig.facecolor",
    "#222222": "axes.labelcolor",
    "#444444": "axes.edgecolor xtick.color ytick.color",
    "#E2E2E2": "grid.color",
    0.8: "grid.linewidth",
    2.0: "lines.linewidth",
    3.0: "errorbar.capsize",
    6.0: "lines.markersize",
    11: "legend.fontsize xtick.labelsize ytick.labelsize",
    12: "font.size axes.labelsize",
    12.5: "axes.titlesize",
    13: "figure.titlesize",
    144: "figure.dpi savefig.dpi",
    "tight": "savefig.bbox",
    "left": "axes.titlelocation",
    "sans-serif": "font.family",
    "dejavusans": "mathtext.fontset",
    "gray_r": "image.cmap",
    "nearest": "image.interpolation",
    "robustbook": "svg.hashsalt",
}
_CYCLE: Final = ("blue", "vermilion", "green", "orange", "purple", "sky", "black")


def style_parameters() -> dict[str, Any]:
    """Return the matplotlib parameters of the book, which :func:`use_style` sets.

    Examples
    --------
    >>> style_parameters()["figure.figsize"]
    (5.8, 3.6)
    """
    with extra("plot"):
        from cycler import cycler

    return {
        # At this width, letters are 9 px high on a phone that is 350 px wide.
        "figure.figsize": (5.8, 3.6),
        "font.sans-serif": ["DejaVu Sans"],
        "axes.prop_cycle": cycler(color=[PALETTE[name] for name in _CYCLE]),
        **{key: value for value, keys in _PARAMETERS.items() for key in keys.split()},
    }


def use_style() -> None:
    """Configure matplotlib for the book; chapters call it once, at the top.

    In Jupyter, PNG figures are written without the name and version of the
    software, so that two runs give the same bytes.
    """
    with extra("chapters"):
        import seaborn as sns

    sns.set_theme(style="white", rc=style_parameters())
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
    with warnings.catch_warnings():  # matplotlib-inline uses a deprecated observer
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
    _check_texts("titles", titles, len(pixels))
    _check_texts("row_labels", row_labels, rows)
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
    """Show groups of images, each with its name in front, starting in a new row.

    Parameters
    ----------
    rows : sequence of (str, sequence of str, images)
        For each group: its name, a title for each image, and the images.
    columns, size
        As for :func:`image_grid`; a larger group takes several rows.

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
    heights = [-(-len(pixels) // columns) for _, _, pixels in groups]
    figsize = (columns * size + 1.05, sum(heights) * (size + 0.27))
    fig = plt.figure(figsize=figsize)
    grid = fig.add_gridspec(sum(heights), columns)
    above = 0
    for (name, titles, pixels), height in zip(groups, heights, strict=True):
        _check_texts(name, titles, len(pixels))
        for index, (title, image) in enumerate(zip(titles, pixels, strict=True)):
            ax = fig.add_subplot(grid[above + index // columns, index % columns])
            _show_image(ax, image)
            ax.set_title(title, fontsize=10, loc="center", pad=3)
            if index == 0:
                _label_row(ax, name, labelpad=8)
        above += height
    return fig


def _check_texts(name: str, texts: Sequence[str] | None, count: int) -> None:
    if texts is not None and len(texts) != count:
        raise ValueError(f"{name}: expected {count} labels, got {len(texts)}")


def _pyplot(columns: int) -> Any:
    from robustbook._checks.arguments import check_count  # imports torch

    check_count("columns", columns)
    with extra("plot"):
        import matplotlib.pyplot as plt
    return plt


def _pixels(name: str, images: npt.ArrayLike | Tensor) -> npt.NDArray[np.float64]:
    """Return images as (n, C, H, W) in [0, 1]."""
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
    """Show an image (C, H, W) without ticks, in a thin frame."""
    pixels = np.clip(image.transpose(1, 2, 0), 0.0, 1.0)
    ax.imshow(pixels.squeeze(), vmin=0.0, vmax=1.0, cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#BBBBBB", linewidth=0.8)


def _label_row(ax: Axes, text: str, **options: Any) -> None:
    ax.set_ylabel(text, rotation=0, ha="right", **options)
    ax.yaxis.label.set_verticalalignment("center")
