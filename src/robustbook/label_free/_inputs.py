"""Probabilities and labels that estimates take, checked."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustbook._checks.arguments import check_labels
from robustbook.agreement import log_probabilities

Array = npt.NDArray[np.float64]


def flat(values: Any) -> Tensor:
    return torch.as_tensor(values).reshape(-1)


def probabilities(name: str, values: Any) -> Array:
    rows: Array = log_probabilities(values, name=name).exp().cpu().numpy()
    return rows


def with_labels(source: tuple[Any, Any], classes: int) -> tuple[Array, Array]:
    try:
        given, labels = source
    except (TypeError, ValueError):
        raise TypeError(
            "source: expected a pair, probabilities (M, K) and labels (M,)"
        ) from None
    rows = probabilities("source", given)
    if rows.shape[1] != classes:
        raise ValueError(
            f"source: expected {classes} classes as in shifted, got {rows.shape[1]}"
        )
    classes_of = check_labels(
        "source labels", flat(labels), length=len(rows), num_classes=classes
    )
    return rows, classes_of.cpu().numpy()
