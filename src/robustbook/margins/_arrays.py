"""Checks of one-dimensional arrays."""

import numpy as np
import numpy.typing as npt
import torch

from robustbook._checks.arguments import (
    ArrayLike,
    as_real,
    as_tensor,
    check_labels,
    check_non_negative,
)

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def check_vector(
    name: str, value: ArrayLike, *, length: int | None = None, low: float = -np.inf
) -> Vector:
    """Return ``value`` as float64 of shape (N,), without NaN; ``inf`` is allowed."""
    tensor = as_real(name, value)
    if tensor.ndim != 1 or len(tensor) == 0:
        raise ValueError(
            f"{name}: expected shape (N,) with at least one sample, got "
            f"{tuple(tensor.shape)}"
        )
    if length is not None and len(tensor) != length:
        raise ValueError(f"{name}: expected {length} numbers, got {len(tensor)}")
    vector: Vector = tensor.cpu().numpy()
    bad = np.flatnonzero(~(vector >= low))  # NaN is not at least -inf
    if len(bad):
        raise ValueError(
            f"{name}: expected numbers of at least {low:g}, got {vector[bad[0]]:g} at "
            f"index {bad[0]}"
        )
    return vector


def check_radius(eps: float, margins: Vector) -> float:
    """Return the ε of margins; 8 for 8/255 is refused where margins are of pixels."""
    limit = check_non_negative("eps", eps)
    largest = margins[np.isfinite(margins)].max(initial=0)
    if largest <= 1 < limit:
        raise ValueError(
            f"eps: expected the unit of the margins, the largest of which is "
            f"{largest:g}; got {limit:g}; for {limit:g} of 255 levels pass "
            f"{limit:g}/255"
        )
    return limit


def check_scores(logit_margin: ArrayLike, correct: ArrayLike) -> tuple[Vector, Flags]:
    """Return scores as float64, and as booleans whether predictions are right."""
    scores = check_vector("logit_margin", logit_margin)
    right = check_labels("correct", correct, length=len(scores), num_classes=2)
    return scores, right.bool().cpu().numpy()


def check_indices(value: ArrayLike, *, population: int) -> Indices:
    """Return ``value`` as two or more distinct indices of a population, int64 (n,)."""
    tensor = as_tensor("indices", value)
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise TypeError(f"indices: expected integers, got dtype {tensor.dtype}")
    indices: Indices = tensor.cpu().to(torch.int64).numpy()
    if len(indices) < 2:
        raise ValueError(
            f"indices: expected at least two measured samples, got {len(indices)}"
        )
    if indices.min() < 0 or indices.max() >= population:
        raise ValueError(
            f"indices: expected indices from 0 to {population - 1}, got "
            f"{indices.min()} to {indices.max()}"
        )
    if len(np.unique(indices)) != len(indices):
        raise ValueError("indices: expected every sample at most once")
    return indices
