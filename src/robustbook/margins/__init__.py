"""Margins: distances to the decision boundary, and cheap scores that order them.

The input margin is the distance that matters, and it is expensive to measure; the logit
margin is free. Chapter 22 asks when one predicts the other, Chapters 23 and 24 use the
prediction, Chapter 30 learns a better one.
"""

from robustbook.margins._accuracy import estimate_robust_accuracy, stratified_sample
from robustbook.margins._accuracy import tune_threshold as tune_threshold  # studies
from robustbook.margins._consistency import Consistency, margin_consistency
from robustbook.margins._consistency import concordance as concordance
from robustbook.margins._consistency import ranks as ranks
from robustbook.margins._detection import detection_scores
from robustbook.margins._free import (
    class_distances,
    feature_margin,
    gradient_normalized_margin,
    logit_margin,
)
from robustbook.margins._input_margin import InputMargins, input_margin
from robustbook.margins._pseudo import PseudoMargin

__all__ = [
    "Consistency",
    "InputMargins",
    "PseudoMargin",
    "class_distances",
    "detection_scores",
    "estimate_robust_accuracy",
    "feature_margin",
    "gradient_normalized_margin",
    "input_margin",
    "logit_margin",
    "margin_consistency",
    "stratified_sample",
]
