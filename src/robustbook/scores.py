"""Scores based on accuracy, and how consistently a score ranks models.

Accuracy and the same-answer rate depend only on predictions, the class of the largest
logit, not on the size of the logits. Where classes tie, the first of them is the
prediction.
"""

import math

from torch import Tensor

from robustbook._checks.arguments import (
    ArrayLike,
    as_tensor,
    check_labels,
    check_logit_pair,
    check_logits,
)

__all__ = ["accuracy", "predictions", "rank_concordance", "same_answer_rate"]


def predictions(logits: ArrayLike) -> Tensor:
    """Return the predicted classes, the first of the largest logits.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the samples, or an increasing function of them.

    Returns
    -------
    Tensor, shape (N,)
        Predicted classes, int64.

    Raises
    ------
    TypeError, ValueError
        If shapes do not match, a logit is not finite or a label is out of range.

    Examples
    --------
    >>> import torch
    >>> predictions(torch.tensor([[0.1, 2.0], [1.0, 1.0]])).tolist()
    [1, 0]
    """
    return check_logits("logits", logits).argmax(dim=1)


def accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of samples that are classified correctly, in [0, 1].

    On shifted inputs it is the papers' AFR_T. A sample that was wrong before the shift
    is wrong there, too, so it measures the task as much as the shift.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the samples, or an increasing function of them.
    labels : Tensor or array, shape (N,)
        True classes, integers from 0 to K - 1.

    Raises
    ------
    TypeError, ValueError
        If shapes do not match, a logit is not finite or a label is out of range.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    >>> round(accuracy(logits, torch.tensor([0, 1, 1])), 3)
    0.667
    """
    checked = check_logits("logits", logits)
    num_samples, num_classes = checked.shape
    truth = check_labels(
        "labels", labels, length=num_samples, num_classes=num_classes
    ).to(checked.device)
    return float((checked.argmax(dim=1) == truth).double().mean())


def same_answer_rate(logits: ArrayLike, shifted_logits: ArrayLike) -> float:
    r"""Return the share of pairs with the same prediction: the papers' AFR_P.

    .. math:: \frac1N \sum_i [\hat y''_i = \hat y'_i] = 1 - m,

    with :math:`m` the mismatch rate. It needs no labels. Source: the PA thesis, section
    4.2; Chapters 8 and 2.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the samples, or an increasing function of them.
    shifted_logits : Tensor or array, shape (N, K)
        Logits of the shifted inputs, row by row the same pairs.

    Raises
    ------
    TypeError, ValueError
        If shapes do not match, a logit is not finite or a label is out of range.

    Examples
    --------
    >>> import torch
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> same_answer_rate(clean, clean.flip(0))
    0.0
    """
    clean, shifted = check_logit_pair(logits, shifted_logits)
    agree = clean.argmax(dim=1) == shifted.argmax(dim=1)
    return float(agree.double().mean())


def rank_concordance(scores: ArrayLike) -> float:
    """Return Kendall's W, the concordance of rankings under several conditions.

    Source: M. G. Kendall and B. Babington Smith, *The problem of m rankings*, Annals of
    Mathematical Statistics 10, 1939; Chapter 11.

    Parameters
    ----------
    scores : Tensor or ndarray, shape (conditions, models)
        A score for each model under each condition. Only the ranks within a condition
        count; ties get the mean of their ranks.

    Returns
    -------
    float
        1 if all conditions rank the models alike, about 1 / conditions if they rank
        them at random, NaN if all models tie under every condition.

    Raises
    ------
    ValueError
        If there are fewer than 2 conditions or 3 models, or a score is not finite.

    Examples
    --------
    >>> import torch
    >>> rank_concordance(torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]))
    1.0
    """
    from scipy.stats import friedmanchisquare

    table = as_tensor("scores", scores).double().cpu()
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        raise ValueError(
            "scores: expected shape (conditions, models) with at least 2 conditions "
            f"and 3 models, got {tuple(table.shape)}"
        )
    if not bool(table.isfinite().all()):
        raise ValueError("scores: expected finite numbers, got NaN or infinity")
    if bool((table == table[:, :1]).all()):
        return math.nan
    # Friedman's statistic, which corrects for ties, is W on another scale.
    statistic = friedmanchisquare(*table.numpy().T).statistic
    # With ties, rounding can lift it above 1.
    return min(float(statistic / (len(table) * (table.shape[1] - 1))), 1.0)
