"""What a search proved, and how: its steps, or why it could not."""

from dataclasses import dataclass

from torch import Tensor


class CertificateError(ArithmeticError):
    """The gap between the best value and its upper bound could not be closed."""


@dataclass(frozen=True)
class Step:
    """One evaluation of the search and the state of the certificate after it.

    Attributes
    ----------
    beta, value, slope : float
        The inverse temperature evaluated, J there (nats) and its derivative.
    interval : tuple of float
        The interval that this evaluation split.
    lower, upper : float
        Best value so far and proven upper bound so far (nats).
    """

    beta: float
    value: float
    slope: float
    interval: tuple[float, float]
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class SearchTrace:
    """What a search proved, and how.

    Attributes
    ----------
    beta, value, upper_bound : float
        The maximizer, J there, and the proven upper bound on sup J (nats).
    value_at_zero : float
        J(0): 0 for a uniform prior.
    per_sample : Tensor, shape (N,)
        Contributions to J at ``beta``.
    evaluations, passes : int
        Inverse temperatures at which the kernel was evaluated, and passes over all the
        data, those before the search included.
    steps : list of Step
        One an evaluation, in order; the first pass, at beta = 0, has none.
    intervals : list of (left, right, bound)
        The intervals at the end, from left to right, with their upper bounds.
    """

    beta: float
    value: float
    upper_bound: float
    value_at_zero: float
    per_sample: Tensor
    evaluations: int
    passes: int
    steps: list[Step]
    intervals: list[tuple[float, float, float]]
