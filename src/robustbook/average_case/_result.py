"""What an estimator returns."""

from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_level

#: Half of them failures and half successes are added, as Agresti and Coull do: no share
#: of 0 or 1 has a standard error of 0.
ADDED: Final = 4


@dataclass(frozen=True, eq=False)
class Robustness:
    """Probabilities that the prediction is kept under Gaussian noise.

    With one `sigma` the tensors have shape (N,), with several (S, N).

    Attributes
    ----------
    probability : Tensor, shape (N,) or (S, N)
        Estimate of the probability of the class in `labels` under noise, float64.
        An unbiased estimate by a control variate can lie slightly outside [0, 1].
    standard_error : Tensor, shape (N,) or (S, N)
        Of `probability` and of `failure`, float64: of what was drawn at random; the
        error of a linearization is not in it.
    labels : Tensor, shape (N,)
        The class whose probability this is: the prediction, unless given.
    sigma : Tensor, shape () or (S,)
        Standard deviation of the noise in every coordinate, in units of the input;
        NaN where a covariance was given.
    method : str
        Name of the estimator.
    failure : Tensor, shape (N,) or (S, N)
        1 - `probability`, float64. Where it was integrated, with the digits that the
        difference would lose.
    calls : Tensor, shape (N,) or (S, N)
        Evaluations of the model for this number, forward and backward ones (one for
        a vector-Jacobian product); work that several sigmas share counts for each.
    trials : Tensor, shape (N,) or (S, N), optional
        Noisy inputs that were counted, where the estimate is a plain share.
    variance_reduction : Tensor, shape (N,) or (S, N), optional
        For a control variate: how many times as many model calls plain Monte Carlo
        needs for the same variance, not counting those for the linearization. Rough,
        and at most about the number of failures, where few were seen.
    """

    probability: Tensor = field(repr=False)
    standard_error: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    sigma: Tensor = field(repr=False)
    method: str
    calls: Tensor = field(repr=False)
    trials: Tensor | None = field(default=None, repr=False)
    variance_reduction: Tensor | None = field(default=None, repr=False)
    failure: Tensor = field(default_factory=lambda: torch.empty(0), repr=False)

    def __post_init__(self) -> None:
        if self.failure.shape != self.probability.shape:  # not given
            object.__setattr__(self, "failure", 1 - self.probability)

    def __len__(self) -> int:
        """N, the number of inputs."""
        return len(self.labels)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Confidence intervals, low and high, each with coverage `level`.

        Wilson's interval where the estimate is a share of independent trials, else
        the normal approximation, cut to [0, 1].

        Raises
        ------
        ValueError
            If `level` is not in (0, 1).
        """
        z = NormalDist().inv_cdf(0.5 + check_level(level) / 2)
        center, half = self.probability, z * self.standard_error
        if self.trials is not None:
            share, count = self.probability, self.trials.double()
            spread = share * (1 - share) / count + z**2 / (4 * count**2)
            center = (share + z**2 / (2 * count)) / (1 + z**2 / count)
            half = z * spread.sqrt() / (1 + z**2 / count)
        return (center - half).clamp(0, 1), (center + half).clamp(0, 1)

    def failure_interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The same for `failure`, with its digits: see :meth:`interval`."""
        if self.trials is not None:
            low, high = self.interval(level)
            return 1 - high, 1 - low
        half = NormalDist().inv_cdf(0.5 + check_level(level) / 2) * self.standard_error
        return (self.failure - half).clamp(0, 1), (self.failure + half).clamp(0, 1)


def squeeze(values: Tensor, sigma: Tensor) -> Tensor:
    """Drop the dimension of sigma where one number was given for it."""
    return values[0] if sigma.ndim == 0 else values


def make_result(
    method: str, labels: Tensor, sigma: Tensor, home: torch.device, **estimates: Tensor
) -> Robustness:
    """The result, on the caller's device; with one sigma without its dimension."""
    shown = {name: squeeze(each, sigma).to(home) for name, each in estimates.items()}
    return Robustness(method=method, labels=labels.to(home), sigma=sigma, **shown)
