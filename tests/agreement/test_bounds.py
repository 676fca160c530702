"""Every bound is a bound, and would not be one if it were much smaller."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hostile import FAMILIES, problem
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev

from robustbook.agreement import posterior_agreement
from robustbook.agreement.solver import Kernel, Step, maximize
from robustbook.agreement.solver._bounds import (
    StartBound,
    chord_tangent_bound,
    curvature_bound,
    largest_curvature,
    tail_bound,
)
from robustbook.agreement.solver._interpolation import Ceiling, Interpolation, sector

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
INSIDE = np.linspace(-0.9, 0.9, 7)


def tensors(pair):
    return [torch.as_tensor(np.array(view)).double() for view in pair]


def binary(*margins):
    return torch.tensor([[0.0, -margin] for margin in margins], dtype=torch.float64)


@SETTINGS
@given(
    st.sampled_from(list(FAMILIES)),
    st.integers(0, 10**6),
    st.floats(1.05, 5.0),
    st.floats(-8.0, 4.0),
)
def test_no_point_inside_an_interval_exceeds_any_of_its_bounds(
    family, seed, ratio, decade
):
    kernel = Kernel(*tensors(problem(family, seed)))
    if kernel.everything_idle:
        return
    start = 10**decade / kernel.scale
    betas = [0.0, *(start * ratio**power for power in range(8))]
    points = [kernel.evaluate(beta) for beta in betas]
    known = Interpolation(kernel)
    for point in points:
        known.add(point)
    from_zero = StartBound(kernel, points[0])
    for left, right in itertools.pairwise(points):
        half = 0.5 * (right.beta - left.beta)
        inside = [
            kernel.evaluate(left.beta + half * (1 + place)).value for place in INSIDE
        ]
        highest = max(inside) - 1e-13
        assert chord_tangent_bound(left, right) >= highest
        most = largest_curvature(kernel, left, right)
        assert curvature_bound(left, right, most) >= highest
        assert from_zero(right.beta) >= highest
        ceiling = known.ceiling(known.near(left.beta), math.inf, 0.0)
        assert ceiling is None or ceiling.top >= highest
        assert tail_bound(kernel, points[0]) >= highest


@pytest.mark.parametrize("place", [0.5, 1.0, 2.0])
def test_bounds_hold_where_both_ends_are_rounded_down(place):
    """Over an interval so short that all there is to bound is rounding."""
    clean, noise = torch.randn(2, 30, 3, generator=torch.manual_seed(0)).double()
    views = clean, clean + noise
    beta, kernel = place * posterior_agreement(*views).beta, Kernel(*views)
    steps = -1e-7, 0.0, 1e-7
    left, middle, right = (kernel.evaluate(beta * (1 + step)) for step in steps)
    highest = max(left.value, middle.value, right.value)
    for end in (left, right):
        end.value -= end.rounding
        end.convex -= end.rounding
    for bound in (
        chord_tangent_bound(left, right),
        curvature_bound(left, right, largest_curvature(kernel, left, right)),
        tail_bound(kernel, left),
    ):
        assert bound >= highest


def remainders(pair, ratio, count):
    """Errors of the interpolant inside the intervals, and their proven bounds."""
    kernel = Kernel(*pair)
    known = Interpolation(kernel)
    betas = [0.0, *(2.0 * ratio**power for power in range(-4, 4))]
    for beta in betas:
        known.add(kernel.evaluate(beta))
    errors, bounds = [], []
    for left, right in itertools.pairwise(betas[1:]):
        centre, half = 0.5 * (left + right), 0.5 * (right - left)
        near = known.near(left)[:count]
        ceiling = known.ceiling(near, math.inf, 0.0)
        if ceiling is None:
            continue
        bare = Ceiling.over(near[: ceiling.count], centre, half, 0.0)
        middle = chebyshev.chebval(INSIDE, bare.series)
        exact = [kernel.evaluate(centre + half * place).value for place in INSIDE]
        errors.extend(np.abs(exact - middle) - bare.slack)
        bounds.extend(chebyshev.chebval(INSIDE, ceiling.series) - middle)
    return np.array(errors), np.array(bounds)


@pytest.mark.parametrize("ratio", [1.3, 1.7, 2.5])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_interpolant_is_within_its_error_and_not_a_thousandth_of_it(ratio, count):
    pair = [binary(1.0), binary(-1.0)]
    errors, bounds = remainders(pair, ratio, count)
    assert len(errors) >= 7
    assert (errors <= bounds).all()
    assert (errors > 1e-3 * bounds).any()
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2, 30, 10, dtype=torch.float64, generator=generator)
    for scale in (1.0, 1e-3):
        errors, bounds = remainders([scale * views[0], views[1]], ratio, count)
        assert (errors <= bounds).all()


def ratio_of_sums(z, gaps):
    terms = np.exp(-z * gaps)
    return float(np.abs(terms).sum() / abs(terms.sum()))


@pytest.mark.parametrize("classes", [3, 10, 100, 1000])
def test_inside_the_sector_sums_lose_at_most_a_factor_of_four(classes):
    angle = sector(classes - 1.0)
    rng = np.random.default_rng(classes)

    def worst(angle):
        z = complex(math.cos(angle), math.sin(angle))
        # All other classes at one gap: the case of the proof.
        equal = [
            np.r_[0.0, np.full(classes - 1, gap)]
            for gap in np.linspace(0.1, 8.0, 400) / math.sin(angle)
        ]
        random = [
            np.r_[0.0, rng.exponential(scale, classes - 1)]
            for scale in np.geomspace(0.05, 20.0, 40)
        ]
        return max(ratio_of_sums(z, gaps) for gaps in equal + random)

    assert max(worst(share * angle) for share in (0.3, 0.7, 1.0)) <= 4.0
    assert worst(1.05 * angle) > 4.0


#: Of two equal views J is beta^2 times the product of the deviations; where one is
#: certain, beta times the mean distance of the other.
@pytest.mark.parametrize("margin", [1.0, 1e9])
def test_the_bound_near_zero_is_sharp_in_both_its_parts(margin):
    kernel = Kernel(binary(margin), binary(1.0))
    bound = StartBound(kernel, kernel.evaluate(0.0))
    assert 0.99 * bound(1e-3) < kernel.evaluate(1e-3).value <= bound(1e-3)


def test_views_that_are_decades_apart_do_not_cancel():
    # Found by the fuzz: the smaller view's mean was the difference of two sums.
    pair = tensors(problem("scales_apart", 37))
    kernel = Kernel(*pair)
    bound = StartBound(kernel, kernel.evaluate(0.0))
    for beta in np.geomspace(1e-30, 1e30, 121):
        assert kernel.evaluate(float(beta)).value <= bound(float(beta)) + 1e-13


def test_differences_far_below_the_others_are_solved():
    clean = [[1.8197106484233132e-175, 1.3582405364635965e-175], [1, -3e-175]]
    shifted = [[-6.812941846134249e-175, -3.4562761836032696e-175], [1, 2.2e-175]]
    result = posterior_agreement(clean, shifted)
    assert result.pa == pytest.approx(math.log(2) / 2, abs=1e-9)
    assert result.gap <= 1e-9


def test_several_evaluations_a_pass_take_fewer_passes_to_the_same_result():
    passes = {1: 0, 3: 0, 6: 0}
    for family in ("ordinary", "chance", "humps", "near_constant", "nearly_flat"):
        pair = tensors(problem(family, 5))
        told: list[Step] = []
        alone = maximize(Kernel(*pair), 1e-9, told.append)
        assert told == alone.steps
        for batch in passes:
            kernel = Kernel(*pair)
            kernel.batch = batch
            trace = maximize(kernel, 1e-9)
            assert trace.value == pytest.approx(alone.value, abs=1e-9)
            assert trace.upper_bound - trace.value <= 1e-9
            assert trace.evaluations == len(trace.steps) + 1
            assert len(trace.intervals) == trace.evaluations
            passes[batch] += trace.passes
    assert passes[3] < 0.7 * passes[1]
    assert passes[6] <= passes[3]


#: Flat in all beta, to the last digit: the certificate has to look everywhere.
FLAT = ("flat", "nearly_flat")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in FLAT])
def test_hostile_problems_take_at_most_forty_evaluations(family):
    results = [posterior_agreement(*problem(family, seed)) for seed in range(12)]
    most = 14 if family == "ordinary" else 40
    assert max(result.evaluations for result in results) <= most
    assert max(result.gap for result in results) <= 1e-9
