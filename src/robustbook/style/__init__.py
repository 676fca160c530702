"""One figure style for the whole book, and a few plots that recur.

Importing this package changes nothing: matplotlib is imported and configured only
when :func:`use_style` or a plot is called.
"""

from robustbook.style._looks import COLORS, PALETTE, color_of, label_of, marker_of
from robustbook.style._plots import (
    band,
    image_grid,
    image_rows,
    mark_maximum,
    use_style,
)
from robustbook.style._plots import style_parameters as style_parameters  # the report

__all__ = [
    "COLORS",
    "PALETTE",
    "band",
    "color_of",
    "image_grid",
    "image_rows",
    "label_of",
    "mark_maximum",
    "marker_of",
    "use_style",
]
