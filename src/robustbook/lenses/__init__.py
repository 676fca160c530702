"""Three lenses on one model: all measures, on the same images.

:func:`three_lenses` is the one call. Chapter 24 compares what the lenses see,
Chapter 3 says which of them answers which question.
"""

from robustbook.lenses._measure import FEWEST, three_lenses
from robustbook.lenses._result import LENSES, Passes, Settings, Share, ThreeLenses
from robustbook.lenses._subject import CountedModel

__all__ = [
    "FEWEST",
    "LENSES",
    "CountedModel",
    "Passes",
    "Settings",
    "Share",
    "ThreeLenses",
    "three_lenses",
]
