"""What the field estimates accuracy by where a shift has no labels.

Each function takes class probabilities, best those of :func:`~robustbook.agreement.\
gibbs_posterior` at a calibrated temperature. Most see the shifted inputs only, and so
believe a network that an attack made sure of wrong answers;
:func:`~robustbook.agreement.paired_accuracy`, which sees pairs, is compared with them
in Chapter 40. Two trainings of one network, passed to
:func:`~robustbook.scores.same_answer_rate`, give the estimate of Jiang et al. (2022).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.special import entr, ndtr, ndtri
from scipy.stats import linregress
from torch import Tensor

from robustbook._checks.arguments import check_labels, check_paired
from robustbook._docs import SharedDocs
from robustbook.agreement import log_probabilities

__all__ = [
    "agreement_on_the_line",
    "average_confidence",
    "average_thresholded_confidence",
    "confidence_optimal_transport",
    "difference_of_confidences",
    "effective_invariance",
    "mutual_information",
    "nuclear_norm",
]

Array = npt.NDArray[np.float64]


class _Shared:
    """Entries of the docstrings.

    shifted : Tensor or array, shape (N, K)
        Class probabilities of the shifted inputs.
    source : tuple
        Class probabilities (M, K) of labelled inputs that the network was not trained
        on, and their labels (M,).
    accuracy : float
        The estimate.
    TypeError
        If an argument is of another kind than described.
    ValueError
        If shapes do not fit together, rows are no probabilities, or a label is out of
        range.
    """


_SHARED = SharedDocs(_Shared.__doc__)


@_SHARED.fill
def average_confidence(shifted: Any) -> float:
    """Mean probability of the answers.

    Source: D. Hendrycks and K. Gimpel, *A baseline for detecting misclassified and
    out-of-distribution examples in neural networks*, ICLR 2017.

    Parameters
    ----------
    {shifted}

    Returns
    -------
    {accuracy}

    {TypeError} {ValueError}

    Examples
    --------
    >>> round(average_confidence([[0.9, 0.1], [0.3, 0.7]]), 6)
    0.8
    """
    return float(_probabilities("shifted", shifted).max(1).mean())


@_SHARED.fill
def difference_of_confidences(shifted: Any, source: tuple[Any, Any]) -> float:
    """Accuracy on the source, minus what the mean confidence lost on the way.

    Source: D. Guillory et al., *Predicting with confidence on unseen distributions*,
    ICCV 2021, with a slope of 1.

    Parameters
    ----------
    {shifted}
    {source}

    Returns
    -------
    accuracy : float
        The estimate; it can lie outside [0, 1].

    {TypeError} {ValueError}

    Examples
    --------
    >>> source = [[0.9, 0.1], [0.2, 0.8]], [0, 1]
    >>> round(difference_of_confidences([[0.7, 0.3], [0.6, 0.4]], source), 6)
    0.8
    """
    after = _probabilities("shifted", shifted)
    before, labels = _source(source, after.shape[1])
    right = float((before.argmax(1) == labels).mean())
    return right - float(before.max(1).mean() - after.max(1).mean())


@_SHARED.fill
def average_thresholded_confidence(
    shifted: Any, source: tuple[Any, Any], *, score: str = "maximum"
) -> float:
    """Share of answers above the confidence that as many source answers fail as lack.

    The threshold lies where the share of source inputs below it is the share of wrong
    answers there. Source: S. Garg et al., *Leveraging unlabeled data to predict
    out-of-distribution performance*, ICLR 2022.

    Parameters
    ----------
    {shifted}
    {source}
    score : str, default "maximum"
        The largest probability, or "entropy", the negative one.

    Returns
    -------
    {accuracy}

    {TypeError} {ValueError}

    Examples
    --------
    >>> source = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1]
    >>> average_thresholded_confidence([[0.7, 0.3], [0.9, 0.1]], source)
    0.5
    """
    if score not in ("maximum", "entropy"):
        raise ValueError(f"score: expected 'maximum' or 'entropy', got {score!r}")
    after = _probabilities("shifted", shifted)
    before, labels = _source(source, after.shape[1])
    known, new = (
        p.max(1) if score == "maximum" else -entr(p).sum(1) for p in (before, after)
    )
    wrong = int((before.argmax(1) != labels).sum())
    if wrong == len(known):
        return 0.0
    return float((new >= np.sort(known)[wrong]).mean())


@_SHARED.fill
def confidence_optimal_transport(shifted: Any, source_labels: Any) -> float:
    """Mean probability of the labels that suit best, if classes keep their shares.

    One minus the cost at which the predictions are moved to labels with the shares of
    the source, where moving a row to a label costs one minus its probability. Source:
    Y. Lu et al., *Characterizing out-of-distribution error via optimal transport*,
    NeurIPS 2023.

    Parameters
    ----------
    {shifted}
    source_labels : Tensor or array, shape (M,)
        Classes of the source.

    Returns
    -------
    {accuracy}

    {TypeError} {ValueError}

    Examples
    --------
    >>> round(confidence_optimal_transport([[0.9, 0.1], [0.8, 0.2]], [0, 1]), 6)
    0.55
    """
    p = _probabilities("shifted", shifted)
    count, classes = p.shape
    given = _tensor(source_labels)
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
    found = linprog(-p.ravel(), A_eq=sums, b_eq=totals, method="highs")
    return float(-found.fun)


@_SHARED.fill
def nuclear_norm(shifted: Any) -> float:
    """Nuclear norm of the predictions: 1 if they are sure and spread over all classes.

    A score to order sets or networks by, no estimate. Source: W. Deng et al.,
    *Confidence and dispersity speak: characterizing prediction matrix for unsupervised
    accuracy estimation*, ICML 2023.

    Parameters
    ----------
    {shifted}

    Returns
    -------
    float
        The sum of singular values over its upper bound, the root of N min(N, K).

    {TypeError} {ValueError}

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # zeros are remarked
    ...     round(nuclear_norm([[1.0, 0.0], [0.0, 1.0]]), 6)
    1.0
    """
    p = _probabilities("shifted", shifted)
    singular = np.linalg.svd(p, compute_uv=False)
    return float(singular.sum()) / math.sqrt(len(p) * min(p.shape))


@_SHARED.fill
def mutual_information(shifted: Any) -> float:
    """Entropy of the mean prediction, minus the mean entropy of the predictions.

    A score to order sets or networks by, no estimate. Source: J. Bridle, A. Heading and
    D. MacKay, *Unsupervised classifiers, mutual information and 'phantom targets'*,
    NeurIPS 1991.

    Parameters
    ----------
    {shifted}

    Returns
    -------
    float
        In [0, log K] nats.

    {TypeError} {ValueError}

    Examples
    --------
    >>> mutual_information([[0.5, 0.5], [0.5, 0.5]])
    0.0
    """
    p = _probabilities("shifted", shifted)
    return max(0.0, float(entr(p.mean(0)).sum() - entr(p).sum(1).mean()))


@_SHARED.fill
def effective_invariance(clean: Any, shifted: Any) -> float:
    """Mean root of the product of both confidences, 0 where the answers differ.

    Source: W. Deng, S. Gould and L. Zheng, *On the strong correlation between model
    invariance and generalization*, NeurIPS 2022.

    Parameters
    ----------
    clean : Tensor or array, shape (N, K)
        Class probabilities of the clean inputs, row by row the same samples.
    {shifted}

    Returns
    -------
    float
        In [0, 1].

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean, shifted = [[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.6, 0.4]]
    >>> round(effective_invariance(clean, shifted), 6)
    0.3
    """
    before, after = _probabilities("clean", clean), _probabilities("shifted", shifted)
    check_paired(("clean", "shifted"), torch.tensor(before), torch.tensor(after))
    same = before.argmax(1) == after.argmax(1)
    return float((same * np.sqrt(before.max(1) * after.max(1))).mean())


def agreement_on_the_line(
    source_accuracy: Any, source_agreement: Any, shifted_agreement: Any
) -> Array:
    """Accuracies of many networks, moved along the line that their agreements lie on.

    On the scale of the normal quantile, agreements of pairs of networks under the shift
    are a line in those on the source, and accuracies lie near the same line. Source:
    C. Baek et al., *Agreement-on-the-line: predicting the performance of neural
    networks under distribution shift*, NeurIPS 2022: ALine-S.

    Parameters
    ----------
    source_accuracy : array, shape (M,)
        Of each network, strictly between 0 and 1.
    source_agreement, shifted_agreement : array, shape (P,)
        Of each pair of networks: shares of equal answers, strictly between 0 and 1.

    Returns
    -------
    ndarray, shape (M,)
        The estimates.

    Raises
    ------
    ValueError
        If a share is not between 0 and 1, pairs do not fit together, or fewer than
        two differ.

    Examples
    --------
    >>> agreement_on_the_line([0.8], [0.7, 0.9], [0.7, 0.9]).round(6)
    array([0.8])
    """
    shares = {
        "source_accuracy": source_accuracy,
        "source_agreement": source_agreement,
        "shifted_agreement": shifted_agreement,
    }
    scaled = []
    for name, given in shares.items():
        values = np.asarray(given, dtype=float)
        if values.ndim != 1 or not ((values > 0) & (values < 1)).all():
            raise ValueError(
                f"{name}: expected shape (number,) and values strictly between 0 and "
                f"1, got {given!r}; leave out a network that is always right"
            )
        scaled.append(ndtri(values))
    accuracy, x, y = scaled
    if len(x) != len(y) or len(np.unique(x)) < 2:
        raise ValueError(
            f"shifted_agreement: expected as many pairs as source_agreement, two or "
            f"more different ones, got {len(y)} and {len(x)}"
        )
    line = linregress(x, y)
    moved: Array = ndtr(line.slope * accuracy + line.intercept)
    return moved


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values).reshape(-1)


def _probabilities(name: str, values: Any) -> Array:
    rows: Array = log_probabilities(values, name=name).exp().cpu().numpy()
    return rows


def _source(source: tuple[Any, Any], classes: int) -> tuple[Array, Array]:
    try:
        probabilities, given = source
    except (TypeError, ValueError):
        raise TypeError(
            "source: expected a pair, probabilities (M, K) and labels (M,)"
        ) from None
    rows = _probabilities("source", probabilities)
    if rows.shape[1] != classes:
        raise ValueError(
            f"source: expected {classes} classes as in shifted, got {rows.shape[1]}"
        )
    labels = check_labels(
        "source labels", _tensor(given), length=len(rows), num_classes=classes
    )
    return rows, labels.cpu().numpy()
