"""Average-case robustness against Monte Carlo and scipy, as ratios within one run.

Run as tests these check that the pieces work; `make bench` times them and prints
the ratios. Nothing here asserts a time. Processor time, on one thread: so other
programs on the machine disturb it little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor, nn

from robustbook.average_case import mmse, monte_carlo, orthant_probability, taylor
from robustbook.datasets import load_dataset
from robustbook.models import CifarResNet, load_model
from robustbook.studies._timing import one_thread

#: Noisy inputs of the paper's Monte Carlo estimate.
PAPER_SAMPLES = 10_000


@pytest.fixture
def timed(benchmark) -> Iterator[bool]:
    """Whether this is a timing run (`make bench`) or a quick check; one thread."""
    with one_thread():
        yield benchmark.enabled


def seconds(action: Callable[[], object], repeat: int = 3) -> float:
    """Least processor time of a few runs after a first one."""
    action()
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best


def random_problems(count: int, dimension: int = 9) -> tuple[Tensor, Tensor]:
    """Margins of random linear classifiers, moderately far from the boundaries."""
    generator = torch.Generator().manual_seed(1)
    shape = (count, dimension + 1, 2 * dimension + 2)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    steps = weights[:, :1] - weights[:, 1:]
    covariance = steps @ steps.mT
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    size = 2 * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    mean = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    return mean.abs() * scale * size, covariance


def digits_problems(count: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Margins of a network for real images, linearized: what the package meets."""
    from robustbook.average_case.parts import linearize, set_up

    images = load_dataset("digits", "test").images[:count]
    problem = set_up(load_model("digits-cnn"), images, sigma)
    parts = list(linearize(problem))
    margins = torch.cat([part.margins for part in parts]) / sigma
    return margins, torch.cat([part.gram for part in parts])


def scipy_loop(mean: Tensor, covariance: Tensor, **options: float) -> np.ndarray:
    zero = np.zeros(mean.shape[1])
    return np.array(
        [
            multivariate_normal.cdf(m, mean=zero, cov=c, allow_singular=True, **options)
            for m, c in zip(mean.numpy(), covariance.numpy(), strict=True)
        ]
    )


def error_of(found: Tensor, exact: Tensor) -> float:
    """Root mean square over the problems."""
    return float((found - exact).square().mean().sqrt())


@pytest.mark.parametrize("kind", ["random", "digits"])
def test_orthant_probability_against_a_loop_over_scipy(kind, timed, benchmark, capsys):
    count = 1000 if timed else 8
    if kind == "random":
        mean, covariance = random_problems(count)
    else:
        mean, covariance = digits_problems(min(count, 300), 0.4)
    exact = orthant_probability(
        mean, covariance, points=65_536 if timed else 4096, seed=99
    ).probability
    benchmark.pedantic(
        orthant_probability, args=(mean, covariance), kwargs={"points": 128}
    )
    # scipy's time at several budgets, to be read off at our error.
    few = min(len(mean), 200 if timed else 2)
    budgets = (500, 1000, 2000, 4000, 8000, 16_000, 32_000) if timed else (500, 1000)
    curve = []
    for budget in budgets:
        options = {"maxpts": budget, "abseps": 1e-9, "releps": 1e-9}
        np.random.seed(0)
        found = torch.from_numpy(scipy_loop(mean[:few], covariance[:few], **options))
        took = seconds(
            lambda options=options: scipy_loop(mean[:few], covariance[:few], **options),
            repeat=1,
        )
        curve.append((error_of(found, exact[:few]), took / few))
    if timed:
        # As it is called by default, for an absolute error of 1e-5.
        np.random.seed(0)
        found = torch.from_numpy(scipy_loop(mean[:40], covariance[:40]))
        took = seconds(lambda: scipy_loop(mean[:40], covariance[:40]), repeat=1)
        curve.append((error_of(found, exact[:40]), took / 40))
    curve.sort()
    errors, times = (np.array(values) for values in zip(*curve, strict=True))
    ours = ((32, 8), (128, 8), (1024, 8), (2048, 4), (8192, 8), (16_384, 4))
    lines = []
    for points, scrambles in ours if timed else ours[:1]:

        def call(points=points, scrambles=scrambles):
            return orthant_probability(
                mean, covariance, points=points, scrambles=scrambles, seed=3
            )

        error = error_of(call().probability, exact)
        assert error < 0.01
        took = seconds(call, repeat=2 if timed else 1) / len(mean)
        theirs = float(np.exp(np.interp(np.log(error), np.log(errors), np.log(times))))
        lines.append(
            f"  {scrambles} x {points} points: error {error:.1e}, {took * 1e3:.3f} ms "
            f"a problem, scipy {theirs * 1e3:.2f} ms: {theirs / took:.0f} times"
        )
    with capsys.disabled():
        print(
            f"\n{kind} problems of dimension 9, {len(mean)} of them", *lines, sep="\n"
        )
        for error, took in curve:
            print(f"  (scipy: error {error:.1e} in {took * 1e3:.2f} ms)")


def resnet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CifarResNet(blocks=3).eval()


@pytest.mark.parametrize("name", ["digits-cnn", "resnet20"])
def test_linearized_against_monte_carlo(name, timed, benchmark, capsys):
    if name == "resnet20":
        generator = torch.Generator().manual_seed(0)
        model, x = resnet(), torch.rand(4, 3, 32, 32, generator=generator)
    else:
        model = load_model("digits-cnn")
        x = load_dataset("digits", "test").images[: 100 if timed else 4]
    samples = {"digits-cnn": 2000, "resnet20": 512}[name] if timed else 64
    sampled = seconds(
        lambda: monte_carlo(model, x, 0.1, samples=samples), repeat=2 if timed else 1
    )
    # Its time is proportional to the samples.
    sampled *= PAPER_SAMPLES / samples / len(x)
    benchmark.pedantic(taylor, args=(model, x, 0.1))
    estimates = {
        "Taylor": lambda: taylor(model, x, 0.1),
        "Taylor mvs": lambda: taylor(model, x, 0.1, cdf="mv_sigmoid"),
        "MMSE n=5": lambda: mmse(model, x, 0.1, samples=5),
    }
    lines = []
    for label, estimate in estimates.items():
        took = seconds(estimate, repeat=3 if timed else 1) / len(x)
        lines.append(f"  {label}: {took * 1e3:.2f} ms, {sampled / took:.0f} times")
    with capsys.disabled():
        print(
            f"\n{name}: Monte Carlo with {PAPER_SAMPLES} samples "
            f"{sampled:.2f} s an input (extrapolated from {samples})",
            *lines,
            sep="\n",
        )


def test_several_sigmas_share_the_jacobian(timed, benchmark, capsys):
    model = load_model("digits-cnn")
    x = load_dataset("digits", "test").images[: 100 if timed else 4]
    sigmas = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4]
    together = seconds(lambda: taylor(model, x, sigmas, cdf="mv_sigmoid"))
    apart = seconds(lambda: [taylor(model, x, s, cdf="mv_sigmoid") for s in sigmas])
    benchmark.pedantic(taylor, args=(model, x, sigmas))
    with capsys.disabled():
        print(f"\nsix sigmas at once: {apart / together:.1f} times")
