"""One page on one model: what the three lenses saw, and how to read it.

:class:`Report` makes the page of what :func:`robustbook.lenses.three_lenses` returns;
``robustbook report`` does both. The page is one file that loads nothing, and holds its
numbers as JSON for :func:`read_report`.
"""

from robustbook.report._data import Images, read_images
from robustbook.report._make import make as make  # for the command line
from robustbook.report._many import Sweep as Sweep
from robustbook.report._page import Report, read_report
from robustbook.report._request import Request as Request

__all__ = ["Images", "Report", "read_images", "read_report"]
