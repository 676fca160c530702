"""Estimates that sample noise: plain, or beside a linearized model."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_choice, check_count
from robustbook._checks.models import Model, keeping_generators
from robustbook.average_case._estimators import join
from robustbook.average_case._linearize import (
    Linearization,
    linear_probability,
    linearize,
)
from robustbook.average_case._normal import OrthantProbability
from robustbook.average_case._problem import (
    BATCH,
    BLOCK,
    MEASURE,
    SHIFT,
    Problem,
    draw_normal,
    random_bits,
    set_up,
    spans,
)
from robustbook.average_case._result import ADDED, Robustness
from robustbook.average_case._separation import (
    SCRAMBLES,
    sobol_engine,
    standard_error_of_means,
)

#: Weight, in samples, of a coefficient of 1 against the coefficient of the data.
_PRIOR: Final = 1.0

Kind = Literal["random", "sobol"]
Linear = Literal["taylor", "mmse"]


@keeping_generators()
def monte_carlo(
    model: Model,
    images: ArrayLike,
    sigma: ArrayLike,
    *,
    samples: int = 10_000,
    labels: ArrayLike | None = None,
    seed: int = 0,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
) -> Robustness:
    """Count the share of noisy inputs on which the model keeps its prediction.

    All sigmas scale the same noise. Each input has noise of its own, which does not
    depend on the batch. Source: the average-case paper, section 3.1; Chapters 18 and
    20.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of inputs (n, ...).
    images : Tensor or array, shape (N, ...)
        Inputs of any range, float32 or float64 as the model's parameters.
    sigma : float or sequence
        Standard deviations of the noise in every coordinate, in units of the input.
    samples : int, default 10000
        Noisy inputs for each input and sigma.
    labels : Tensor or array, shape (N,), optional
        The classes whose probability to estimate; the predictions by default.
    seed : int, default 0
        Seed of the noise.
    batch_size : int, default 256
        Inputs in a batch, where each gradient counts as an input. Apart from rounding,
        the result does not depend on it.
    device : str or torch.device, optional
        Where to run; by default where the model is. Noise differs between devices.

    Returns
    -------
    Robustness
        The standard error is never 0, as two kept and two lost predictions are added
        to compute it (Agresti and Coull). ``interval`` is Wilson's.

    Warns
    -----
    UserWarning
        If the model is in training mode or does not separate classes.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, model and inputs differ in dtype, or logits
        or gradients are not finite real numbers.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> low, high = monte_carlo(lambda x: x, x, 0.5, samples=2000).interval()
    >>> bool(low < 0.9214), bool(0.9214 < high)
    (True, True)
    """
    check_count("samples", samples)
    check_count("seed", seed, minimum=0)
    problem = set_up(model, images, sigma, labels, batch_size, device)
    kept = _count_kept(problem, samples, seed).double()
    share = (kept + ADDED / 2) / (samples + ADDED)
    error = (share * (1 - share) / (samples + ADDED)).sqrt()
    estimates = {"probability": kept / samples, "standard_error": error}
    estimates["trials"] = torch.full_like(kept, samples, dtype=torch.int64)
    return problem.summarize("monte_carlo", samples, **estimates)


def _count_kept(problem: Problem, samples: int, seed: int) -> Tensor:
    """Count the kept predictions (S, N) among the noisy inputs of each input."""
    starts = range(0, samples, BLOCK)
    keys = [(row, start) for row in range(len(problem)) for start in starts]
    kept = torch.zeros(len(problem.sigmas), len(problem), dtype=torch.int64)
    for span in spans(len(keys), max(1, problem.batch_size // BLOCK)):
        names = [(row, start // BLOCK) for row, start in keys[span]]
        noise = draw_normal(seed, MEASURE, names, BLOCK, problem.inputs)
        rows, first = torch.tensor(keys[span]).unbind(dim=1)
        counted = first[:, None] + torch.arange(BLOCK) < samples
        for position, sigma in enumerate(problem.sigmas.tolist()):
            right = problem.keeps(rows, sigma * noise).cpu() & counted
            kept[position].index_add_(0, rows, right.sum(dim=1))
    return kept


@keeping_generators()
def control_variate(
    model: Model,
    images: ArrayLike,
    sigma: ArrayLike,
    *,
    samples: int = 1024,
    linearization: Linear = "taylor",
    linearization_samples: int = 10,
    noise: Kind = "random",
    labels: ArrayLike | None = None,
    points: int = 128,
    seed: int = 0,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
) -> Robustness:
    """Estimate robustness without bias, with the linearized model as control variate.

    Model and linearized model get the same noise. The estimate is the model's share of
    kept predictions, minus c times the share of the linearized model, plus c times the
    exact probability of the latter. It is unbiased for every fixed c, and its variance
    is small if the two models rarely disagree. Each half of the samples takes its c
    from the other half. Source: Chapter 20.

    Parameters
    ----------
    model, images, sigma
        As for :func:`taylor`.
    samples : int, default 1024
        Noisy inputs for each input and sigma, at least 4.
    linearization : {"taylor", "mmse"}, default "taylor"
        The linear model. That of "taylor" serves all sigmas.
    linearization_samples : int, default 10
        Noisy inputs of each fit for "mmse", in pairs of opposite noise that is not used
        again.
    noise : {"random", "sobol"}, default "random"
        "sobol" takes 8 scrambles of Sobol points in the span of the gradients, and
        independent numbers across it; `samples` must then be 8 times a power of 2.
    labels, points, seed, batch_size, device : optional
        As for :func:`taylor`.

    Returns
    -------
    Robustness
        The standard error includes that of the exact probability; it is never 0, as
        two disagreements are added to those that were seen. ``variance_reduction``
        compares with plain Monte Carlo; it is about 1 where the linearization does not
        help.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits or gradients are not finite.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> control_variate(lambda x: x, x, 0.5).probability.round(decimals=4)
    tensor([0.9214], dtype=torch.float64)
    """
    check_choice("linearization", linearization, ("taylor", "mmse"))
    check_count("linearization_samples", linearization_samples)
    check_count("samples", samples, minimum=4)
    check_count("points", points)
    check_count("seed", seed, minimum=0)
    check_choice("noise", noise, ("random", "sobol"))
    # Sizes of the groups, halves or scrambles. Even and odd groups are folds.
    sizes = [samples // 2, samples - samples // 2]
    if noise == "sobol":
        sizes = [samples // SCRAMBLES] * SCRAMBLES
    if sum(sizes) < samples or (noise == "sobol" and sizes[0] & (sizes[0] - 1)):
        raise ValueError(
            f"samples: expected {SCRAMBLES} times a power of 2 for Sobol points, for "
            f"example 1024; got {samples}"
        )
    problem = set_up(model, images, sigma, labels, batch_size, device)
    shared = linearization == "taylor"
    rows = []
    for sigmas in problem.sigmas[None] if shared else problem.sigmas[:, None]:
        fits = (
            linearize(problem, keep=True)
            if shared
            else linearize(
                problem, float(sigmas), linearization_samples, seed, keep=True
            )
        )
        parts = []
        for part in fits:
            exact = linear_probability(
                part.margins, part.gram, sigmas, seed=seed, points=points
            )
            counts = _compare(problem, part, sigmas, sizes, noise, seed)
            parts.append(_combine(counts, exact, sizes, noise))
        rows.append(join(parts))
    calls = samples + problem.num_classes * (1 if shared else linearization_samples)
    return problem.summarize("control_variate", calls, **join(rows, dim=0))


def _combine(
    counts: Tensor, exact: OrthantProbability, groups: Sequence[int], noise: Kind
) -> dict[str, Tensor]:
    """Return estimate, standard error and variance reduction, each (S, n)."""
    sizes = torch.tensor(groups, dtype=torch.float64)
    total = float(sizes.sum())
    model, linear, both = counts.double().unbind(dim=-1)
    expected = exact.probability.cpu()[..., None]
    coefficient = _coefficients(counts, sizes)
    # (S, n, G): the estimate of each group.
    values = model / sizes - coefficient * (linear / sizes - expected)
    estimate = (values * sizes).sum(dim=-1) / total
    if noise == "random":
        square = (model - 2 * coefficient * both + coefficient**2 * linear) / sizes
        mean = (model - coefficient * linear) / sizes
        spread = (square - mean.square()).clamp_min(0) / (sizes - 1)
        variance = (spread * sizes**2).sum(dim=-1) / total**2
    else:
        variance = standard_error_of_means(values).square()
    # Half a failure more than was seen keeps the reduction finite.
    share = (model.sum(dim=-1) + 0.5) / (total + 1)
    reduction = share * (1 - share) / total / (variance + 0.5 / total**2)
    # Two disagreements more than were seen keep the error above 0.
    variance = variance + ADDED / 2 / total**2
    weight = (coefficient * sizes).sum(dim=-1) / total
    integration = weight * exact.standard_error.cpu()
    return {
        "probability": estimate,
        "standard_error": (variance + integration.square()).sqrt(),
        "variance_reduction": reduction,
    }


def _coefficients(counts: Tensor, sizes: Tensor) -> Tensor:
    """Return the coefficient of each group (S, n, G), from those of the other fold."""
    result = torch.empty(counts.shape[:-1], dtype=torch.float64)
    for fold in (0, 1):
        others = counts[:, :, 1 - fold :: 2].sum(dim=2).double()
        size = float(sizes[1 - fold :: 2].sum())
        model, linear, both = others.unbind(dim=-1)
        covariance = both - model * linear / size
        variance = linear - linear.square() / size
        ratio = (covariance + _PRIOR) / (variance + _PRIOR)
        result[:, :, fold::2] = ratio[..., None]
    return result


def _compare(
    problem: Problem,
    part: Linearization,
    sigmas: Tensor,
    sizes: Sequence[int],
    kind: Kind,
    seed: int,
) -> Tensor:
    """Count how often model, linearization and both keep the label: (S, n, G, 3)."""
    assert part.jacobian is not None
    count = len(part.margins)
    result = torch.zeros(len(sigmas), count, len(sizes), 3, dtype=torch.int64)
    first = part.rows.start
    basis = _basis(part) if kind == "sobol" else None
    for keys, length in _units(count, sizes, problem):
        row = torch.tensor([key[0] for key in keys])
        group = torch.tensor([key[1] for key in keys])
        names = [(first + key[0], *key[1:]) for key in keys]
        noise = draw_normal(seed, MEASURE, names, length, problem.inputs)
        local = row.to(noise.device)
        if basis is not None:
            noise = _along(basis[local], noise, names, sizes[0], seed)
        steps = (noise @ part.jacobian[local].to(noise).mT).double()
        margins = part.margins[local][:, None]
        for position, sigma in enumerate(sigmas.tolist()):
            linear = (margins + sigma * steps > 0).all(dim=2).cpu()
            model = problem.keeps(first + row, sigma * noise).cpu()
            counts = torch.stack([model, linear, model & linear], dim=-1).sum(dim=1)
            result[position].index_put_((row, group), counts, accumulate=True)
    return result


def _units(
    count: int, sizes: Sequence[int], problem: Problem
) -> Iterator[tuple[list[tuple[int, int, int]], int]]:
    """Yield triples (input, group, block) of noise drawn together, and block sizes."""
    keys: dict[int, list[tuple[int, int, int]]] = {}
    for row in range(count):
        for group, size in enumerate(sizes):
            for block, start in enumerate(range(0, size, BLOCK)):
                length = min(BLOCK, size - start)
                keys.setdefault(length, []).append((row, group, block))
    for length, same in keys.items():
        for span in spans(len(same), max(1, problem.batch_size // length)):
            yield same[span], length


def _basis(part: Linearization) -> Tensor:
    """Return orthonormal columns (n, D, r) of the gradients, nearest boundary first."""
    assert part.jacobian is not None
    norms = part.gram.diagonal(dim1=1, dim2=2).sqrt()
    order = (part.margins / norms).nan_to_num(nan=torch.inf).argsort(dim=1)
    rows = part.jacobian.gather(1, order[:, :, None].expand_as(part.jacobian))
    return torch.linalg.qr(rows.double().mT).Q


def _along(
    basis: Tensor,
    noise: Tensor,
    names: Sequence[tuple[int, int, int]],
    count: int,
    seed: int,
) -> Tensor:
    """Replace the noise in the span of the gradients by scrambled Sobol points."""
    rank = basis.shape[2]
    length = noise.shape[1]
    parts = []
    for index, group, block in names:
        start = block * BLOCK
        points = _digits(rank, count, seed, group)[start : start + length]
        # A digital shift for each input and scramble makes estimates independent.
        shift = random_bits(seed, SHIFT, (index, group), rank)
        parts.append(((points ^ shift).double() + 0.5) / 2**30)
    inside = torch.special.ndtri(torch.stack(parts)).to(basis)
    wide = noise.double()
    wide = wide + (inside - wide @ basis) @ basis.mT
    return wide.to(noise.dtype)


@lru_cache(maxsize=64)
def _digits(dimension: int, count: int, seed: int, scramble: int) -> Tensor:
    """Return scrambled Sobol points as numbers of 30 bits (count, dimension)."""
    number = np.random.SeedSequence([seed, SHIFT, scramble]).generate_state(1)[0]
    drawn = sobol_engine(dimension, int(number)).draw(count, dtype=torch.float64)
    return torch.floor(drawn * math.ldexp(1.0, 30)).long()
