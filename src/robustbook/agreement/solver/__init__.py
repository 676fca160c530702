"""The solver of Chapter 7: the kernel, bounds on it, and the search for its maximum.

:func:`agreement_search` is :func:`robustbook.agreement.posterior_agreement` with all
its steps. To read it, from the bottom to the top: a source gives the samples
(``_sources``), whose sums are bounded in rounding and added over processes (``_sums``);
what is known before any inverse temperature (``_problem``); J at one (``_kernel``);
bounds on J between two (``_bounds``) and more (``_interpolation``); intervals and where
to cut them (``_intervals``); one pass that brackets the maximum of a large problem
(``_survey``); the search (``_search``).

What stops the cost from falling further, in bare passes on one thread (a bare pass is
one exponential in float64 of every logit). Torch makes one sweep over a chunk for each
operation, of 0.03 (float32) to 0.1 passes a view, and no single one is large:

==============================================  ============  =============
operation                                       100 000 x 10  20 000 x 1000
==============================================  ============  =============
checks of the arguments                                  0.3            0.2
first pass: maxima, ties, sums of x and x^2              5.5            2.2
a subsample: its solution and the plan                   2.2            1.5
survey: shift, conversion to float32                     1.5            1.2
survey: exponentials, squares and products               2.1            2.0
survey: terms and sums of four evaluations               2.2            2.0
survey: logarithms and variances of samples              2.9            0.9
maximum: shift and exponentials in float64               2.4            1.9
maximum: sums, logarithms, contributions                 1.6            0.8
==============================================  ============  =============
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_non_negative,
    check_positive,
    check_prior,
)
from robustbook.agreement.solver._bounds import (
    chord_tangent_bound,
    curvature_bound,
    largest_curvature,
    tail_bound,
)
from robustbook.agreement.solver._intervals import CertificateError as CertificateError
from robustbook.agreement.solver._intervals import SearchTrace, Step
from robustbook.agreement.solver._kernel import Kernel
from robustbook.agreement.solver._search import maximize
from robustbook.agreement.solver._sources import Source, open_views
from robustbook.agreement.solver._sums import Shards as Shards
from robustbook.agreement.solver._sums import one_hot_views as one_hot_views
from robustbook.agreement.solver._sums import shards_of

__all__ = [
    "IntervalBounds",
    "Kernel",
    "SearchTrace",
    "Step",
    "agreement_bounds",
    "agreement_search",
    "maximize",
]

#: Weights of classes, pi_j^(1-m), beyond this are refused: their sums could overflow.
LARGEST_WEIGHT = 1e100


def open_kernel(
    *views: Any,
    prior: Any = None,
    group: Any = None,
    settings: Callable[[], Any] = lambda: None,
) -> Kernel:
    """The kernel of two or more arrays, or of their shards on the ranks of a group.

    `settings` checks and returns other arguments that must be equal on all ranks. An
    error on one rank is raised on all.
    """
    shards = shards_of(group)
    opened: list[tuple[Source, Tensor | None]] = []

    def look() -> tuple[tuple[int, int] | None, Any, list[float] | None]:
        accepted = settings()
        source = open_views(*views, empty=shards.size > 1)
        # A rank without samples need not know the number of classes, nor of views.
        classes = known = source.num_samples != 0 and source.num_classes
        if prior is not None:
            classes = classes or as_tensor("prior", prior).numel()
        checked = check_prior(prior, classes, source.device)
        opened.append((source, checked))
        shape = (source.num_views, source.num_classes) if known else None
        return shape, accepted, None if checked is None else checked.tolist()

    shapes, accepted, weights = zip(*shards.gather(look), strict=True)
    _check_same("settings", "the same tol, betas or other settings", accepted)
    _check_same("prior", "the same prior", weights)
    shape = next((shape for shape in shapes if shape), None)
    if shape is None:
        raise ValueError("logits: expected at least one sample, got none on any rank")
    for part, name, what in ((0, "views", "views"), (1, "logits", "classes")):
        numbers = [(shape_there or shape)[part] for shape_there in shapes]
        _check_same(name, f"the same number of {what}", numbers)
    ((source, checked),) = opened
    _check_weights(shape[0], shape[1], checked)
    if shapes[shards.rank] is None:
        nothing = torch.empty((0, shape[1]), device=source.device)
        return Kernel(*[nothing] * shape[0], prior=checked, shards=shards)
    return Kernel(source=source, prior=checked, shards=shards)


def _check_weights(num_views: int, num_classes: int, prior: Tensor | None) -> None:
    """Refuse more views than the weights of the classes, pi^(1-m), allow."""
    rarest = 1.0 / num_classes if prior is None else float(prior.min())
    most = int((math.log(LARGEST_WEIGHT) + 1e-9) / -math.log(rarest))
    if num_views - 1 > most:
        raise ValueError(
            f"views: expected at most {most + 1}, with classes as rare as {rarest:g}, "
            f"got {num_views}"
        )


def _check_same(name: str, expected: str, values: Sequence[Any]) -> None:
    """Refuse ranks that differ, by the first one that does."""
    for rank, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"{name}: expected {expected} on every rank, got {values[0]} on rank 0 "
                f"and {value} on rank {rank}"
            )


def as_views(logits: Any, *others: Any) -> tuple[Any, ...]:
    """Two or more arrays, or one stream."""
    alone = len(others) == 1 and others[0] is None
    return (logits,) if alone else (logits, *others)


def agreement_search(
    logits: Any,
    shifted_logits: Any = None,
    *more: Any,
    prior: Any = None,
    tol: float = 1e-9,
    group: Any = None,
) -> SearchTrace:
    """Solve as :func:`~robustbook.agreement.posterior_agreement` does, step by step.

    Parameters
    ----------
    logits, shifted_logits, *more, prior, tol, group
        As for :func:`~robustbook.agreement.posterior_agreement`.

    Returns
    -------
    SearchTrace
        Value, bound and maximizer, and every step of the search.

    Raises
    ------
    TypeError, ValueError, ConnectionError, CertificateError
        As :func:`~robustbook.agreement.posterior_agreement` does.

    Examples
    --------
    >>> import torch
    >>> trace = agreement_search(torch.eye(3), torch.eye(3)[[0, 1, 1]])
    >>> trace.upper_bound - trace.value <= 1e-9
    True
    """
    accepted = partial(check_positive, "tol", tol)
    views = as_views(logits, shifted_logits, *more)
    kernel = open_kernel(*views, prior=prior, group=group, settings=accepted)
    return maximize(kernel, accepted())


@dataclass(frozen=True)
class IntervalBounds:
    """Upper bounds on J over one interval, in nats per sample; see Chapter 7.

    Attributes
    ----------
    chord_tangent, curvature : float
        For a bounded interval; ``inf`` where the bound says nothing.
    tail : float
        For an interval without end.
    """

    chord_tangent: float = math.inf
    curvature: float = math.inf
    tail: float = math.inf

    @property
    def best(self) -> float:
        """The smallest of them."""
        return min(self.chord_tangent, self.curvature, self.tail)


def agreement_bounds(
    logits: Any, shifted_logits: Any, left: float, right: float, *, prior: Any = None
) -> IntervalBounds:
    """Proven upper bounds on the agreement kernel J over an interval; Chapter 7.

    Parameters
    ----------
    logits, shifted_logits, prior
        As :func:`~robustbook.agreement.posterior_agreement` takes them.
    left, right : float
        Ends of the interval of inverse temperatures, 0 <= left < right; `right`
        may be ``inf``.

    Returns
    -------
    IntervalBounds
        ``chord_tangent`` and ``curvature`` (nats per sample); for an unbounded
        interval ``tail`` instead. Bounds that do not apply are ``inf``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> agreement_bounds(torch.eye(2), torch.eye(2), 0.0, 1.0).chord_tangent < 0.7
    True
    """
    low = check_non_negative("left", left)
    high = check_non_negative("right", right, infinite=True)
    if not low < high:
        raise ValueError(f"right: expected more than left={low:g}, got {high:g}")
    kernel = open_kernel(logits, shifted_logits, prior=prior)
    start = kernel.evaluate(low)
    if math.isinf(high):
        return IntervalBounds(tail=tail_bound(kernel, start))
    stop = kernel.evaluate(high)
    return IntervalBounds(
        chord_tangent=chord_tangent_bound(start, stop),
        curvature=curvature_bound(start, stop, largest_curvature(kernel, start, stop)),
    )
