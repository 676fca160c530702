"""Margins: distances to the decision boundary, and what a forward pass knows of them.

The input margin is the distance that matters and is expensive to measure; the logit
margin is free. Chapter 23 asks when one tells the other, Chapters 24 and 25 use it,
Chapter 26 learns a better one.
"""

from robustbook.margins._input_margin import InputMargins, input_margin

__all__ = [
    "InputMargins",
    "input_margin",
]
