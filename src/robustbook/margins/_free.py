"""Margins without an attack: from logits, features or one gradient."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import torch
from torch import Tensor

from robustbook._checks import models
from robustbook._checks.arguments import (
    ArrayLike,
    check_choice,
    check_count,
    check_features,
    check_logits,
)
from robustbook._checks.images import check_inputs
from robustbook.attacks.engine import Norm
from robustbook.margins._arrays import check_vector

#: The order of the dual norm, in which weights and gradients are measured.
DUAL: Final = {"linf": 1, "l2": 2}


def logit_margin(logits: ArrayLike) -> Tensor:
    """Return the largest logit minus the second largest: the margin paper's equation 4.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)

    Returns
    -------
    Tensor, shape (N,)
        Margins of at least 0, float64, in units of the logits; 0 where two classes tie.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.

    Examples
    --------
    >>> logit_margin([[3.0, 1.0, 0.5], [0.0, 0.0, -1.0]]).tolist()
    [2.0, 0.0]
    """
    top = check_logits("logits", logits).double().topk(2, dim=1).values
    return top[:, 0] - top[:, 1]


def feature_margin(
    features: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    norm: Norm = "l2",
) -> Tensor:
    """Return the distance in feature space to the nearest boundary of a linear head.

    It is the smallest gap of two logits over the dual norm of the difference of their
    weights, which is exact. Source: the margin paper, equations 2 and 3; Chapter 22.

    Parameters
    ----------
    features : Tensor or array, shape (N, D)
        Features, for example of the penultimate layer.
    weight : Tensor or array, shape (K, D)
        Weights of the linear head.
    bias : Tensor or array, shape (K,), optional
        Biases of the head; 0 by default.
    norm : {"l2", "linf"}, default "l2"
        The norm of distances in feature space.

    Returns
    -------
    Tensor, shape (N,)
        Distances, float64, in units of the features; ``inf`` where no boundary can be
        reached, as all other classes have the weights of the predicted one.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.

    Examples
    --------
    >>> feature_margin([[2.0, 0.0]], [[1.0, 0.0], [0.0, 0.0], [0.9, 0.0]]).tolist()
    [2.0]
    """
    vectors = check_features("features", features)
    rows, between = _weights_and_distances(weight, norm, vectors.device)
    if rows.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"weight: expected shape (K, {vectors.shape[1]}), as the features have, "
            f"got {tuple(rows.shape)}"
        )
    logits = vectors @ rows.T
    if bias is not None:
        offsets = torch.from_numpy(check_vector("bias", bias, length=len(rows)))
        logits = check_logits("logits", logits + offsets.to(logits))
    top, predicted = logits.max(dim=1)
    gaps = top[:, None] - logits
    # 0 / 0 means the same weights and biases: a tie that no step changes.
    distances = torch.where(gaps > 0, gaps / between[predicted], 0.0)
    distances.scatter_(1, predicted[:, None], torch.inf)
    return distances.amin(dim=1)


@dataclass(frozen=True, eq=False)
class ClassDistances:
    """Distances of the classes' weights from each other.

    Attributes
    ----------
    distances : Tensor, shape (K, K)
        Norms of the differences, float64, 0 on the diagonal.
    mean, smallest, largest : float
        Of the distances of different classes.
    variation : float
        Standard deviation over pairs divided by the mean: 0 for equidistant classes.
    """

    distances: Tensor = field(repr=False)
    mean: float
    smallest: float
    largest: float
    variation: float


def class_distances(weight: ArrayLike, *, norm: Norm = "l2") -> ClassDistances:
    """Measure how far from equidistant the classes of a linear head are.

    Only for equidistant classes is the logit margin proportional to the distance in
    feature space. Returns ``ClassDistances``. Source: the margin paper, section
    2.1 and Figure 13; Chapter 22.

    Parameters
    ----------
    weight : Tensor or array, shape (K, D)
        Weights of the linear head.
    norm : {"l2", "linf"}, default "l2"
        The norm of distances in feature space; weights are compared in its dual.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.

    Examples
    --------
    >>> simplex = class_distances([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> round(simplex.mean, 4), simplex.variation
    (1.4142, 0.0)
    """
    rows, distances = _weights_and_distances(weight, norm)
    first, second = torch.triu_indices(len(rows), len(rows), offset=1)
    pairs = distances[first, second]
    mean = float(pairs.mean())
    # The spread of equal numbers is 0 only up to rounding.
    spread = float((pairs - mean).square().mean().sqrt())
    variation = spread / mean if spread > 1e-12 * mean else 0.0
    low, high = (float(end) for end in pairs.aminmax())
    return ClassDistances(distances, mean, low, high, variation)


def _weights_and_distances(
    weight: ArrayLike, norm: Norm, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Return the weights of the classes, and their distances in the dual norm."""
    check_choice("norm", norm, DUAL)
    rows = check_features("weight", weight).to(device)
    if len(rows) < 2:
        raise ValueError(
            f"weight: expected shape (K, D) with at least two classes, got "
            f"{tuple(rows.shape)}"
        )
    # The expanded square would lose half of the digits.
    exact = "donot_use_mm_for_euclid_dist"
    return rows, torch.cdist(rows, rows, p=DUAL[norm], compute_mode=exact)


@models.keeping_generators()
def gradient_normalized_margin(
    model: models.Model,
    images: ArrayLike,
    *,
    norm: Norm = "linf",
    nearest: bool = False,
    batch_size: int = 256,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return the logit margin divided by the dual norm of its gradient.

    To first order, it is the distance to the boundary of the second likeliest class, at
    one forward and one backward pass. It is exact for a linear model of two classes.
    Chapter 23.

    Parameters
    ----------
    model, norm, batch_size, device
        As for :func:`robustbook.attacks.pgd`.
    images : Tensor or ndarray, shape (N, ...)
        Inputs of any range, float32 or float64.
    nearest : bool, default False
        Take the smallest distance over all other classes, with K - 1 backward passes,
        which is exact for every linear model.

    Returns
    -------
    Tensor, shape (N,)
        Distances, float64, on the device of the images; ``inf`` where the gradient is
        zero.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a logit is NaN or infinite.

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> image = torch.tensor([[0.9, 0.1]])
    >>> distance = gradient_normalized_margin(lambda x: x @ weights.T, image)
    >>> round(float(distance[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    inputs = check_inputs(images)
    check_choice("norm", norm, DUAL)
    check_count("batch_size", batch_size)
    models.warn_of_training(model)
    place = models.find_device(model, inputs, device)
    smallest = []
    with torch.inference_mode(False), torch.enable_grad():
        for part in torch.split(inputs, batch_size):
            part = part.clone().to(place).requires_grad_()
            logits = models.model_logits(model, part)
            check_logits("model's logits", logits)
            models.check_differentiable(logits)
            order = logits.detach().argsort(dim=1, descending=True, stable=True).T
            others = order[1:] if nearest else order[1:2]
            to_others = boundary_distances(logits, part, order[0], others, norm)
            smallest.append(reduce(torch.minimum, to_others))
    return torch.cat(smallest).to(inputs.device)


def boundary_distances(
    logits: Tensor,
    images: Tensor,
    labels: Tensor,
    classes: Iterable[Tensor],
    norm: Norm,
) -> Iterator[Tensor]:
    """Yield the first-order distance to each class: the gap over its slope's norm."""
    rows = torch.arange(len(images), device=images.device)
    for other in classes:
        gap = logits[rows, labels] - logits[rows, other]
        (slope,) = torch.autograd.grad(
            gap.sum(), images, retain_graph=True, materialize_grads=True
        )
        flat = slope.double().flatten(1)
        length = torch.linalg.vector_norm(flat, ord=DUAL[norm], dim=1)
        # A tie is at distance 0, whatever its gradient.
        yield torch.where(gap == 0, 0.0, gap.detach().double() / length)
