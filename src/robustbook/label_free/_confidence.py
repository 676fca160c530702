"""Estimates that trust the confidence in the shifted answers."""

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_array
from scipy.special import entr

from robustbook._checks.arguments import check_labels
from robustbook.label_free._inputs import Array, flat, probabilities, with_labels


def average_confidence(shifted: Any) -> float:
    """Mean probability of the answers.

    Source: D. Hendrycks and K. Gimpel, *A baseline for detecting misclassified and
    out-of-distribution examples in neural networks*, ICLR 2017.

    Parameters
    ----------
    shifted : Tensor or array, shape (N, K)
        Class probabilities of the shifted inputs.

    Returns
    -------
    accuracy : float
        The estimate.

    Raises
    ------
    TypeError
        If an argument is of another kind than described.
    ValueError
        If shapes do not fit together, rows are no probabilities, or a label is out of
        range.

    Examples
    --------
    >>> round(average_confidence([[0.9, 0.1], [0.3, 0.7]]), 6)
    0.8
    """
    return float(probabilities("shifted", shifted).max(1).mean())


def difference_of_confidences(shifted: Any, source: tuple[Any, Any]) -> float:
    """Accuracy on the source, minus what the mean confidence lost on the way.

    Source: D. Guillory et al., *Predicting with confidence on unseen distributions*,
    ICCV 2021, with a slope of 1.

    >>> source = [[0.9, 0.1], [0.2, 0.8]], [0, 1]
    >>> round(difference_of_confidences([[0.7, 0.3], [0.6, 0.4]], source), 6)
    0.8
    """
    after = probabilities("shifted", shifted)
    before, labels = with_labels(source, after.shape[1])
    right = float((before.argmax(1) == labels).mean())
    return right - float(before.max(1).mean() - after.max(1).mean())


def average_thresholded_confidence(
    shifted: Any, source: tuple[Any, Any], *, score: str = "maximum"
) -> float:
    """Share of answers whose confidence is at least a threshold that the source sets.

    A share of the source inputs as large as that of its wrong answers lies below the
    threshold. Source: S. Garg et al., *Leveraging unlabeled data to predict
    out-of-distribution performance*, ICLR 2022.

    >>> source = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1]
    >>> average_thresholded_confidence([[0.7, 0.3], [0.9, 0.1]], source)
    0.5
    """
    after = probabilities("shifted", shifted)
    before, labels = with_labels(source, after.shape[1])
    known, new = (
        p.max(1) if score == "maximum" else -entr(p).sum(1) for p in (before, after)
    )
    wrong = int((before.argmax(1) != labels).sum())
    if wrong == len(known):
        return 0.0
    return float((new >= np.sort(known)[wrong]).mean())


def confidence_optimal_transport(shifted: Any, source_labels: Any) -> float:
    """Mean probability of the best-fitting labels, if classes keep their shares.

    One minus the cost at which the predictions are moved to labels with the shares of
    the source, where moving a row to a label costs one minus its probability. Source:
    Y. Lu et al., *Characterizing out-of-distribution error via optimal transport*,
    NeurIPS 2023.

    >>> round(confidence_optimal_transport([[0.9, 0.1], [0.8, 0.2]], [0, 1]), 6)
    0.55
    """
    p = probabilities("shifted", shifted)
    count, classes = p.shape
    given = flat(source_labels)
    labels = check_labels(
        "source_labels", given, length=len(given), num_classes=classes
    )
    shares = np.bincount(labels.cpu().numpy(), minlength=classes) / len(labels)
    # Nothing is moved to a class that the source never has.
    p, shares = p[:, shares > 0], shares[shares > 0]
    classes = len(shares)
    cell = np.arange(count * classes)
    # A row and a column for each cell; the sum of all is known twice.
    rows = np.concatenate([cell // classes, count + cell % classes])
    sums = csr_array((np.ones(2 * len(cell)), (rows, np.tile(cell, 2))))
    totals = np.concatenate([np.full(count, 1 / count), shares])
    plan = linprog(-p.ravel(), A_eq=sums, b_eq=totals, method="highs")
    return float(-plan.fun)


def class_wise_confidence(shifted: Any, source: tuple[Any, Any]) -> float:
    """Mean probability of the answers, at a temperature of its own for each answer.

    The source inputs that get an answer set its temperature, so that their mean
    confidence is the share of them that is right. An answer that the source never gets
    takes the temperature of all. Source: Z. Li et al., *Estimating model performance
    under domain shifts with class-specific confidence scores*, MICCAI 2022: CS TS.

    Parameters
    ----------
    shifted
        As for :func:`average_confidence`.
    source : tuple
        Class probabilities (M, K) of labeled inputs that the network was not trained
        on, and their labels (M,).

    Returns
    -------
    accuracy : float
        The estimate.

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> source = [[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]], [0, 1, 1, 1]
    >>> round(class_wise_confidence([[0.9, 0.1], [0.4, 0.6]], source), 6)
    0.75
    """
    after = probabilities("shifted", shifted)
    before, labels = with_labels(source, after.shape[1])
    answers, new = before.argmax(1), after.argmax(1)
    right = answers == labels
    total = 0.0
    for answer in np.unique(new):
        same = answers == answer
        chosen = same if same.any() else np.full(len(before), True)
        beta = _matching_beta(before[chosen], float(right[chosen].mean()))
        total += float(_confidences(after[new == answer], beta).sum())
    return total / len(after)


def _confidences(p: Array, beta: float) -> Array:
    """Largest probabilities after a change of the inverse temperature."""
    below = np.log(p / p.max(1, keepdims=True))
    if math.isinf(beta):
        return 1 / (below == 0).sum(1)
    sums: Array = np.exp(beta * below).sum(1)
    return 1 / sums


def _matching_beta(p: Array, share: float) -> float:
    """Find the inverse temperature at which the mean confidence is a share."""

    def excess(log_beta: float) -> float:
        return float(_confidences(p, math.exp(log_beta)).mean()) - share

    low, high = math.log(1e-6), math.log(1e6)
    if excess(low) >= 0:
        return 0.0
    if excess(high) <= 0:
        return math.inf
    return math.exp(brentq(excess, low, high))
