"""The result of an estimator."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_level
from robustbook._intervals import normal_quantile, wilson

#: Trials that are added, half of them failures, so that no share has a standard error
#: of 0 (Agresti and Coull).
ADDED: Final = 4


@dataclass(frozen=True, eq=False, repr=False)
class Robustness:
    """Probabilities that the prediction is kept under Gaussian noise.

    With one `sigma` the tensors have shape (N,), with several (S, N).

    Attributes
    ----------
    probability : Tensor, shape (N,) or (S, N)
        Estimate of the probability of the class in `labels` under noise, float64.
        An unbiased estimate by a control variate can lie slightly outside [0, 1].
    standard_error : Tensor, shape (N,) or (S, N)
        Standard error of `probability` and of `failure`, float64. It covers random
        sampling, not the error of a linearization.
    labels : Tensor, shape (N,)
        The class whose probability was estimated: the prediction, unless given.
    sigma : Tensor, shape () or (S,)
        Standard deviation of the noise in every coordinate, in units of the input;
        NaN where a covariance was given.
    method : str
        Name of the estimator.
    failure : Tensor, shape (N,) or (S, N)
        1 - `probability`, float64. Where the failure was integrated, it has the digits
        that the difference would lose.
    calls : Tensor, shape (N,) or (S, N)
        Evaluations of the model for each estimate, forward and backward (one for a
        vector-Jacobian product); work that several sigmas share counts for each.
    trials : Tensor, shape (N,) or (S, N), optional
        Noisy inputs that were counted, where the estimate is a plain share.
    variance_reduction : Tensor, shape (N,) or (S, N), optional
        For a control variate: the factor by which plain Monte Carlo needs more model
        calls for the same variance, without those for the linearization. It is rough
        where few failures were seen, and at most about their number.
    """

    probability: Tensor
    standard_error: Tensor
    labels: Tensor
    sigma: Tensor
    method: str
    calls: Tensor
    trials: Tensor | None = None
    variance_reduction: Tensor | None = None
    failure: Tensor = field(default_factory=lambda: torch.empty(0))

    def __post_init__(self) -> None:
        if self.failure.shape != self.probability.shape:  # The caller gave none.
            object.__setattr__(self, "failure", 1 - self.probability)

    def __len__(self) -> int:
        """Return N, the number of inputs."""
        return len(self.labels)

    def __repr__(self) -> str:
        means = np.round(self.probability.mean(dim=-1).cpu().numpy(), 4)
        return (
            f"Robustness({self.method}, sigma {self.sigma.tolist()}: mean probability "
            f"{means.tolist()} of {len(self)} inputs)"
        )

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Return confidence intervals, low and high ends, each with coverage `level`.

        They are Wilson's where the estimate is a share of independent trials, else the
        normal approximation, cut to [0, 1].

        Raises
        ------
        ValueError
            If `level` is not in (0, 1).
        """
        check_level(level)
        if self.trials is None:
            half = normal_quantile(level) * self.standard_error
            return (
                (self.probability - half).clamp(0, 1),
                (self.probability + half).clamp(0, 1),
            )
        kept = (self.probability * self.trials).round().cpu().numpy()
        ends = np.vectorize(wilson)(kept, self.trials.cpu().numpy(), level)
        low, high = (torch.from_numpy(end).to(self.probability) for end in ends)
        return low, high


def squeeze(values: Tensor, sigma: Tensor) -> Tensor:
    """Drop the dimension of sigma if a single number was given for it."""
    return values[0] if sigma.ndim == 0 else values


def make_result(
    method: str,
    labels: Tensor,
    sigma: Tensor,
    device: torch.device,
    **estimates: Tensor,
) -> Robustness:
    """Return the result on the caller's device, squeezed where sigma is one number."""
    shown = {key: squeeze(each, sigma).to(device) for key, each in estimates.items()}
    return Robustness(method=method, labels=labels.to(device), sigma=sigma, **shown)
