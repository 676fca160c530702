"""Posterior agreement against the papers' procedure, as ratios within one run.

Run as tests these check that the pieces work; `make bench` times them and prints
the ratios. Nothing here asserts a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from robustbook.agreement import adam_agreement, posterior_agreement
from robustbook.agreement._adam import adam_steps
from robustbook.agreement._kernel import Kernel

SAMPLES, CLASSES = 10_000, 10


def ordinary_problem(samples: int = SAMPLES, classes: int = CLASSES):
    """Logits of a fairly accurate model and of the same under noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    clean = 2 * torch.randn(samples, classes, generator=generator)
    clean[torch.arange(samples), labels] += 6
    shifted = 2 * torch.randn(samples, classes, generator=generator)
    return clean, shifted.add_(clean)


def seconds(action: Callable[[], object], repeat: int = 1) -> float:
    """Shortest of ``repeat`` runs."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.fixture
def timed(benchmark) -> bool:
    """Whether this is a timing run (`make bench`) or a quick check."""
    return benchmark.enabled


def test_exact_against_the_papers_procedure(timed, benchmark, capsys):
    pair = ordinary_problem()
    result = benchmark(posterior_agreement, *pair)
    assert result.gap <= 1e-9
    assert result.evaluations <= 40
    epochs, steps = (5, 500) if timed else (1, 5)
    exact = seconds(lambda: posterior_agreement(*pair), 20 if timed else 1)
    batches = seconds(lambda: adam_steps(*pair, epochs=epochs, batch_size=16))
    full = seconds(lambda: adam_steps(*pair, epochs=steps))
    with capsys.disabled():
        print(
            f"\nN={SAMPLES}, K={CLASSES}: exact {exact * 1e3:.1f} ms, "
            f"{result.evaluations} evaluations, gap {result.gap:.1e}"
            f"\n  papers' procedure (batches of 16, 500 epochs, extrapolated from "
            f"{epochs}): {batches / epochs * 500:.0f} s, "
            f"{batches / epochs * 500 / exact:.0f} times"
            f"\n  full-batch Adam, 500 steps (from {steps}): "
            f"{full / steps * 500:.2f} s, {full / steps * 500 / exact:.0f} times"
        )


def test_where_the_time_goes(timed, benchmark, capsys):
    kernel = Kernel(*ordinary_problem())
    benchmark(kernel.evaluate, 0.5)
    repeat = 50 if timed else 1
    evaluation = seconds(lambda: kernel.evaluate(0.5), repeat)
    values = -20 * torch.rand(2 * SAMPLES * CLASSES, dtype=torch.float64)
    out = torch.empty_like(values)
    bare = seconds(lambda: torch.exp(values, out=out), repeat)
    statistics = seconds(lambda: Kernel(*ordinary_problem()), repeat)
    statistics -= seconds(ordinary_problem, repeat)
    with capsys.disabled():
        print(
            f"\none evaluation {evaluation * 1e3:.2f} ms, of which the bare "
            f"exponentials {bare * 1e3:.2f} ms ({len(values) / bare / 1e9:.2f}e9 a "
            f"second); statistics before the search {statistics * 1e3:.2f} ms"
        )


@pytest.mark.slow
def test_a_thousand_classes(timed, benchmark, capsys):
    samples = 50_000 if timed else 500
    pair = ordinary_problem(samples, 1000)
    result = benchmark.pedantic(posterior_agreement, args=pair, rounds=1)
    assert result.gap <= 1e-9
    with capsys.disabled():
        print(
            f"\nN={samples}, K=1000: {seconds(lambda: posterior_agreement(*pair)):.1f}"
            f" s, {result.evaluations} evaluations, gap {result.gap:.1e}"
        )


def test_adam_stops_somewhere(benchmark):
    """The comparison is fair: Adam does reach the same value on this problem."""
    pair = ordinary_problem(1000)
    exact = posterior_agreement(*pair)
    trace = benchmark.pedantic(adam_agreement, args=pair, rounds=1)
    assert trace.best_pa == pytest.approx(exact.pa, abs=1e-4)
