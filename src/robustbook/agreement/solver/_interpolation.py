"""Upper bounds on J by interpolation, their error bounded in the complex plane.

Chapter 7 has the lemma and its proof for two views and equal weights. Here, let S(z) =
sum_j w_j exp(z x_j) with w_j > 0 and all x_j <= 0, one of them 0: a view, or all of
them together after the shift by the depth; E_a is the mean under w_j exp(a x_j). The
proof is the same, with the sum of all weights over the least, less 1, for K - 1.

Small views
    With a uniform prior, multiply all views of a sample but the widest by s, from 1
    to 0. At s = 0 the sample's J is 0. Let y be the sum of these views, r the sum of
    their ranges. The derivative in s of the joint log S(z) is a complex mean of z y,
    that of theirs one of z x_v. Less the linear functions with y and x_v in the
    middles of their ranges, they are at most 4 |z| r/2 each in absolute value. So J
    differs from a linear function by at most 4 (c + R) n, where n is the mean of r, if
    all sums on the way are tame on the disc of centre c and radius R. They are where
    the lemma's last two conditions hold (with the sum of all ranges), or where

        b^2 exp(a r) (sqrt(E_a x^2) + r)^2 <= 3/2

    for the widest view: the others change each weight by a factor between exp(-a r)
    and 1, up to a common one, and each x by at most r, counted from where the widest
    view is largest. Better, where the widest view is nearly sure: counted from there,
    the complex mean of y is at most 4 r exp(a r) (1 - p), where p is its largest
    probability at a; and the derivatives of the other views differ from their values
    at s = 0, linear in z, by the integral of a complex variance, at most 5 |z|^2 s r^2
    for all of them together. So 4 (c + R) n may be replaced by

        4 (c + R) exp((c + R) max r) mean(r (1 - p)) + 5/2 (c + R)^2 mean(r^2).
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy.interpolate import KroghInterpolator

from robustbook.agreement.solver._kernel import Evaluation, Kernel

#: Sums of absolute values are at most so many times the absolute value of the sum.
TAME = 4.0
#: Nodes of an interpolant, and how far out on the disc they may lie.
MOST_NODES = 9
FARTHEST = 0.97
#: How far apart they are, in lengths of the interval: rounding at close ones grows.
APART = 0.15
#: Radii that are tried, and pieces in which the remainder is bounded.
RADII = 8
PIECES = 24


@dataclass(frozen=True)
class Node:
    """What interpolation needs of an evaluation: three derivatives and moments.

    ``rounding`` bounds the errors of the derivatives. ``moment`` is the mean over the
    samples of E|x|, summed over the views and their product; the rest as in
    :class:`Moments`, of which ``mixed`` is squared.
    """

    beta: float
    derivatives: tuple[float, float, float]
    rounding: tuple[float, float, float]
    moment: float
    square: float
    mixed: float
    blend: float


class Interpolation:
    """Bounds on J between evaluations that were added, from all of them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.nodes: list[Node] = []
        wide, narrow = kernel.ranges.sum(0), kernel.narrow
        #: What rounding may add to a moment, as a factor.
        self._unit = unit = 1.0 + 8.0 * kernel.relative_error
        self._total, self._narrow_mean, self._narrow_square = (
            unit * part / kernel.num_samples
            for part in kernel.totals(wide, narrow, narrow**2)
        )
        largest, self._narrowest = (unit * top for top in kernel.largest(wide, narrow))
        self._tangent = math.tan(sector(kernel.surplus))
        self._strip = math.acos(1.0 / TAME) / largest if largest else math.inf

    def add(self, *points: Evaluation) -> None:
        """Keep the scalars of evaluations."""
        self.nodes += map(self._node, points)
        self.nodes.sort(key=lambda node: node.beta)
        table = [(n.beta, n.moment, n.square, n.blend, n.mixed) for n in self.nodes]
        columns = np.array(table).T
        self._betas, self._moments, self._squares, self._blends, mixed = columns
        # Before the next node, small views change weights by at most this factor.
        ends = np.append(self._betas[1:], 1e300)
        with np.errstate(all="ignore"):
            self._mixed = np.exp(ends * self._narrowest) * mixed

    def _node(self, point: Evaluation) -> Node:
        unit, error = self._unit, 8.0 * self.kernel.relative_error
        slopes = point.slope + 2.0 * point.concave_slope
        moments = self.kernel.moments_of(point)
        return Node(
            beta=point.beta,
            derivatives=(point.value, point.slope, point.curvature),
            rounding=(point.rounding, point.slope_rounding, error * moments.size),
            moment=-unit * (slopes + self.kernel.depth),
            square=unit * moments.square,
            mixed=unit * moments.mixed**2,
            blend=max(moments.blend, 0.0) + error * self._narrow_mean,
        )

    def near(self, beta: float) -> list[Node]:
        """The node at `beta`, the next one, then others by distance from the middle."""
        place = bisect_left(self.nodes, beta, key=lambda node: node.beta)
        left, right = self.nodes[place : place + 2]
        others = self.nodes[max(place - 2 * MOST_NODES, 0) : place]
        others += self.nodes[place + 2 : place + 2 * MOST_NODES]
        middle = left.beta + 0.5 * (right.beta - left.beta)
        others.sort(key=lambda node: abs(node.beta - middle))
        near, least = [left, right], APART * (right.beta - left.beta)
        for node in others:
            if all(abs(node.beta - other.beta) >= least for other in near):
                near.append(node)
        return near[:MOST_NODES]

    def ceiling(self, near: list[Node], known: float, fine: float) -> Ceiling | None:
        """A polynomial over J between the first two of `near`, neighbours.

        It is left out where it cannot be smaller than the `known` bound; nodes are
        added only while the remainder is larger than `fine`.
        """
        left, right = near[:2]
        half = 0.5 * (right.beta - left.beta)
        centre = left.beta + half
        with np.errstate(all="ignore"):
            radii, sizes = self._discs(centre, 1.05 * half)
        if not len(radii):
            return None
        # In units of half the interval. Rows: discs. Columns: how many nodes count.
        places = (np.array([node.beta for node in near]) - centre) / half
        rows = radii[:, None] / half
        inner = (np.abs(places) <= FARTHEST * rows).cumprod(1)
        outside = np.minimum(
            np.cumprod(rows - places, axis=1), np.cumprod(rows + places, axis=1)
        )
        with np.errstate(all="ignore"):
            factors = sizes[:, None] / (1.0 - 1.0 / rows) / outside**3
            errors = factors * _products(places) ** 3
        errors[:, 0] = math.inf
        errors[(inner == 0) | np.isnan(errors)] = math.inf
        errors = errors.clip(fine, None)
        count, disc = divmod(int(errors.T.argmin()), len(radii))
        lowest = min(left.derivatives[0], right.derivatives[0])
        if not lowest + errors[disc, count] < known:
            return None
        return Ceiling.over(
            near[: count + 1], centre, half, (1.0 + 1e-9) * factors[disc, count]
        )

    def _discs(self, centre: float, least: float) -> tuple[np.ndarray, np.ndarray]:
        """Radii above `least` of some tame discs, and bounds on J less a line there."""
        radii = self._radii(centre, least, self._squares)
        moments = self._before(centre - radii, self._moments, 2.0 * self._total)
        sizes = TAME * radii * moments
        if self.kernel.uniform:
            more = self._radii(centre, least, self._mixed)
            ends = centre + more
            blends = self._before(centre - more, self._blends, self._narrow_mean)
            blends = TAME * blends * np.exp(ends * self._narrowest)
            blends += 2.5 * ends * self._narrow_square
            # Where the exponential overflows, the product may be no number.
            narrow = np.fmin(TAME * self._narrow_mean, blends)
            radii = np.concatenate([radii, more])
            sizes = np.concatenate([sizes, ends * narrow])
        return radii, sizes

    def _before(self, low: np.ndarray, falling: np.ndarray, most: float) -> np.ndarray:
        """Values of a falling moment at the last nodes that are not beyond `low`."""
        places = self._betas.searchsorted(low, side="right")
        return np.append(most, falling)[places]

    def _radii(self, centre: float, least: float, squares: np.ndarray) -> np.ndarray:
        heights = np.fmax(np.sqrt(1.5 / squares), self._betas * self._tangent)
        heights = np.maximum(np.append(0.0, heights), self._strip)
        # Between two nodes, the circle is highest where it is nearest to its centre.
        ends = np.concatenate([[-math.inf], self._betas, [math.inf]])
        away = np.clip(centre, ends[:-1], ends[1:]) - centre
        room = float(np.hypot(away, heights).min())
        sine = self._tangent / math.hypot(1.0, self._tangent)
        largest = min(max(room, centre * sine), 64.0 * least)
        if not largest > least:
            return np.empty(0)
        return largest * (least / largest) ** np.linspace(0.0, 1.0, RADII)


@functools.cache
def sector(surplus: float) -> float:
    """Half-angle of the tame sector, for weights whose sum is 1 + surplus at most."""
    low, high = 0.0, 0.5 * math.pi
    for _ in range(60):
        angle = 0.5 * (low + high)
        turn = math.acos(math.cos(angle) / TAME)
        worst = surplus * math.exp(-2.0 * turn / math.tan(angle))
        tame = worst * math.sin(turn + angle) <= math.sin(turn - angle)
        low, high = (angle, high) if tame else (low, angle)
    return low


def _products(places: np.ndarray) -> np.ndarray:
    """Upper bounds on prod |t - x| over |t| <= 1, for the first 1, 2, ... nodes."""
    grid = np.linspace(-1.0, 1.0, PIECES + 1)
    away = np.abs(grid[:, None] - places)
    return np.cumprod(np.maximum(away[1:], away[:-1]), axis=1).max(0)


@dataclass(frozen=True)
class Ceiling:
    """The interpolant plus its error: Chebyshev coefficients, and a slack for rounding.

    Over [-1, 1] for the interval; ``count`` says how many nodes it uses.
    """

    series: np.ndarray
    slack: float
    count: int

    @classmethod
    def over(
        cls, nodes: list[Node], centre: float, half: float, factor: float
    ) -> Ceiling:
        """The one over [centre - half, centre + half], between neighbouring nodes."""
        scale = np.array([1.0, half, half * half])
        order = sorted(nodes, key=lambda node: node.beta)
        data = np.array([node.derivatives for node in order])
        base = data[0, 0]
        data = (data - (base, 0.0, 0.0)) * scale
        rounding = np.array([node.rounding for node in order]) * scale
        places = np.array([(node.beta - centre) / half for node in order])
        degree = 3 * len(places)
        basis = KroghInterpolator(places.repeat(3), np.eye(degree))
        points = chebyshev.chebpts1(degree + 1)
        at = basis(points)
        # No node lies inside, so the absolute value is a polynomial there.
        error = factor * np.abs(np.prod(points[:, None] - places, axis=1)) ** 3
        values = at @ data.ravel() + error
        series = 2.0 * chebyshev.chebvander(points, degree).T @ values / (degree + 1)
        series[0] *= 0.5
        slack = 2.0 * float((np.abs(at) @ rounding.ravel()).max())
        # What is cut off is counted; the rest has critical points that can be found.
        small = 1e-16 * float(np.abs(series).max())
        kept = chebyshev.chebtrim(series, small)
        slack += 2.0 * small * (len(series) - len(kept))
        kept[0] += base
        return cls(kept, slack, len(nodes))

    @property
    def top(self) -> float:
        """Its maximum."""
        tried = np.array([-1.0, 1.0])
        if len(self.series) > 2:
            turns = chebyshev.chebroots(chebyshev.chebder(self.series))
            tried = np.append(tried, turns.real).clip(-1.0, 1.0)
        return float(chebyshev.chebval(tried, self.series).max()) + self.slack
