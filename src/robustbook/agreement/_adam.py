"""The papers' procedure, for comparison (Chapter 7): ascend J by Adam."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    check_count,
    check_logit_pair,
    check_non_negative,
    check_positive,
)
from robustbook.agreement._docs import SHARED
from robustbook.agreement._measure import agreement_curve

#: The reference implementation keeps the overlap of a pair above this.
SMALLEST_OVERLAP = 1e-44
#: Single precision ends at 3.4e38.
LARGEST_NUMBER = 1e30


@dataclass(frozen=True, eq=False)
class AdamTrace:
    """The course of Adam, epoch by epoch.

    Attributes
    ----------
    beta : Tensor, shape (epochs + 1,)
        Inverse temperature at the start and after every epoch.
    pa : Tensor, shape (epochs + 1,)
        J there, evaluated exactly on all pairs (nats per sample).
    steps : int
        Gradient steps taken.
    """

    beta: Tensor = field(repr=False)
    pa: Tensor = field(repr=False)
    steps: int

    @property
    def final_beta(self) -> float:
        """Inverse temperature where Adam stopped."""
        return float(self.beta[-1])

    @property
    def best_beta(self) -> float:
        """Inverse temperature of the best epoch: what the papers report."""
        return float(self.beta[1:][int(self.pa[1:].argmax())])

    @property
    def best_pa(self) -> float:
        """J of the best epoch, in nats per sample."""
        return float(self.pa[1:].max())


@SHARED.fill
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

    Returns an :class:`AdamTrace`. The defaults are those of the thesis, section 3.6.2.
    Its published implementation takes batches of 16 in a fixed order, single precision,
    and reports the best epoch.

    Parameters
    ----------
    {logits, shifted_logits}
    beta0 : float, default 1
        Start, at least 0.
    lr : float, default 0.1
        Learning rate.
    epochs : int, default 500
        Passes over the data.
    batch_size : int, optional
        Pairs a step; all of them if left out.
    seed : int, optional
        Shuffle the pairs anew every epoch; in the order given if left out.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [3.0, 0.0]])
    >>> shifted = torch.tensor([[1.5, 0.0], [0.0, 2.0], [0.0, 0.1], [2.0, 0.0]])
    >>> adam_agreement(clean, shifted, epochs=50).steps
    50
    """
    first, second = check_logit_pair(logits, shifted_logits)
    beta0, lr = check_non_negative("beta0", beta0), check_positive("lr", lr)
    epochs = check_count("epochs", epochs)
    if batch_size is not None:
        batch_size = check_count("batch_size", batch_size)
    if seed is not None:
        seed = check_count("seed", seed, minimum=0)
    sizes = {"logits": float(first.abs().max()), "beta0": beta0, "lr": lr}
    sizes["shifted_logits"] = float(second.abs().max())
    for name, size in sizes.items():
        if size > LARGEST_NUMBER:
            raise ValueError(
                f"{name}: expected at most {LARGEST_NUMBER:g} in size, as this "
                f"procedure works in single precision, got {size:g}"
            )
    betas, steps = adam_steps(
        first, second, beta0=beta0, lr=lr, epochs=epochs, batch_size=batch_size,
        seed=seed,
    )  # fmt: skip
    pa = agreement_curve(first, second, betas).cpu()
    return AdamTrace(torch.tensor(betas, dtype=torch.float64), pa, steps)


# Callers may have switched gradients off.
@torch.inference_mode(False)
@torch.enable_grad()
def adam_steps(
    logits: Tensor,
    shifted_logits: Tensor,
    *,
    beta0: float = 1.0,
    lr: float = 0.1,
    epochs: int = 500,
    batch_size: int | None = None,
    seed: int | None = None,
) -> tuple[list[float], int]:
    """Beta at the start and after every epoch, and the number of steps."""
    clean, shifted = logits.float().clone(), shifted_logits.float().clone()
    size = len(clean) if batch_size is None else batch_size
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    beta = torch.tensor([beta0], device=clean.device, requires_grad=True)
    optimizer = torch.optim.Adam([beta], lr=lr)
    betas, steps = [beta0], 0
    for _ in range(epochs):
        if generator is not None:
            order = torch.randperm(len(clean), generator=generator).to(clean.device)
            clean, shifted = logits.float()[order], shifted_logits.float()[order]
        batches = torch.split(clean, size), torch.split(shifted, size)
        for one, other in zip(*batches, strict=True):
            product = (beta * one).softmax(1) * (beta * other).softmax(1)
            # Overlaps that underflow get a floor and no gradient, as in the papers'
            # implementation.
            overlap = product.sum(1).clamp(min=SMALLEST_OVERLAP)
            (gradient,) = torch.autograd.grad(-overlap.log().sum(), beta)
            beta.grad = torch.nan_to_num(gradient)
            optimizer.step()
            with torch.no_grad():
                beta.clamp_(min=0.0)
            steps += 1
        betas.append(float(beta.detach()))
    return betas, steps
