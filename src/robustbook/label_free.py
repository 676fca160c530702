"""The field's estimates of accuracy under a shift that has no labels.

Most functions take class probabilities, best those of
:func:`~robustbook.agreement.gibbs_posterior` at a calibrated temperature. Most see the
shifted inputs only, and so trust a network that an attack has made sure of wrong
answers; :func:`~robustbook.agreement.paired_accuracy`, which sees pairs, is compared
with them in Chapters 40 and 42.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq, linprog, minimize
from scipy.sparse import csr_array
from scipy.special import entr, ndtr, ndtri, rel_entr
from scipy.stats import linregress
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import (
    check_choice,
    check_labels,
    check_level,
    check_logits,
    check_paired,
    check_positive,
)
from robustbook._docs import SharedDocs
from robustbook.agreement import log_probabilities

__all__ = [
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
    """Share of answers whose confidence is at least a threshold that the source sets.

    A share of the source inputs as large as that of its wrong answers lies below the
    threshold. Source: S. Garg et al., *Leveraging unlabeled data to predict
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
    """Mean probability of the best-fitting labels, if classes keep their shares.

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
    >>> with warnings.catch_warnings(action="ignore"):  # zeros cause a warning
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


@_SHARED.fill
def class_wise_confidence(shifted: Any, source: tuple[Any, Any]) -> float:
    """Mean probability of the answers, at a temperature of its own for each answer.

    The source inputs that get an answer set its temperature, so that their mean
    confidence is the share of them that is right. An answer that the source never gets
    takes the temperature of all. Source: Z. Li et al., *Estimating model performance
    under domain shifts with class-specific confidence scores*, MICCAI 2022: CS TS.

    Parameters
    ----------
    {shifted}
    {source}

    Returns
    -------
    {accuracy}

    {TypeError} {ValueError}

    Examples
    --------
    >>> source = [[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]], [0, 1, 1, 1]
    >>> round(class_wise_confidence([[0.9, 0.1], [0.4, 0.6]], source), 6)
    0.75
    """
    after = _probabilities("shifted", shifted)
    before, labels = _source(source, after.shape[1])
    answers, new = before.argmax(1), after.argmax(1)
    right = answers == labels
    total = 0.0
    for answer in np.unique(new):
        same = answers == answer
        chosen = same if same.any() else np.full(len(before), True)
        beta = _matching_beta(before[chosen], float(right[chosen].mean()))
        total += float(_confidences(after[new == answer], beta).sum())
    return total / len(after)


def matrix_norm(
    shifted_logits: Any, *, order: float = 4, threshold: float = 5
) -> float:
    """Norm of the matrix of normalized logits: larger if predictions are sure.

    A score to order sets or networks by, no estimate; it takes logits. They are
    normalized by the softmax where their mean cross-entropy to equal probabilities is
    above the threshold, else by its Taylor polynomial of degree two, which trusts large
    logits less; as in the authors' program, the smallest value of a row is subtracted.
    Source: R. Xie et al., *MANO: exploiting matrix norm for unsupervised accuracy
    estimation under distribution shifts*, NeurIPS 2024.

    Parameters
    ----------
    shifted_logits : Tensor or array, shape (N, K)
        Logits of the shifted inputs.
    order : float, default 4
        Of the norm, at least 1.
    threshold : float, default 5
        In nats.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError
        If the logits are no floating-point array.
    ValueError
        If shapes do not fit together, or a logit is not finite.

    Examples
    --------
    >>> round(matrix_norm([[4.0, 0.0], [0.0, 4.0]]), 6)
    0.840896
    """
    logits = check_logits("shifted_logits", shifted_logits).double()
    if check_positive("order", order) < 1:
        raise ValueError(f"order: expected at least 1, got {order}")
    surprise = -logits.log_softmax(1).mean()
    if float(surprise) > check_positive("threshold", threshold):
        p = logits.softmax(1)
    else:
        polynomial = 1 + logits + logits**2 / 2
        above = polynomial - polynomial.amin(1, keepdim=True)
        sums = above.sum(1, keepdim=True)
        p = torch.where(sums > 0, above / sums, 1 / logits.shape[1])
    return float((p**order).mean() ** (1 / order))


@_SHARED.fill
def generalization_disagreement(
    first: Any, second: Any, *, by: str = "answers"
) -> float:
    """One minus the disagreement of two trainings of one network on the shifted inputs.

    By answers, it estimates the accuracy of both if the average of many trainings is
    calibrated, for each class or all together; under a shift, it seldom is. Source: Y.
    Jiang et al., *Assessing generalization of SGD via disagreement*, ICLR 2022.
    Divergences of the posteriors instead: M. Schirmer, D. Zhang and E. Nalisnick,
    *Beyond top-class agreement: using divergences to forecast performance under
    distribution shift*, 2023.

    Parameters
    ----------
    first, second : Tensor or array, shape (N, K)
        Class probabilities of the same shifted inputs, by two trainings.
    by : str, default "answers"
        What the trainings disagree in: "answers", or on average "hellinger" (distance,
        in [0, 1]), "jensen-shannon" (in bits, in [0, 1]) or "kullback-leibler" (of the
        second from the first, in nats).

    Returns
    -------
    {accuracy}

    {TypeError} {ValueError}

    Examples
    --------
    >>> first, second = [[0.9, 0.1], [0.8, 0.2]], [[0.9, 0.1], [0.2, 0.8]]
    >>> generalization_disagreement(first, second)
    0.5
    >>> round(generalization_disagreement(first, second, by="hellinger"), 3)
    0.776
    """
    p, q = _probabilities("first", first), _probabilities("second", second)
    check_paired(("first", "second"), torch.tensor(p), torch.tensor(q))
    kinds = "answers", "hellinger", "jensen-shannon", "kullback-leibler"
    check_choice("by", by, kinds)
    if by == "answers":
        return float((p.argmax(1) == q.argmax(1)).mean())
    if by == "hellinger":
        each = np.sqrt(np.clip(1 - np.sqrt(p * q).sum(1), 0, None))
    elif by == "kullback-leibler":
        each = rel_entr(p, q).sum(1)
    else:
        middle = (p + q) / 2
        each = (rel_entr(p, middle) + rel_entr(q, middle)).sum(1) / (2 * math.log(2))
    return 1 - float(each.mean())


@_SHARED.fill
def disagreement_bound(
    shifted: Any,
    source: tuple[Any, Any],
    *,
    features: tuple[Any, Any] | None = None,
    level: float = 0.95,
) -> float:
    """Lower bound of the accuracy, by a critic that disagrees as much as it can.

    A linear critic is trained to give the network's answers on the source and others on
    the shifted inputs. The bound is the accuracy on the source, minus the critic's
    disagreement on the shifted inputs, plus that on the source, minus a term for
    chance. It holds if no linear critic could disagree more than the true labels do,
    and is low where the critic has many features. Source: E. Rosenfeld and S. Garg,
    *(Almost) provable error bounds under distribution shift via disagreement
    discrepancy*, NeurIPS 2023.

    Parameters
    ----------
    {shifted}
    {source}
    features : tuple, optional
        Inputs of the critic, of the source (M, D) and of the shifted inputs (N, D),
        such as those of the network's last layer; logarithms of the probabilities by
        default.
    level : float, default 0.95
        Chance that the bound holds, in (0, 1).

    Returns
    -------
    float
        The bound; it can be negative.

    {TypeError} {ValueError}

    Examples
    --------
    >>> same = [[0.9, 0.1], [0.2, 0.8]] * 500
    >>> bound = disagreement_bound(same, (same, [0, 1] * 500))
    >>> round(bound, 2)  # no critic tells equal inputs apart; the rest is chance
    0.91
    """
    after = _probabilities("shifted", shifted)
    before, labels = _source(source, after.shape[1])
    given = (np.log(before), np.log(after)) if features is None else features
    inputs = [torch.as_tensor(values, dtype=torch.float64) for values in given]
    for name, values, rows in zip(
        ("source", "shifted"), inputs, (before, after), strict=True
    ):
        if values.ndim != 2 or len(values) != len(rows):
            raise ValueError(
                f"features: expected shape ({len(rows)}, D) of the {name} inputs, got "
                f"{tuple(values.shape)}"
            )
    answers = [torch.from_numpy(p.argmax(1)) for p in (before, after)]
    critic = _disagreeing_critic(inputs, answers, after.shape[1])
    differs = [
        float((critic(x) != answer).double().mean())
        for x, answer in zip(inputs, answers, strict=True)
    ]
    right = float((before.argmax(1) == labels).mean())
    m, n = len(before), len(after)
    chance = math.sqrt(-(m + 4 * n) * math.log(1 - check_level(level)) / (2 * m * n))
    return right - (differs[1] - differs[0]) - chance


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


def _disagreeing_critic(
    inputs: list[Tensor], answers: list[Tensor], classes: int
) -> Callable[[Tensor], Tensor]:
    """Train a linear classifier; its loss is convex."""
    center, scale = inputs[0].mean(0), inputs[0].std(0, correction=0).clamp(min=1e-9)
    source, shifted = ((x - center) / scale for x in inputs)
    shape = source.shape[1] + 1, classes

    def scores(weights: Tensor, x: Tensor) -> Tensor:
        return x @ weights[:-1] + weights[-1]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = torch.tensor(flat.reshape(shape), requires_grad=True)
        values = scores(weights, source)
        agree = functional.cross_entropy(values, answers[0]) / math.log(classes)
        values = scores(weights, shifted)
        same = values.gather(1, answers[1][:, None])[:, 0]
        others = (values.sum(1) - same) / (classes - 1)
        disagree = functional.softplus(same - others).mean() / math.log(2)
        # Separable inputs would let the weights grow for ever.
        value = agree + disagree + 1e-4 * weights.square().mean()
        (gradient,) = torch.autograd.grad(value, weights)
        return float(value.detach()), gradient.numpy().ravel()

    best = minimize(loss, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B")
    weights = torch.from_numpy(best.x.reshape(shape))
    return lambda x: scores(weights, (x - center) / scale).argmax(1)
