"""The result of a measurement, and the difference between two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.agreement._docs import SHARED
from robustbook.agreement._kernel import Kernel
from robustbook.agreement._plot import plot_kernel
from robustbook.agreement._search import SearchTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Inverse temperatures of a plot, around the scale of the logits, in decades.
_DECADES = (-1.5, 2.5)
_PER_DECADE = 6


@dataclass(frozen=True, eq=False)
class Agreement:
    """Posterior agreement with its certificate.

    Attributes
    ----------
    pa : float
        Posterior agreement in nats per sample, in [0, log K] for a uniform prior.
    beta : float
        Inverse temperature of the maximum, in units of 1/logit; may be ``inf``.
    upper_bound : float
        Proven upper bound on sup J, in nats per sample; bounds the rounding of
        the arithmetic, too.
    evaluations : int
        Passes over the data that the search took.
    per_sample : Tensor, shape (N,)
        Contribution of every pair at ``beta``, in nats, float64; the mean is
        ``pa``.
    num_classes : int
        K.
    mismatch : float
        Share of pairs whose predictions (first argmax) differ: 1 - AFR_P.
    hard_part : float
        The agreement of the predictions alone, without confidences: the capacity
        of the K-ary symmetric channel at ``mismatch`` (nats).
    trace : SearchTrace
        Every step of the search.

    See Also
    --------
    robustbook.agreement.posterior_agreement

    Examples
    --------
    >>> import torch
    >>> from robustbook.agreement import posterior_agreement
    >>> result = posterior_agreement(torch.eye(4), torch.eye(4)[[0, 1, 2, 0]])
    >>> result.to_frame()[["pa", "beta", "mismatch"]].round(4)
           pa    beta  mismatch
    0  0.5493  2.9337      0.25
    >>> figure, axes = result.plot()
    """

    pa: float
    beta: float
    upper_bound: float
    evaluations: int
    per_sample: Tensor = field(repr=False)
    num_classes: int
    mismatch: float
    hard_part: float
    trace: SearchTrace = field(repr=False)

    @property
    def num_samples(self) -> int:
        """N, the number of pairs."""
        return len(self.per_sample)

    @property
    def gap(self) -> float:
        """``upper_bound - pa``: at most the ``tol`` that was asked for."""
        return self.upper_bound - self.pa

    @property
    def log_pa(self) -> float:
        """The papers' scale: N (pa - log K), in [-N log K, 0] for a uniform prior."""
        return self.num_samples * (self.pa - math.log(self.num_classes))

    @property
    def standard_error(self) -> float:
        """Standard error of ``pa`` over the sampling of pairs, in nats.

        By the envelope theorem, the variation of the maximizer does not count to
        first order: the standard error is that of the mean of ``per_sample``.
        Zero when all contributions are equal (for instance when every prediction
        agrees): then nothing was *seen* to vary, which is no proof that nothing
        does. Too small near chance, where the maximizer touches 0 (Chapter 7).
        NaN for a single pair.
        """
        return _standard_error(self.per_sample)

    @property
    def confidence_part(self) -> float:
        """``pa - hard_part``: what confidences add (or, if negative, take away)."""
        return self.pa - self.hard_part

    @SHARED.fill
    def plot(
        self,
        logits: Any = None,
        shifted_logits: Any = None,
        *,
        prior: Any = None,
        ax: Axes | None = None,
    ) -> tuple[Figure, Axes]:
        """Draw the agreement kernel J over beta, and mark its optimum.

        Parameters
        ----------
        logits, shifted_logits : tensor or array, shape (N, K), optional
            What was measured, for a finer curve. Without them it goes through what
            the search evaluated (points), which is dense at the optimum only: few
            or none where all predictions agree and the optimum is at infinity.
        prior : tensor or array, shape (K,), optional
            As it was measured.
        {ax}

        Returns
        -------
        {figure} {axes}

        Raises
        ------
        {ImportError}
        TypeError, ValueError
            If the logits are not those that were measured.
        """
        points = [(step.beta, step.value, step.slope) for step in self.trace.steps]
        if logits is not None or shifted_logits is not None:
            kernel = Kernel.checked(logits, shifted_logits, prior)
            check_same_pairs(self, kernel.logits)
            low, high = (_PER_DECADE * end for end in _DECADES)
            for place in range(int(low), int(high) + 1):
                beta = 10 ** (place / _PER_DECADE) / kernel.scale
                point = kernel.evaluate(beta)
                if point.value > self.upper_bound:
                    raise ValueError(
                        f"logits: expected those that were measured, with J of at "
                        f"most {self.upper_bound:g}, got {point.value:g} at "
                        f"beta={beta:g}"
                    )
                points.append((beta, point.value, point.slope))
        return plot_kernel(self, points, ax)

    @SHARED.fill
    def to_frame(self) -> DataFrame:
        """Return the numbers as one row of a pandas table, to concatenate.

        Returns
        -------
        pandas.DataFrame, one row
            The scalar attributes and properties; nats per sample.

        Raises
        ------
        {ImportError}
        """
        with extra("plot"):
            from pandas import DataFrame
        names = (
            "pa", "standard_error", "beta", "upper_bound", "gap", "log_pa", "mismatch",
            "hard_part", "confidence_part", "num_samples", "num_classes", "evaluations",
        )  # fmt: skip
        return DataFrame([{name: getattr(self, name) for name in names}])


@dataclass(frozen=True, eq=False)
class AgreementComparison:
    """Difference in posterior agreement of two models on the same pairs.

    Attributes
    ----------
    a, b : Agreement
        The two measurements.
    difference : float
        ``a.pa - b.pa``, in nats per sample.
    standard_error : float
        Of the difference, from the paired contributions.
    interval : (float, float)
        Confidence interval at `level`, normal approximation.
    level : float
        Coverage of the interval.
    """

    a: Agreement
    b: Agreement
    difference: float
    standard_error: float
    interval: tuple[float, float]
    level: float


def compare(a: Agreement, b: Agreement, level: float) -> AgreementComparison:
    """Paired difference of two results on the same samples."""
    difference = a.pa - b.pa
    error = _standard_error(a.per_sample - b.per_sample)
    half = NormalDist().inv_cdf(0.5 + level / 2.0) * error
    return AgreementComparison(
        a=a,
        b=b,
        difference=difference,
        standard_error=error,
        interval=(difference - half, difference + half),
        level=level,
    )


def check_same_pairs(result: Agreement, logits: Tensor) -> None:
    """Refuse logits of other pairs than the measured ones, by their number."""
    if logits.shape != (result.num_samples, result.num_classes):
        raise ValueError(
            f"logits: expected shape ({result.num_samples}, {result.num_classes}), as "
            f"in the result, got {tuple(logits.shape)}"
        )


def _standard_error(contributions: Tensor) -> float:
    count = len(contributions)
    if count < 2:
        return math.nan
    return float(contributions.std(correction=1)) / math.sqrt(count)
