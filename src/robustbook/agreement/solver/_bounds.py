"""Upper bounds on J over an interval, from the evaluations at its two ends.

Each is valid on its own, and has a slack for rounding; the search uses the smallest:

chord/tangent
    C lies under its chord, D over its tangents at both ends, so J lies under the
    minimum of two straight lines.
curvature
    Means and power sums are monotone in beta, so their values at the two ends bound
    the curvature of J by some M on the whole interval. Then J lies under the minimum
    of two parabolas. Where M < 0 it is proven concave, and the bound is tight to the
    third order in the width.
tail
    Beyond the last evaluation C falls at least as steeply as its asymptote, and
    D stays over its tangent and over its limit.
start
    Near 0, J is at most linear and at most quadratic in beta: :class:`StartBound`.

A fifth one needs more evaluations than two:
:mod:`robustbook.agreement.solver._interpolation`.
"""

import math

import torch
from torch import Tensor

from robustbook.agreement.solver._kernel import Evaluation, Kernel
from robustbook.agreement.solver._sums import sum_without

#: Beyond this inverse temperature only values and slopes count: there, logits matter
#: whose squares underflow.
LARGEST_CURVED = 1e140
#: Ends of an interval that is not too wide for the curvature bound are within a factor.
WIDEST_CURVED = 2.0


def interval_bound(
    kernel: Kernel, left: Evaluation, right: Evaluation, enough: float, most: float
) -> float:
    """Smallest proven upper bound on J over [left.beta, right.beta].

    The curvature is known to be at most `most`. It is not bounded from the two ends
    where the chord and tangents prove `enough`, where columns are not kept, where the
    ends are far apart, and where squares of logits that matter may underflow.
    """
    bound = min(chord_tangent_bound(left, right), kernel.cap)
    curved = left.columns is not None and right.columns is not None
    curved = curved and right.beta <= min(LARGEST_CURVED, WIDEST_CURVED * left.beta)
    if bound > enough and curved:
        most = min(most, largest_curvature(kernel, left, right))
    if bound > enough and most < math.inf:
        bound = min(bound, curvature_bound(left, right, most))
    return bound


def chord_tangent_bound(left: Evaluation, right: Evaluation) -> float:
    """Bound from the chord of C and the tangents of D, with rounding slack."""
    width = right.beta - left.beta
    chord = (right.convex - left.convex) / width
    rise = chord - left.concave_slope
    fall = chord - right.concave_slope
    slack = left.rounding + right.rounding
    if rise <= 0.0:
        return left.value + slack + width * left.slope_rounding
    if fall >= 0.0:
        return right.value + slack + width * right.slope_rounding
    # The two lines meet where D's tangents cross.
    step = (right.value - left.value - fall * width) / (rise - fall)
    step = min(max(step, 0.0), width)
    slack += step * left.slope_rounding + (width - step) * right.slope_rounding
    # Each line is a bound by itself, so either value at the crossing will do;
    # the larger one covers the rounding of the crossing.
    from_left = left.value + rise * step
    from_right = right.value - fall * (width - step)
    return max(from_left, from_right) + 2.0 * slack


def curvature_bound(left: Evaluation, right: Evaluation, most: float) -> float:
    """Bound where the curvature of J is at most `most`, with rounding slack."""
    width = right.beta - left.beta
    bend = 0.5 * most * width * width
    if not math.isfinite(bend):
        return math.inf

    def from_left(step: float) -> float:
        return left.value + left.slope * step + 0.5 * most * step * step

    def from_right(step: float) -> float:
        back = width - step
        return right.value - right.slope * back + 0.5 * most * back * back

    # A parabola peaks at an end or at its top; the minimum of two of equal curvature
    # also where they cross (their difference is linear).
    steps = [0.0, width]
    if most < 0.0:
        steps += [-left.slope / most, width - right.slope / most]
    steps = [min(max(step, 0.0), width) for step in steps]
    slacks = [
        2.0 * (end.rounding + width * end.slope_rounding) for end in (left, right)
    ]
    bounds = [
        max(map(from_left, steps)) + slacks[0],
        max(map(from_right, steps)) + slacks[1],
    ]
    tilt = left.slope - right.slope + most * width
    if tilt != 0.0:
        offset = right.value - right.slope * width + bend - left.value
        steps.append(min(max(offset / tilt, 0.0), width))
    both = max(min(from_left(step), from_right(step)) for step in steps)
    bounds.append(both + sum(slacks))
    return math.inf if math.isnan(sum(bounds)) else min(bounds)


def largest_curvature(kernel: Kernel, left: Evaluation, right: Evaluation) -> float:
    """Upper bound on the curvature of J over the interval, by monotone power sums."""
    assert left.columns is not None
    assert right.columns is not None
    fall = (left.columns[0] - right.columns[0]).exp_()
    size, total = kernel.totals(*spread_bounds(fall, left.columns, right.columns))
    return (total + 8.0 * kernel.relative_error * size) / kernel.num_samples


def spread_bounds(
    fall: Tensor, columns: Tensor, later: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds on moments of each sample between two inverse temperatures.

    `fall` is the power sum S_0 at the first over that at the second; rows 1 and 2 of
    the columns are means of x and x^2 under the weights. As all x are at most 0, the
    mean of x rises in beta, while that of x^2 falls, and so does S_0 times the
    variance, whose derivative is S_0 E[(x - E x)^2 x]: each is bounded by its value at
    one end. Returns a size, by which rounding is bounded as no number here is larger;
    and the largest variance of the sum of all views minus the least variances of the
    views.
    """
    squares, later_squares = columns[2], later[2]
    means, later_means = columns[1].square(), later[1].square()
    size = squares[..., -1, :] * fall[..., -1, :] + squares[..., :-1, :].sum(-2)
    spread = torch.minimum(
        (squares - means)[..., -1, :] * fall[..., -1, :],
        squares[..., -1, :] - later_means[..., -1, :],
    )
    least = ((later_squares - later_means) / fall)[..., :-1, :]
    other = (later_squares - means)[..., :-1, :]
    return size, spread - torch.maximum(least, other).clamp_min_(0.0).sum(-2)


def tail_bound(kernel: Kernel, last: Evaluation) -> float:
    """Upper bound on J over [last.beta, infinity)."""
    slack = 2.0 * last.rounding
    fastest = -last.concave_slope
    if fastest <= kernel.depth:
        bound = last.value
    else:
        # D reaches its limit along its tangent; C has fallen by then.
        step = max(last.concave - kernel.concave_limit, 0.0) / fastest
        bound = last.convex - kernel.depth * step - kernel.concave_limit
    return min(bound + slack, kernel.cap)


class StartBound:
    """Upper bound on J over [0, beta], from the power sums at 0; uniform prior.

    Of one sample, let m_v and s_v be the mean and the standard deviation of -x^v over
    the classes. Averaged under the posterior of any one view, the product of the
    others is at most the product of their maxima, and by Jensen's inequality each
    maximum times K is at most exp(beta m_v): so J <= beta (sum_v m_v - max_v m_v).
    Written view after view, J is a sum of log E[XY] / (E[X] E[Y]), and that is at most
    cov(X, Y) / (E[X] E[Y]), where X and Y are exponentials of beta x. Those have
    standard deviations of at most beta times that of x, and means of at least
    exp(-beta m): so J <= beta^2 exp(beta sum_v m_v) sum_{u<v} s_u s_v.
    """

    def __init__(self, kernel: Kernel, start: Evaluation) -> None:
        self.kernel = kernel
        assert start.columns is not None
        means, squares = -start.columns[1, :-1], start.columns[2, :-1]
        deviations = (squares - means * means).clamp_min_(0.0).sqrt_()
        self._mean = means.sum(0)
        self._lean = sum_without(means, means.max(0, keepdim=True).indices)
        self._product = (deviations[1:] * deviations.cumsum(0)[:-1]).sum(0)
        self._slope = kernel.mean(self._lean)
        self._unit = 8.0 * kernel.relative_error

    def __call__(self, beta: float) -> float:
        """Mean over the samples of the smallest of three bounds that grow with beta."""
        linear = (beta * self._lean).clamp_max_(self.kernel.cap)
        product = (beta * self._mean).exp_().mul_(self._product).mul_(beta).mul_(beta)
        # Where the exponential overflows, the product may be no number.
        return self.kernel.mean(torch.fmin(linear, product)) * (1.0 + self._unit)

    def reach(self, level: float, high: float) -> float:
        """A beta below `high` up to which J is at most `level`, and not much less."""
        low = min(level / self._slope, 0.5 * high)
        for _ in range(12):
            if 2.0 * low >= high:
                break
            middle = math.sqrt(low) * math.sqrt(high)
            low, high = (middle, high) if self(middle) <= level else (low, middle)
        return low
