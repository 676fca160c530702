"""The result of a measurement, and the difference between two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

from torch import Tensor


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

    See Also
    --------
    robustbook.agreement.posterior_agreement
    """

    pa: float
    beta: float
    upper_bound: float
    evaluations: int
    per_sample: Tensor = field(repr=False)
    num_classes: int
    mismatch: float
    hard_part: float

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
        Confidence interval at ``level``, normal approximation.
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


def _standard_error(contributions: Tensor) -> float:
    count = len(contributions)
    if count < 2:
        return math.nan
    return float(contributions.std(correction=1)) / math.sqrt(count)
