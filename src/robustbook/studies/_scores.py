"""Scores of one pair of logit arrays, in all and sample by sample."""

from __future__ import annotations

from torch import Tensor

from robustbook.agreement import Agreement, posterior_agreement
from robustbook.scores import accuracy, same_answer_rate
from robustbook.studies._statistics import share_row
from robustbook.studies.run import Row


def confidence(logits: Tensor) -> float:
    """Mean probability of the predicted class, at inverse temperature 1."""
    return float(logits.double().softmax(1).amax(1).mean())


def agreement_row(result: Agreement) -> Row:
    """Agreement with its error, its temperature and its parts."""
    return {
        "pa": result.pa,
        "pa_se": result.standard_error,
        "beta": result.beta,
        "hard_part": result.hard_part,
        "confidence_part": result.confidence_part,
    }


def failure_rates(logits: Tensor, shifted: Tensor, labels: Tensor) -> Row:
    """Both attack failure rates with their errors."""
    return {
        **share_row("shifted_accuracy", accuracy(shifted, labels), len(labels)),
        **share_row("same_answer_rate", same_answer_rate(logits, shifted), len(labels)),
    }


def measure_pair(logits: Tensor, shifted: Tensor, labels: Tensor) -> Row:
    """Agreement, its parts, attack failure rates and confidence after the shift."""
    return {
        **agreement_row(posterior_agreement(logits, shifted)),
        **failure_rates(logits, shifted, labels),
        "confidence_after": confidence(shifted),
    }


def sample_terms(
    result: Agreement, logits: Tensor, shifted: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Return the terms of each sample in the means of the measures, shape (N,) each.

    Contributions to PA are those at the best temperature (envelope theorem).
    """
    after = shifted.argmax(1)
    return {
        "pa": result.per_sample.double(),
        "shifted_accuracy": (after == labels).double(),
        "same_answer_rate": (after == logits.argmax(1)).double(),
    }
