"""Three lenses on one model: all measures, on the same images.

:func:`three_lenses` measures, Chapter 25 compares the three lenses, and Chapter 3 says
which of them answers which question.
"""

from robustbook.lenses._evaluator import CountedModel as CountedModel  # for studies
from robustbook.lenses._evaluator import compute_logits as compute_logits
from robustbook.lenses._measure import FEWEST as FEWEST
from robustbook.lenses._measure import three_lenses
from robustbook.lenses._result import Settings as Settings
from robustbook.lenses._result import Share as Share
from robustbook.lenses._result import ThreeLenses
from robustbook.lenses._resume import cache_key as cache_key  # for the report

__all__ = ["ThreeLenses", "three_lenses"]
