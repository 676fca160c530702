"""One row of scores for one pair of logit arrays."""

from __future__ import annotations

from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.scores import accuracy, afr_pred
from robustbook.studies._rows import Row
from robustbook.studies._statistics import share_error

__all__ = ["confidence", "measure_pair"]


def confidence(logits: Tensor) -> float:
    """Mean probability of the predicted class, at inverse temperature 1."""
    return float(logits.double().softmax(1).amax(1).mean())


def measure_pair(logits: Tensor, shifted: Tensor, labels: Tensor) -> Row:
    """Agreement, its parts, attack failure rates and confidence after the shift."""
    result = posterior_agreement(logits, shifted)
    count = result.num_samples
    true, pred = accuracy(shifted, labels), afr_pred(logits, shifted)
    return {
        "pa": result.pa,
        "pa_se": result.standard_error,
        "beta": result.beta,
        "hard_part": result.hard_part,
        "confidence_part": result.confidence_part,
        "afr_true": true,
        "afr_true_se": share_error(true, count),
        "afr_pred": pred,
        "afr_pred_se": share_error(pred, count),
        "confidence_after": confidence(shifted),
    }
