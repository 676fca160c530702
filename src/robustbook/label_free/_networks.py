"""Estimates that ask other networks, or a critic."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri, rel_entr
from scipy.stats import linregress
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import check_choice, check_level, check_paired
from robustbook.label_free._inputs import Array, probabilities, with_labels


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
    accuracy : float
        The estimate.

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> first, second = [[0.9, 0.1], [0.8, 0.2]], [[0.9, 0.1], [0.2, 0.8]]
    >>> generalization_disagreement(first, second)
    0.5
    >>> round(generalization_disagreement(first, second, by="hellinger"), 3)
    0.776
    """
    p, q = probabilities("first", first), probabilities("second", second)
    check_paired(("first", "second"), p, q)
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
    shifted, source
        As for :func:`class_wise_confidence`.
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

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> same = [[0.9, 0.1], [0.2, 0.8]] * 500
    >>> bound = disagreement_bound(same, (same, [0, 1] * 500))
    >>> round(bound, 2)  # no critic tells equal inputs apart; the rest is chance
    0.91
    """
    after = probabilities("shifted", shifted)
    before, labels = with_labels(source, after.shape[1])
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
