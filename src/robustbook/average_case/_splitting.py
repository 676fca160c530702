"""Adaptive multilevel splitting: failures that are too rare to be counted."""

from typing import Final

import torch
from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_count
from robustbook._checks.models import Model, keeping_generators
from robustbook.average_case._problem import BATCH, SPLIT, Problem, draw_normal, set_up
from robustbook.average_case._result import Robustness

#: A run that has got this rare without a failure ends, and counts as none.
_RAREST: Final = 1e-16
#: Acceptance of moves between which their length stays as it is.
_ACCEPTED: Final = (0.2, 0.4)


@keeping_generators()
def splitting(
    model: Model,
    images: ArrayLike,
    sigma: ArrayLike,
    *,
    particles: int = 200,
    repeats: int = 10,
    moves: int = 10,
    labels: ArrayLike | None = None,
    seed: int = 0,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
) -> Robustness:
    """Estimate the probability of rare failures under Gaussian noise without bias.

    Many copies of an input, each with noise of its own, are ranked by the lead of the
    best other class. Again and again the tenth of them with the smallest lead is
    replaced by copies of others, which then move at random, but never back below the
    lead of those that were replaced. Each round multiplies the probability by the
    share that was left. It ends when nine tenths have another prediction. Sources:
    Webb and others, "A statistical approach to assessing neural network robustness",
    ICLR 2019; Bréhier and others, "Unbiasedness of some generalized adaptive multilevel
    splitting algorithms", Annals of Applied Probability, 2016.

    Parameters
    ----------
    model, images, sigma
        As for :func:`monte_carlo`.
    particles : int, default 200
        Noisy copies of each input in a run, at least 10.
    repeats : int, default 10
        Independent runs, at least 2: their spread is the standard error.
    moves : int, default 10
        Random moves of each copy that replaces another one.
    labels, seed, batch_size, device : optional
        As for :func:`monte_carlo`.

    Returns
    -------
    Robustness
        ``failure`` holds its digits however small it is; a failure that is rarer than
        1e-16 counts as none. The standard error is that of a mean of `repeats` runs: 0
        if no run met a failure.

    Raises
    ------
    TypeError, ValueError
        As :func:`monte_carlo` does; or if there are too few particles or repeats.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    >>> rare = splitting(lambda x: x, x, 0.1)  # exactly 7.7e-13
    >>> bool((rare.failure - 7.7e-13).abs() < 4 * rare.standard_error)
    True
    """
    check_count("particles", particles, minimum=10)
    check_count("repeats", repeats, minimum=2)
    check_count("moves", moves)
    check_count("seed", seed, minimum=0)
    problem = set_up(model, images, sigma, labels, batch_size, device)
    size = len(problem.sigmas), len(problem)
    failures = torch.zeros(*size, repeats, dtype=torch.float64)
    calls = torch.zeros(size, dtype=torch.int64)
    for place, value in enumerate(problem.sigmas.tolist()):
        for row in range(len(problem)):
            run = _Runs(problem, row, value, seed)
            failures[place, row] = run.estimate(repeats, particles, moves)
            calls[place, row] = run.calls
    failure = failures.mean(dim=-1)
    error = failures.std(dim=-1) / repeats**0.5
    return problem.summarize(
        "splitting",
        calls,
        probability=1 - failure,
        failure=failure,
        standard_error=error,
    )


class _Runs:
    """Independent runs for one input under noise of one strength, side by side."""

    def __init__(self, problem: Problem, row: int, sigma: float, seed: int) -> None:
        self._problem, self._row, self._sigma = problem, row, sigma
        self._seed, self._draws = seed, 0
        self.calls = 0

    def estimate(self, repeats: int, particles: int, moves: int) -> Tensor:
        """Return the estimate of each run (repeats,), on the CPU."""
        noise = self._normal(repeats * particles).reshape(repeats, particles, -1)
        lead = self._lead(noise)
        weight = torch.ones(repeats, dtype=torch.float64)
        ending = torch.zeros(repeats, dtype=torch.float64)
        length = torch.full((repeats,), 0.5, dtype=torch.float64)
        active = torch.arange(repeats)
        while len(active):
            level = lead[active].kthvalue(particles // 10, dim=1).values
            stay = lead[active] > level[:, None]
            left = stay.double().mean(dim=1)
            ended = level > 0
            ending[active[ended]] = (lead[active[ended]] > 0).double().mean(dim=1)
            # Where all leads are equal nothing is left, and the estimate is 0.
            on = ~ended & (weight[active] * left >= _RAREST) & (left > 0)
            active = active[on]
            weight[active] *= left[on]
            if len(active):
                bars = torch.full((repeats,), torch.inf, dtype=lead.dtype)
                bars[active] = level[on]
                self._replace(noise, lead, bars, moves, length)
        return weight * ending

    def _replace(
        self, noise: Tensor, lead: Tensor, bars: Tensor, moves: int, length: Tensor
    ) -> None:
        """Replace, in place, what does not exceed its run's bar; adapt the lengths."""
        runs, gone = ((lead <= bars[:, None]) & (bars < torch.inf)[:, None]).nonzero().T
        generator = torch.Generator().manual_seed(self._number())
        weights = (lead[runs] > bars[runs, None]).double()
        parents = torch.multinomial(weights, 1, generator=generator)[:, 0]
        copies, leads = noise[runs, parents], lead[runs, parents]
        step = length[runs, None].to(noise.dtype)
        accepted = torch.zeros(len(runs), dtype=torch.float64)
        for _ in range(moves):
            # The normal distribution is invariant under this move.
            moved = (1 - step**2).sqrt() * copies + step * self._normal(len(copies))
            new = self._lead(moved)
            ok = new > bars[runs]
            copies = torch.where(ok[:, None], moved, copies)
            leads = torch.where(ok, new, leads)
            accepted += ok / moves
        noise[runs, gone], lead[runs, gone] = copies, leads
        total = torch.bincount(runs, accepted, len(length))
        share = total / torch.bincount(runs, minlength=len(length)).clamp(min=1)
        low, high = _ACCEPTED
        length[share < low] *= 0.7
        length[share > high] = (length[share > high] / 0.7).clamp(max=1.0)

    def _lead(self, noise: Tensor) -> Tensor:
        """Lead of the best other class under noise (..., D): (...), on the CPU."""
        flat = noise.flatten(0, -2)
        self.calls += len(flat)
        logits = self._problem.noisy_logits(self._row, self._sigma * flat)
        label = int(self._problem.labels[self._row])
        kept = logits[:, label].clone()
        logits[:, label] = -torch.inf
        return (logits.amax(dim=1) - kept).reshape(noise.shape[:-1]).cpu()

    def _normal(self, count: int) -> Tensor:
        key = [(self._row, self._number())]
        return draw_normal(self._seed, SPLIT, key, count, self._problem.inputs)[0]

    def _number(self) -> int:
        self._draws += 1
        return self._draws
