"""The field's estimates of accuracy under a shift that has no labels.

Most functions take class probabilities, best those of
:func:`~robustbook.agreement.gibbs_posterior` at a calibrated temperature. Most see the
shifted inputs only, and so trust a network that an attack has made sure of wrong
answers; :func:`~robustbook.agreement.paired_accuracy`, which sees pairs, is compared
with them in Chapters 9 and 27. :func:`score_pairs` returns all that one network's
logits allow.
"""

from robustbook.label_free._confidence import (
    average_confidence,
    average_thresholded_confidence,
    class_wise_confidence,
    confidence_optimal_transport,
    difference_of_confidences,
)
from robustbook.label_free._networks import (
    agreement_on_the_line,
    disagreement_bound,
    generalization_disagreement,
)
from robustbook.label_free._orders import (
    effective_invariance,
    matrix_norm,
    mutual_information,
    nuclear_norm,
)
from robustbook.label_free._table import ESTIMATES, SCORES, score_pairs

__all__ = [
    "ESTIMATES",
    "SCORES",
    "agreement_on_the_line",
    "average_confidence",
    "average_thresholded_confidence",
    "class_wise_confidence",
    "confidence_optimal_transport",
    "difference_of_confidences",
    "disagreement_bound",
    "effective_invariance",
    "generalization_disagreement",
    "matrix_norm",
    "mutual_information",
    "nuclear_norm",
    "score_pairs",
]
