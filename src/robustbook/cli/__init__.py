"""The command line ``robustbook``: score, compare, report, data.

Torch and the extras are imported by the commands that need them: ``--help`` and
mistyped commands answer at once.
"""

from robustbook.cli import _arrays as _arrays  # score and compare
from robustbook.cli import _models as _models  # report and data
from robustbook.cli._app import app as app  # for the tests
from robustbook.cli._app import main

__all__ = ["main"]
