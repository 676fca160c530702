"""The public measure: checks, search, result."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_level,
    check_logit_pair,
    check_logits,
    check_non_negative,
    check_paired,
    check_positive,
    check_prior,
)
from robustbook.agreement._docs import SHARED
from robustbook.agreement._hard_decisions import symmetric_channel_capacity
from robustbook.agreement._result import (
    Agreement,
    AgreementComparison,
    contradiction_loss,
    interval_of_difference,
    standard_error_of_mean,
)
from robustbook.agreement.solver import (
    Kernel,
    Step,
    as_views,
    maximize,
    one_hot_views,
    open_kernel,
)


@SHARED.fill
def posterior_agreement(
    logits: Any,
    shifted_logits: Any = None,
    *more: Any,
    prior: Any = None,
    tol: float = 1e-9,
    group: Any = None,
    progress: bool = False,
) -> Agreement:
    r"""Posterior agreement, solved to a certified global optimum.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log \sum_{j=1}^K \pi_j
           \prod_{v=1}^m \frac{p^{(v)}_{ij}(\beta)}{\pi_j},

    where the p are the Gibbs posteriors of the m inputs of a sample at inverse
    temperature beta: clean and shifted, or more views. The kernel is a difference of
    two convex functions of beta, neither concave nor unimodal in general (Chapter 6);
    branch and bound closes the gap between the best value and a proven upper bound
    (Chapter 7). Source: the PA paper, Equation 13 and Theorem 2; the thesis, Theorem
    3.6.2; both for two views.

    Parameters
    ----------
    {logits, shifted_logits} {*more} {prior} {tol} {group}
    progress : bool, default False
        Whether to show a bar: evaluations, value and gap.

    Returns
    -------
    Agreement
        ``pa`` in nats per sample, ``beta`` (may be ``inf``), ``upper_bound``,
        ``per_sample`` contributions (of this process), ``standard_error`` and more.

    {TypeError} {ValueError} {ConnectionError} {CertificateError}
    OSError
        If a mapped file changed between two passes, or ends too early.

    Notes
    -----
    Logits need not fit into memory. Large arrays that ``numpy.load(path,
    mmap_mode="r")`` maps are read block by block in every pass, and so is whatever has
    ``shape``, ``dtype`` and rows to slice, as arrays of zarr and HDF5 have. Or pass one
    argument: a function that returns an iterator over chunks of samples, or an object
    to iterate over, such as a DataLoader that does not shuffle; each chunk is a tuple
    of arrays (n, K), one a view. It is read anew in every pass, in the same order.
    Memory: about 300 bytes a sample, whatever K.

    Examples
    --------
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [3.0, 0.0]])
    >>> shifted = torch.tensor([[1.5, 0.0], [0.0, 2.0], [0.0, 0.1], [2.0, 0.0]])
    >>> result = posterior_agreement(clean, shifted)
    >>> f"{result.pa:.4f} nats at beta {result.beta:.2f}"
    '0.4788 nats at beta 3.20'
    >>> result.gap <= 1e-9
    True

    Three views of a sample agree on at most two choices of one of K classes:

    >>> noisy = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.3], [1.0, 0.0]])
    >>> three = posterior_agreement(clean, shifted, noisy)
    >>> f"{three.pa:.4f} of at most {2 * math.log(2):.4f} nats"
    '0.9098 of at most 1.3863 nats'

    The same from chunks of two samples:

    >>> def chunks():
    ...     return zip(clean.split(2), shifted.split(2))
    >>> abs(posterior_agreement(chunks).pa - result.pa) <= 2e-9
    True
    """
    accepted = partial(check_positive, "tol", tol)
    views = as_views(logits, shifted_logits, *more)
    kernel = open_kernel(*views, prior=prior, group=group, settings=accepted)
    return _measure(kernel, accepted(), progress=progress and kernel.shards.rank == 0)


@SHARED.fill
def agreement_curve(
    logits: Any,
    shifted_logits: Any = None,
    *more: Any,
    betas: Any = None,
    prior: Any = None,
    group: Any = None,
) -> Tensor:
    """The agreement kernel J at given inverse temperatures.

    Source: the PA paper, Theorem 2; Chapter 5.

    Parameters
    ----------
    {logits, shifted_logits} {*more}
    betas : number, tensor, array or list, shape (B,)
        Inverse temperatures, at least 0; may be ``inf``. By name, or after the last
        array of logits.
    {prior} {group}

    Returns
    -------
    Tensor, shape (B,), or () for a number
        J in nats per sample, float64; at ``inf`` its limit, which is ``-inf`` if the
        answers to some sample have no class in common.

    {TypeError} {ValueError} {ConnectionError}

    Examples
    --------
    >>> agreement_curve(torch.eye(2), torch.eye(2), [0.0, 1.0, float("inf")])
    tensor([0.0000, 0.1936, 0.6931], dtype=torch.float64)
    """
    arguments = as_views(logits, shifted_logits, *more)
    *views, betas = arguments if betas is None else (*arguments, betas)

    def points() -> list[float]:
        given = as_tensor("betas", betas)
        if given.ndim > 1:
            raise ValueError(
                f"betas: expected shape (B,), got {tuple(given.shape)}; pass inverse "
                "temperatures after the logits, such as betas=[0.1, 1, 10]"
            )
        return [
            check_non_negative(f"betas[{place}]", beta, infinite=True)
            for place, beta in enumerate(given.reshape(-1).tolist())
        ]

    kernel = open_kernel(*views, prior=prior, group=group, settings=points)
    values = points()
    finite = [place for place, beta in enumerate(values) if beta < math.inf]
    evaluated = kernel.evaluate_all(
        [values[place] for place in finite], columns=False, samples=False
    )
    limit = -math.inf if kernel.limit is None else kernel.mean(kernel.limit)
    values = [limit] * len(values)
    for place, point in zip(finite, evaluated, strict=True):
        values[place] = point.value
    curve = torch.tensor(values, dtype=torch.float64, device=kernel.device)
    return curve.reshape(as_tensor("betas", betas).shape)


@SHARED.fill
def gibbs_posterior(logits: Any, beta: float) -> Tensor:
    """Gibbs posterior over the classes of each sample.

    Source: the PA paper, Equation 10; Chapter 4 derives it.

    Parameters
    ----------
    logits : tensor or array, shape (N, K)
    beta : float
        Inverse temperature, at least 0; ``inf`` gives the uniform distribution
        over the classes of largest logit.

    Returns
    -------
    Tensor, shape (N, K)
        Probabilities, float64; rows sum to 1.

    {TypeError} {ValueError}

    Examples
    --------
    >>> gibbs_posterior(torch.tensor([[0.0, 1.0]]), 2.0)
    tensor([[0.1192, 0.8808]], dtype=torch.float64)
    """
    scores = check_logits("logits", logits).double()
    temperature = check_non_negative("beta", beta, infinite=True)
    shifted = scores - scores.amax(1, keepdim=True)
    if temperature == float("inf"):
        weight = (shifted == 0).double()
    else:
        weight = (shifted * temperature).exp()
    return weight / weight.sum(1, keepdim=True)


@SHARED.fill
def compare_agreement(
    logits_a: Any,
    shifted_a: Any,
    logits_b: Any,
    shifted_b: Any,
    *,
    level: float = 0.95,
    prior: Any = None,
    tol: float = 1e-9,
) -> AgreementComparison:
    """Compare the posterior agreement of two models on the same pairs.

    Source: Chapter 7 (envelope theorem); not in the papers.

    Parameters
    ----------
    logits_a, shifted_a : tensor or array, shape (N, K)
        Logits of model A.
    logits_b, shifted_b : tensor or array, shape (N, K)
        Logits of model B, the same samples in the same order.
    level : float
        Coverage of the confidence interval, strictly between 0 and 1.
    {prior} {tol}

    Returns
    -------
    AgreementComparison
        ``difference`` = PA(A) - PA(B) in nats, with a paired standard error and
        interval: the samples that are hard for both cancel.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    >>> worse = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    >>> compare_agreement(clean, clean, clean, worse).difference > 0
    True
    """
    pair_a = check_logit_pair(logits_a, shifted_a, names=("logits_a", "shifted_a"))
    pair_b = check_logit_pair(logits_b, shifted_b, names=("logits_b", "shifted_b"))
    check_paired(("logits_a", "logits_b"), pair_a[0], pair_b[0])
    coverage = check_level(level)
    weights = check_prior(prior, pair_a[0].shape[1], pair_a[0].device)
    accepted = check_positive("tol", tol)
    a, b = (
        _measure(Kernel(*pair, prior=weights), accepted) for pair in (pair_a, pair_b)
    )
    error = standard_error_of_mean(a.per_sample - b.per_sample)
    low, high = interval_of_difference(a, b, coverage)
    return AgreementComparison(a, b, a.pa - b.pa, error, (low, high), coverage)


@contextmanager
def _progress_bar(*, shown: bool) -> Iterator[Callable[[Step], None] | None]:
    """What the search calls after each step, while a bar shows value and gap."""
    if not shown:
        yield None
        return
    from tqdm import tqdm

    with tqdm(unit=" evaluations", desc="agreement") as bar:

        def show(step: Step) -> None:
            gap = f"PA {step.lower:.6g}, gap {step.upper - step.lower:.1e}"
            bar.set_postfix_str(gap, refresh=False)
            bar.update()

        yield show


def _measure(kernel: Kernel, tol: float, *, progress: bool = False) -> Agreement:
    with _progress_bar(shown=progress) as on_step:
        trace = maximize(kernel, tol, on_step, kernel.batch)
    if kernel.prior is None and kernel.num_views == 2:
        hard = symmetric_channel_capacity(kernel.mismatch, kernel.num_classes)
    else:
        # No closed form, but few different samples.
        prior = None if kernel.prior is None else kernel.prior.cpu()
        options = {"by_class": prior is not None}
        views, counts = one_hot_views(kernel.votes, kernel.num_classes, **options)
        hard = maximize(Kernel(*views, prior=prior, counts=counts), tol).value
    return Agreement(
        pa=trace.value,
        beta=trace.beta,
        upper_bound=trace.upper_bound,
        evaluations=trace.evaluations,
        per_sample=trace.per_sample,
        num_samples=kernel.num_samples,
        num_classes=kernel.num_classes,
        num_views=kernel.num_views,
        mismatch=kernel.mismatch,
        hard_part=hard,
        standard_error=standard_error_of_mean(trace.per_sample, kernel.shards),
        contradiction_loss=contradiction_loss(
            trace.per_sample, kernel.num_classes, kernel.num_views, kernel.shards
        ),
        trace=trace,
    )
