"""One page on one model: the results of the three lenses, and how to read them.

:func:`robustbook.lenses.three_lenses` measures and :class:`Report` makes the page;
``robustbook report`` does both. The page is one file that loads nothing, and holds its
numbers as JSON for :func:`read_report`.
"""

from robustbook.report._data import read_images
from robustbook.report._many import sweep as sweep  # for the command line
from robustbook.report._measure import make as make
from robustbook.report._page import Report, read_report
from robustbook.report._request import Request as Request

__all__ = ["Report", "read_images", "read_report"]
