"""Sums over classes, samples and chunks whose rounding is bounded."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement.solver._shards import ALONE, Reduction, Shards

#: Unit roundoff of float64: every operation is exact up to this relative error.
UNIT_ROUNDOFF: Final = 2.0**-53
#: Samples that are added up in one go.
GROUP: Final = 128


def spread_bounds(columns: Tensor, later: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds on moments of each sample between two inverse temperatures.

    Columns are logarithms of power sums S_0 and means of x and x^2 under the weights;
    the zeroth and second power sum fall in beta and the first rises, so each is bounded
    by its value at one end. Returns the largest mean square of the sum of all views,
    and its largest variance minus the least variances of the views.
    """
    logs, means, squares = columns
    later_logs, later_means, later_squares = later
    # S_0 at the left end over S_0 at the right one.
    fall = (logs - later_logs).exp_()
    highest = squares[..., -1, :] * fall[..., -1, :]
    spread = highest - (later_means[..., -1, :] / fall[..., -1, :]).square_()
    fall = fall[..., :-1, :]
    means = (means[..., :-1, :] * fall).square_()
    spread -= (later_squares[..., :-1, :] / fall - means).clamp_min_(0.0).sum(-2)
    return highest, spread


def add_up(table: Tensor) -> Tensor:
    """Sums of rows (c, n): in groups of 128, so that rounding does not grow with n."""
    size = table.shape[1]
    if size <= GROUP:
        return table.sum(1)
    whole = size - size % GROUP
    groups = table[:, :whole].reshape(len(table), -1, GROUP).sum(2)
    return add_up(torch.cat([groups, table[:, whole:]], 1))


def terms(size: int) -> int:
    """How often :func:`add_up` rounds a number of a row, at most."""
    return size if size <= GROUP else GROUP + terms(size // GROUP + GROUP - 1)


def below(values: Tensor, cuts: Sequence[int]) -> list[float]:
    return [float((values < cut).sum()) for cut in cuts]


def together(parts: Sequence[Tensor], how: Sequence[Reduction]) -> list[float]:
    """What the chunks give: added exactly, so only the sums inside a chunk round."""
    if not parts:
        return [0.0 if one is math.fsum else -math.inf for one in how]
    columns = torch.stack(list(parts)).T.tolist()
    return [one(column) for one, column in zip(how, columns, strict=True)]


def relative_error(views: int, classes: int, row_terms: int) -> float:
    """Bound on the relative rounding error of a sum over classes and a chunk.

    All sums have terms of one sign. A term x^k exp(beta x) that does not underflow
    has beta |x| <= 745, so its argument, rounded twice, costs 1490 u, the
    exponential and the factors 10 u more; terms that underflow are below 1e-307 and
    are covered by the same figure. Adding K terms in any order costs K u. Samples
    are added in groups of 128, groups in groups and so on, one u a term; chunks are
    added exactly. Up to m + 1 sums over classes meet: one for each view and the
    joint one. Here u = 2^-53.
    """
    sums = (views + 1) * (classes + 1500)
    return UNIT_ROUNDOFF * (sums + row_terms + 100)


def place_of_largest(rows: Tensor) -> Tensor:
    """Places (1, N) of the largest entries of columns (m, N), where argmax is slow."""
    place = torch.zeros_like(rows[:1], dtype=torch.int64)
    top = rows[0]
    for row in range(1, len(rows)):
        place[0, rows[row] > top] = row
        top = torch.maximum(top, rows[row])
    return place


def sum_without(rows: Tensor, place: Tensor) -> Tensor:
    """Sums of columns (m, N) without one entry each: differences of sums may cancel."""
    return rows.scatter(0, place, 0.0).sum(0)


def median(values: Tensor, shards: Shards) -> float:
    """Upper median of positive numbers over all shards, 0 of none.

    Their bits, as integers, are in the same order: three of them an exchange.
    """
    if shards is ALONE:
        place = len(values) // 2 + 1
        return float(values.kthvalue(place).values) if len(values) else 0.0
    bits, how = values.view(torch.int64), [math.fsum] * 7
    (count,) = shards.reduce(lambda: [float(len(bits))])
    low = 0
    for place in range(60, -1, -3):
        cuts = [low + (digit << place) for digit in range(1, 8)]
        numbers = shards.reduce(partial(below, bits, cuts), how)
        low += sum(number <= count // 2 for number in numbers) << place
    return float(torch.tensor(low).view(torch.float64)) if count else 0.0
