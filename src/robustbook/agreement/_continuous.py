r"""Agreement of regressions: Gibbs posteriors over the real line.

A hypothesis names a value t for each sample, at the risk rho(t - f), f being what the
model predicts. With a prior density pi,

    J(beta) = mean_i log int p'_i(t) p''_i(t) / pi(t) dt,
    p_i(t) proportional to pi(t) exp(-beta rho(t - f_i)).

For the squared risk and a Gaussian prior, J has a closed form and one hill at most. For
another convex risk and a uniform prior on an interval, sums over a grid of K values are
the kernel of K classes, which is certified; so are the integrals, by a bound on the
sums' error.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_positive, check_real
from robustbook.agreement._docs import SHARED
from robustbook.agreement._kernel import Kernel
from robustbook.agreement._result import CertifiedAgreement
from robustbook.agreement._search import CertificateError, maximize

#: Values of the first grid, by what it grows, and most entries of one.
_FIRST_GRID: Final = 256
_FINER: Final = 2
_MOST_ENTRIES: Final = 2**23

Risk = Callable[[Tensor], Tensor]


class ContinuousAgreement(CertifiedAgreement):
    """Posterior agreement of real predictions: a :class:`CertifiedAgreement`.

    At least 0, and ``inf`` where none changes; ``beta`` is in units of 1/risk.
    """


@SHARED.fill
def gaussian_agreement(
    predictions: Any, shifted: Any, *, scale: float, center: float = 0.0
) -> ContinuousAgreement:
    r"""Posterior agreement of regressions under the squared risk.

    The risk is (t - f)^2 / 2, the prior Gaussian. In units of its scale, let A be the
    mean of (f' + f'')^2 / 2 and B that of (f' - f'')^2 / 2, and r = beta scale^2. Then

    .. math::

       J = \tfrac12 \log\frac{(1+r)^2}{1+2r} + \frac{A r^2}{1+2r}
           - \frac{(A+B) r^2}{2(1+r)}.

    It rises to its only maximum, the root of a cubic, if B < 1 + A, and is never above
    0 otherwise. Several outputs are independent coordinates with one beta: A and B are
    then sums over them. Source: Chapter 35; not in the papers.

    Parameters
    ----------
    predictions, shifted : Tensor or array, shape (N,) or (N, d)
        Predictions on the clean and on the shifted inputs, in the same order.
    scale : float
        Standard deviation of the prior, in units of the predictions: how far the values
        to be predicted spread.
    center : float, default 0
        Mean of the prior.

    Returns
    -------
    ContinuousAgreement
        With ``upper_bound`` equal to ``pa``: the maximum is known in closed form.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean = torch.linspace(-2, 2, 50)
    >>> noisy = clean + 0.3 * torch.cos(7 * clean)
    >>> f"{gaussian_agreement(clean, noisy, scale=1).pa:.3f} nats"
    '1.760 nats'
    """
    width = check_positive("scale", scale)
    middle = check_real("center", center)
    first, second = ((side - middle) / width for side in _pair(predictions, shifted))
    outputs = first.shape[1]
    total = 0.5 * (first + second).square().sum(1)
    apart = 0.5 * (first - second).square().sum(1)
    sharpness = _gaussian_maximizer(
        float(total.mean()) / outputs, float(apart.mean()) / outputs
    )
    per_sample = _gaussian_kernel(sharpness, total, apart, outputs)
    pa = math.inf if math.isinf(sharpness) else max(0.0, float(per_sample.mean()))
    return ContinuousAgreement(pa, sharpness / width**2, pa, per_sample)


def _gaussian_kernel(r: float, total: Tensor, apart: Tensor, outputs: int) -> Tensor:
    """Contribution of each sample at r = beta scale^2; nothing cancels for large r."""
    if math.isinf(r):
        return torch.full_like(total, math.inf)
    spread = math.log1p(r * r / (1 + 2 * r))
    # A r^2 / (1 + 2r) - A r^2 / (2 (1 + r)) = A r^2 / (2 (1 + r) (1 + 2r)).
    gain = total * (0.5 * (r / (1 + r)) * (r / (1 + 2 * r)))
    return 0.5 * outputs * spread + gain - apart * (0.5 * r * (r / (1 + r)))


def _gaussian_maximizer(total: float, apart: float) -> float:
    """The root of J'; 0 if J falls from there, infinity if it never does."""
    if apart == 0.0:
        return math.inf
    if apart >= 1.0 + total:
        return 0.0
    coefficients = (
        -2 * apart,
        2 - 6 * apart,
        3 + 1.5 * total - 4.5 * apart,
        1 + total - apart,
    )

    def slope(r: float) -> float:
        return float(np.polyval(coefficients, r))

    # Cauchy's bound on the roots of a polynomial; the signs change once.
    end = 1 + max(abs(c) for c in coefficients[1:]) / (2 * apart)
    if not math.isfinite(end):
        return math.inf
    return float(brentq(slope, 0.0, end, xtol=1e-14, rtol=1e-14, maxiter=1000))


@SHARED.fill
def continuous_agreement(
    predictions: Any,
    shifted: Any,
    *,
    interval: tuple[float, float],
    risk: Risk = torch.abs,
    steepness: float = 1.0,
    tol: float = 1e-3,
) -> ContinuousAgreement:
    r"""Posterior agreement of regressions under a convex risk, certified.

    The prior is uniform on an interval. Integrals are midpoint sums over a grid, whose
    agreement is that of a classifier with as many classes; the grid is made finer until
    the bound on the error of the sums closes the gap. Source: Chapter 35; not in the
    papers.

    Parameters
    ----------
    predictions, shifted : Tensor or array, shape (N,)
        Predictions on the clean and on the shifted inputs, all inside `interval`.
    interval : (float, float)
        Where the values to be predicted lie.
    risk : callable, default torch.abs
        rho: the risk of a difference t - f, elementwise: convex, even, 0 at 0.
    steepness : float, default 1
        A Lipschitz constant of `risk` on differences up to the interval's length.
    tol : float, default 1e-3
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.

    Returns
    -------
    ContinuousAgreement
        ``pa`` is a proven lower bound: J at ``beta``, minus the bound on its error.

    {TypeError} {ValueError}
    CertificateError
        If the grid would need more than 2^23 entries; predictions that change by a
        tiny part of the interval do.

    Examples
    --------
    >>> clean = torch.linspace(-2, 2, 50)
    >>> noisy = clean + 0.3 * torch.cos(7 * clean)
    >>> result = continuous_agreement(clean, noisy, interval=(-3, 3))
    >>> f"{result.pa:.2f} nats", result.gap <= 1e-3
    ('1.84 nats', True)
    """
    accepted = check_positive("tol", tol)
    steep = check_positive("steepness", steepness)
    low, high = (check_real("interval", end) for end in interval)
    first, second = (side[:, 0] for side in _pair(predictions, shifted, outputs=1))
    least, most = torch.stack((first, second)).aminmax()
    if not low < high or float(least) < low or float(most) > high:
        raise ValueError(
            f"interval: expected (low, high) around all predictions, got {interval}"
        )
    problem = _Problem(first, second, low, high, risk, steep)
    if problem.depth == 0.0:
        everything = torch.full_like(first, math.inf)
        return ContinuousAgreement(math.inf, math.inf, math.inf, everything)
    size = _FIRST_GRID
    while size * len(first) <= _MOST_ENTRIES:
        # The maximum is about where J begins its last fall, which says without a
        # search that a grid is too coarse.
        if problem.error(0.4 / problem.depth, problem.length / size) <= accepted:
            result = problem.solve(size, 0.25 * accepted)
            if result.gap <= accepted:
                return result
        size *= _FINER
    raise CertificateError(
        f"continuous agreement: {len(first)} samples would need a grid of {size} "
        "values; set a larger tol, or an interval that is no longer than the values "
        "spread"
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """Predictions on an interval, and what bounds the error of a grid."""

    first: Tensor
    second: Tensor
    low: float
    high: float
    risk: Risk
    steep: float

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def depth(self) -> float:
        """How fast J falls in the end: the best joint risk, on average.

        A convex even risk is least, for both predictions, in the middle.
        """
        half = 0.5 * (self.first - self.second)
        return float(2.0 * self.risk(half).mean())

    def solve(self, size: int, tol: float) -> ContinuousAgreement:
        """The agreement on a grid, and what it proves of the integrals."""
        step = self.length / size
        grid = torch.arange(size, dtype=torch.float64, device=self.first.device)
        values = self.low + step * (grid + 0.5)
        views = [
            -self.risk(values - side[:, None]) for side in (self.first, self.second)
        ]
        trace = maximize(Kernel(*views), tol)
        error = self.error(trace.beta, step)
        pa = max(0.0, trace.value - error)
        # Where the bound without a grid is as low as that, nothing remains to be seen.
        end = 2.0 / self.depth
        while self.beyond(end) > pa:
            end *= 1.2
        bounds = [
            bound + self.error(min(right, end), step)
            for left, right, bound in trace.intervals
            if left < end
        ]
        return ContinuousAgreement(pa, trace.beta, max(pa, *bounds), trace.per_sample)

    def error(self, beta: float, step: float) -> float:
        """Bound on what the sums of a grid add to J, or take away.

        A function g of bounded slope has midpoint sums within step^2 / 8 times the
        variation of g'. Here g is exp(-beta risk), log-concave with slopes of at most
        b = beta steepness, so that variation is at most 6 b, while its integral is at
        least (1 - exp(-b length / 2)) / b. In the joint integral b is twice as large.
        """
        total = 0.0
        for slope, times in ((beta * self.steep, 2), (2 * beta * self.steep, 1)):
            if slope == 0.0:
                continue
            mass = -math.expm1(-0.5 * slope * self.length) / slope
            share = 0.75 * step * step * slope / mass
            if share >= 0.5:
                return math.inf
            total -= times * math.log1p(-share)
        return total

    def beyond(self, beta: float) -> float:
        """Bound on J from `beta` on, without a grid; it falls from 2 / depth on.

        The joint integral is at most exp(-beta depth), the two others at least
        (1 - exp(-b length / 2)) / (b length), over the interval's length.
        """
        slope = beta * self.steep * self.length
        return 2.0 * math.log(slope / -math.expm1(-0.5 * slope)) - beta * self.depth


def _pair(first: Any, second: Any, outputs: int | None = None) -> tuple[Tensor, Tensor]:
    """Two arrays of predictions (N, d) in float64; d is 1 for those of shape (N,)."""
    tensors = []
    for name, value in (("predictions", first), ("shifted", second)):
        tensor = as_tensor(name, value).double()
        if tensor.ndim not in (1, 2) or not tensor.numel():
            raise ValueError(
                f"{name}: expected shape (N,) or (N, d), got {tuple(tensor.shape)}"
            )
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
        tensors.append(tensor.reshape(len(tensor), -1))
    a, b = tensors
    if a.shape != b.shape:
        raise ValueError(
            f"shifted: expected shape {tuple(a.shape)} as predictions, got "
            f"{tuple(b.shape)}"
        )
    if outputs is not None and a.shape[1] != outputs:
        raise ValueError(f"predictions: expected one output, got {a.shape[1]}")
    return a, b
