"""The field's estimates of accuracy under a shift that has no labels.

Most functions take class probabilities, best those of
:func:`~robustbook.agreement.gibbs_posterior` at a calibrated temperature. Most see the
shifted inputs only, and so trust a network that an attack has made sure of wrong
answers; :func:`~robustbook.agreement.paired_accuracy`, which sees pairs, is compared
with them in Chapters 9 and 27. :func:`score_pairs` returns all that one network's
logits allow.
"""

from robustbook.label_free._confidence import average_confidence, class_wise_confidence
from robustbook.label_free._networks import (
    agreement_on_the_line,
    disagreement_bound,
    generalization_disagreement,
)
from robustbook.label_free._table import ESTIMATES, SCORES, score_pairs

__all__ = [
    "ESTIMATES",
    "SCORES",
    "agreement_on_the_line",
    "average_confidence",
    "class_wise_confidence",
    "disagreement_bound",
    "generalization_disagreement",
    "score_pairs",
]
