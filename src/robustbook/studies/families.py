"""Intervals over networks: those of one design are not independent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

__all__ = ["matched_difference", "over_families"]

#: Designs of the public networks, by a part of the name.
_DESIGNS: Final = {
    "cnn_a": "wide",
    "wide_kw": "wide",
    "mnist-kw": "wide",
    "fashion-kw": "wide",
    "conv_small": "small",
    "resnet2b": "ResNet-b",
    "resnet4b": "ResNet-b",
    "cifar10-resnet": "ResNet",
    "marabou": "Marabou",
    "advertorch_lenet5": "LeNet",
}


def design_of(network: str) -> str:
    """Return the design of a network: its family, or its name where it has none.

    Examples
    --------
    >>> design_of("cifar10-cnn_a_mix") == design_of("mnist-cnn_a_adv")
    True
    """
    return next((d for part, d in _DESIGNS.items() if part in network), network)


def over_families(
    statistic: Callable[[Sequence[str]], float], networks: Sequence[str]
) -> tuple[float, float, float]:
    """Return a statistic of networks with its 95 % interval over their families.

    The jackknife that leaves out one design after the other, for families of unlike
    size. Simulated, an interval of a mean holds it in 88 to 95 % of cases, least where
    one design has half of the networks. Source: Busing and others (1999); Chapter 25.

    Parameters
    ----------
    statistic : callable
        A function of a subset of the networks' names, in their order.
    networks : sequence of str
        Distinct names.

    Returns
    -------
    value, low, high : float
        The statistic of all, and the ends of Student's interval.

    Raises
    ------
    ValueError
        If all networks are of one design.

    Examples
    --------
    >>> shares = {"a": 0.1, "b": 0.3, "c": 0.2}
    >>> from statistics import fmean
    >>> ends = over_families(lambda names: fmean(map(shares.get, names)), "abc")
    >>> [round(end, 3) for end in ends]
    [0.2, -0.048, 0.448]
    """
    members = [design_of(network) for network in networks]
    groups = list(dict.fromkeys(members))
    if len(groups) < 2:
        raise ValueError(
            f"networks must be of at least 2 designs, got {len(groups)}; add others"
        )
    value, size, g = float(statistic(networks)), len(networks), len(groups)
    others = [
        [n for n, member in zip(networks, members, strict=True) if member != group]
        for group in groups
    ]
    without = np.array([statistic(names) for names in others])
    h = size / np.array([members.count(group) for group in groups])
    pseudo = h * value - (h - 1) * without
    center = g * value - ((1 - 1 / h) * without).sum()
    error = math.sqrt(((pseudo - center) ** 2 / (h - 1)).mean())
    half = float(student.ppf(0.975, g - 1)) * error
    return value, value - half, value + half


def matched_difference(
    values: npt.ArrayLike, level: npt.ArrayLike, treated: npt.ArrayLike
) -> float:
    """Return by how much treated networks exceed others of the same level.

    The coefficient of `treated` where least squares explain `values` by it and by
    `level`, along parallel lines. Chapter 39.

    Parameters
    ----------
    values, level : array_like, shape (n,)
        What is compared, and what is to be the same, of each network.
    treated : array_like of bool, shape (n,)
        Which networks are compared with the others.

    Examples
    --------
    >>> matched_difference([1.0, 2.0, 3.5, 4.5], [1, 2, 3, 4], [0, 0, 1, 1])
    0.5
    """
    level = np.asarray(level, dtype=np.float64)
    design = np.column_stack([np.ones(len(level)), level, np.asarray(treated, float)])
    fitted = np.linalg.lstsq(design, np.asarray(values, dtype=np.float64), rcond=None)
    return round(float(fitted[0][2]), 12)
