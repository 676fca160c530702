"""Jacobians of the class differences, and the probability that they imply."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from robustbook._checks.models import Model, check_differentiable, model_logits
from robustbook.average_case._normal import OrthantProbability, orthant_probability
from robustbook.average_case._problem import (
    LINEARIZE,
    Problem,
    draw_normal,
    spans,
)

#: Entries of all Jacobians of a batch: 128 MB in double precision.
_ENTRIES: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class Linearization:
    """Margins ``g + J ε`` to the other classes, for a batch of inputs."""

    #: The inputs of the batch.
    rows: slice
    #: (n, K - 1), float64: f_label - f_i at the center of the expansion.
    margins: Tensor
    #: (n, K - 1, K - 1), float64: J Jᵀ.
    gram: Tensor
    #: (n, K - 1, D), None unless requested.
    jacobian: Tensor | None


def other_classes(labels: Tensor, num_classes: int) -> Tensor:
    """Return the classes other than the label, in order: (n, K - 1)."""
    classes = torch.arange(num_classes - 1, device=labels.device)
    return classes + (classes >= labels[:, None])


def margins_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return f_label - f_i for the other classes i: (n, K - 1)."""
    others = other_classes(labels, logits.shape[1])
    return logits.gather(1, labels[:, None]) - logits.gather(1, others)


def break_ties(margins: Tensor, variances: Tensor, labels: Tensor) -> Tensor:
    """Give a margin of 0 that no noise moves the sign with which argmax breaks the tie.

    The first of equal logits is the prediction.
    """
    others = other_classes(labels, margins.shape[-1] + 1)
    winner = torch.where(labels[:, None] < others, 1.0, -1.0).to(margins.dtype)
    return torch.where((margins == 0) & (variances == 0), winner, margins)


def linearize(
    problem: Problem,
    sigma: float | None = None,
    samples: int = 1,
    seed: int = 0,
    *,
    antithetic: bool = True,
    keep: bool = False,
) -> Iterator[Linearization]:
    """Linearize at the inputs, or (MMSE) on average over noisy ones.

    With a `sigma`, each fit has the least mean squared error under noise of that size.
    """
    # The number of inputs times copies times gradients is at most the batch size.
    size, others_count = problem.batch_size, problem.num_classes - 1
    at_once = min(samples, size)
    fit = _ENTRIES // (others_count * problem.inputs[0].numel())
    chunk = max(1, min(size // at_once, fit))
    products = min(others_count, max(1, size // (at_once * chunk)))
    for rows in spans(len(problem), chunk):
        inputs, labels = problem.inputs[rows], problem.labels[rows]
        count = len(inputs)
        others = other_classes(labels, problem.num_classes)
        added = None
        if sigma is not None:
            drawn = samples - samples // 2 if antithetic else samples
            keys = [(index,) for index in range(rows.start, rows.stop)]
            half = sigma * draw_normal(seed, LINEARIZE, keys, drawn, inputs)
            added = torch.cat([half, -half[:, : samples - drawn]], dim=1)
            added = added.reshape(count, samples, *inputs.shape[1:])
        logits = torch.zeros_like(problem.logits[rows])
        total: Tensor | None = None
        for part in spans(samples, at_once):
            shift = None if added is None else added[:, part]
            outputs, jacobian = _differentiate(
                problem.model, inputs, shift, labels, others, products
            )
            share = (part.stop - part.start) / samples
            logits += share * outputs.double()
            total = share * jacobian if total is None else total + share * jacobian
        assert total is not None
        if not bool(torch.isfinite(total).all()):
            raise ValueError(
                "model: expected finite gradients, got NaN or infinity; mend the "
                "model (a root or a norm at 0 has none), or use monte_carlo"
            )
        flat = total.reshape(count, len(others[0]), -1)
        wide = flat.double()
        gram = wide @ wide.mT
        # Over many pixels, the product is symmetric only up to rounding.
        gram = (gram + gram.mT) / 2
        margins = margins_of(problem.logits[rows] if sigma is None else logits, labels)
        margins = break_ties(margins, gram.diagonal(dim1=1, dim2=2), labels)
        yield Linearization(rows, margins, gram, flat if keep else None)


def linear_probability(
    margins: Tensor, gram: Tensor, sigmas: Tensor, *, seed: int, points: int
) -> OrthantProbability:
    """Return the probability (S, n) that no margin is negative (Lemma 3.1)."""
    scaled = margins / sigmas.to(margins.device)[:, None, None]
    return orthant_probability(scaled, gram, points=points, seed=seed)


def _differentiate(
    model: Model,
    inputs: Tensor,
    shift: Tensor | None,
    labels: Tensor,
    others: Tensor,
    products: int,
) -> tuple[Tensor, Tensor]:
    """Return logits (n, K) and the Jacobian of the class differences (n, K - 1, ...).

    With a shift (n, m, ...), both are averages over the m shifted copies.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaf = inputs.clone().requires_grad_()
        if shift is None:
            outputs = model_logits(model, leaf, "inputs")
        else:
            noisy = (leaf[:, None] + shift).flatten(0, 1)
            logits = model_logits(model, noisy, "noisy inputs")
            outputs = logits.reshape(*shift.shape[:2], -1).mean(dim=1)
    check_differentiable(outputs, ", or use monte_carlo")
    each = torch.arange(len(inputs), device=inputs.device)
    parts = []
    for chosen in spans(others.shape[1], products):
        picked = others[:, chosen].T
        cotangents = outputs.new_zeros(len(picked), *outputs.shape)
        cotangents[:, each, labels] = 1
        cotangents.scatter_(2, picked[:, :, None], -1)
        parts.append(_products(outputs, leaf, cotangents))
    return outputs.detach(), torch.cat(parts).transpose(0, 1)


def _products(outputs: Tensor, leaf: Tensor, cotangents: Tensor) -> Tensor:
    """Return vector-Jacobian products, batched if several and the layers allow it."""

    def product(cotangent: Tensor, batched: bool = False) -> Tensor:
        options = {"retain_graph": True, "materialize_grads": True}
        (gradient,) = torch.autograd.grad(
            outputs, leaf, cotangent, is_grads_batched=batched, **options
        )
        return gradient.detach()

    # A batch of one takes twice the time of a plain product.
    if len(cotangents) > 1:
        # Some layers, such as one with a custom backward pass, cannot be batched.
        with suppress(RuntimeError):
            return product(cotangents, batched=True)
    return torch.stack([product(cotangent) for cotangent in cotangents])
