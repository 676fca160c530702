"""Posterior agreement: the certified maximum, and the papers' procedure."""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    check_count,
    check_logit_pair,
    check_non_negative,
    check_positive,
)
from robustbook.agreement._result import Agreement
from robustbook.agreement._uncertainty import (
    errors_of_agreement,
    hard_agreement,
)
from robustbook.agreement.solver import (
    Kernel,
    Step,
    as_views,
    maximize,
    one_hot_views,
    open_kernel,
)

#: Single precision, in which Adam works, ends at 3.4e38.
_LARGEST_NUMBER = 1e30


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
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs, row i of both from the same
        sample. Any floating-point type; CPU or CUDA. Log-probabilities are logits:
        a constant added to the logits of one sample changes nothing.
    *more : Tensor or array, shape (N, K), optional
        Logits of the same samples under further conditions: views three, four, ...
    prior : Tensor or array, shape (K,), optional
        Class prior, positive, summing to 1; uniform by default. Under another one, a
        model with constant logits scores J(0) > 0, and a perfect one may score no more
        (Chapter 28).
    tol : float, default 1e-9
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.
        Double precision allows about 1e-11, times K / 1000 for many classes.
    group : torch.distributed.ProcessGroup, optional
        The processes that each pass their own samples, such as
        ``torch.distributed.group.WORLD``. All must call; all get the same numbers, or
        the same error. Shards may be unequal, or empty: shape (0, K).
    progress : bool, default False
        Whether to show a bar with evaluations, value and gap.

    Returns
    -------
    Agreement
        ``pa`` in nats per sample, ``beta`` (may be ``inf``), ``upper_bound``,
        ``per_sample`` contributions (of this process), ``standard_error`` and more.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; for NaN and infinity the first index is
        named.
    CertificateError
        If the gap cannot be closed to `tol`; the message says where.
    ConnectionError
        If a process of the group is gone, or took longer than the group's timeout.
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
    >>> f"{three.pa:.4f} of at most 1.3863 nats, which is 2 log 2"
    '0.9098 of at most 1.3863 nats, which is 2 log 2'

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


@dataclass(frozen=True, eq=False)
class AdamTrace:
    """The course of Adam, epoch by epoch.

    Attributes
    ----------
    beta : Tensor, shape (epochs + 1,)
        Inverse temperature at the start and after every epoch.
    steps : int
        Gradient steps taken.
    """

    beta: Tensor = field(repr=False)
    steps: int
    pair: tuple[Tensor, Tensor] = field(repr=False)

    @cached_property
    def pa(self) -> Tensor:
        """J at every `beta`, evaluated exactly on all pairs (nats per sample)."""
        kernel, options = open_kernel(*self.pair), {"columns": False, "samples": False}
        points = kernel.evaluate_all(self.beta.tolist(), **options)
        return torch.tensor([point.value for point in points], dtype=torch.float64)

    @property
    def final_beta(self) -> float:
        """Inverse temperature where Adam stopped."""
        return float(self.beta[-1])

    @property
    def best_beta(self) -> float:
        """Inverse temperature of the best epoch: the papers report this one."""
        return float(self.beta[1:][int(self.pa[1:].argmax())])

    @property
    def best_pa(self) -> float:
        """J of the best epoch, in nats per sample."""
        return float(self.pa[1:].max())


# Callers may have switched gradients off.
@torch.inference_mode(False)
@torch.enable_grad()
def adam_agreement(
    logits: Any,
    shifted_logits: Any,
    *,
    beta0: float = 1.0,
    lr: float = 0.1,
    epochs: int = 500,
    batch_size: int | None = None,
    seed: int | None = None,
) -> AdamTrace:
    """Approximate posterior agreement as the papers do: Adam on beta.

    The defaults are those of the thesis, section 3.6.2. Its published implementation
    takes batches of 16 in a fixed order, single precision, and reports the best epoch.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs.
    beta0, lr : float
        The inverse temperature at the start, at least 0, and the learning rate.
    epochs, batch_size : int
        Passes over the data, and pairs in each step: all of them by default.
    seed : int, optional
        Shuffles the pairs anew in every epoch; by default they stay in their order.

    Returns
    -------
    AdamTrace
        ``beta`` after every epoch, ``pa`` there, ``best_pa`` and more.

    Examples
    --------
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [3.0, 0.0]])
    >>> shifted = torch.tensor([[1.5, 0.0], [0.0, 2.0], [0.0, 0.1], [2.0, 0.0]])
    >>> adam_agreement(clean, shifted, epochs=50).steps
    50
    """
    pair = check_logit_pair(logits, shifted_logits)
    beta0, lr = check_non_negative("beta0", beta0), check_positive("lr", lr)
    epochs = check_count("epochs", epochs)
    rows = len(pair[0]) if batch_size is None else check_count("batch_size", batch_size)
    generator = None
    if seed is not None:
        generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0))
    largest, other = (float(view.abs().max()) for view in pair)
    sizes = {"logits": largest, "shifted_logits": other, "beta0": beta0, "lr": lr}
    for name, size in sizes.items():
        if size > _LARGEST_NUMBER:
            raise ValueError(
                f"{name}: expected at most {_LARGEST_NUMBER:g} in size, as this "
                f"procedure works in single precision, got {size:g}"
            )
    clean, shifted = (view.float().clone() for view in pair)
    beta = torch.tensor([beta0], device=clean.device, requires_grad=True)
    optimizer = torch.optim.Adam([beta], lr=lr)
    betas, steps = [beta0], 0
    for _ in range(epochs):
        if generator is not None:
            order = torch.randperm(len(clean), generator=generator).to(clean.device)
            clean, shifted = (view.float()[order] for view in pair)
        batches = torch.split(clean, rows), torch.split(shifted, rows)
        for first, second in zip(*batches, strict=True):
            product = (beta * first).softmax(1) * (beta * second).softmax(1)
            # Overlaps that underflow get a floor and no gradient, as in the papers'
            # implementation.
            overlap = product.sum(1).clamp(min=1e-44)
            (gradient,) = torch.autograd.grad(-overlap.log().sum(), beta)
            beta.grad = torch.nan_to_num(gradient)
            optimizer.step()
            with torch.no_grad():
                beta.clamp_(min=0.0)
            steps += 1
        betas.append(float(beta.detach()))
    return AdamTrace(torch.tensor(betas, dtype=torch.float64), steps, pair)


def _measure(kernel: Kernel, tol: float, *, progress: bool = False) -> Agreement:
    if progress:
        from tqdm import tqdm

        with tqdm(unit=" evaluations", desc="agreement") as bar:
            trace = maximize(kernel, tol, partial(_show_step, bar))
    else:
        trace = maximize(kernel, tol)
    if kernel.prior is None and kernel.num_views == 2:
        hard = hard_agreement(kernel.mismatch, kernel.num_classes)
    else:
        # There is no closed form, but few samples are different.
        prior = None if kernel.prior is None else kernel.prior.cpu()
        views, counts = one_hot_views(kernel.votes, kernel.num_classes)
        hard = maximize(Kernel(*views, prior=prior, counts=counts), tol).value
    sizes = kernel.num_classes, kernel.num_views
    error, loss = errors_of_agreement(trace.per_sample, *sizes, kernel.shards)
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
        standard_error=error,
        contradiction_loss=loss,
        trace=trace,
    )


def _show_step(bar: Any, step: Step) -> None:
    gap = f"PA {step.lower:.6g}, gap {step.upper - step.lower:.1e}"
    bar.set_postfix_str(gap, refresh=False)
    bar.update()
