"""Agreement of regressions against quadrature and limits, and a grid of values."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from robustbook.agreement import agreement_curve, gaussian_agreement
from robustbook.agreement._other_answers import gaussian_kernel, gaussian_maximizer

Density = Callable[[float], float]
energies = st.floats(0, 50)


def pair(samples=12, seed=0, change=0.4):
    generator = torch.Generator().manual_seed(seed)
    clean, noise = torch.randn(2, samples, generator=generator, dtype=torch.float64)
    return clean, clean + change * noise


def by_quadrature(views, beta, risk, prior, end):
    """J by adaptive quadrature over (-end, end), sample by sample."""
    total = 0.0
    for a, b in zip(*(side.tolist() for side in views), strict=True):

        def integral(exponent, a=a, b=b):
            def weighed(t):
                return prior(t) * math.exp(-beta * exponent(t))

            ends = {"points": sorted({a, b, (a + b) / 2}), "limit": 500}
            return float(integrate.quad(weighed, -end, end, epsabs=1e-13, **ends)[0])

        first = integral(lambda t, a=a: risk(t - a))
        second = integral(lambda t, b=b: risk(t - b))
        both = integral(lambda t, a=a, b=b: risk(t - a) + risk(t - b))
        total += math.log(both / (first * second))
    return total / len(views[0])


def half_square(x):
    return 0.5 * x * x


def gauss(t, center, scale):
    return math.exp(-half_square((t - center) / scale)) / (
        scale * math.sqrt(2 * math.pi)
    )


def test_the_closed_form_is_the_integral():
    views = pair()
    result = gaussian_agreement(*views, scale=1.5, center=0.2)
    for factor in (0.3, 1.0, 3.0):
        beta = factor * result.beta
        value = by_quadrature(
            views, beta, half_square, lambda t: gauss(t, 0.2, 1.5), 15.0
        )
        if factor == 1.0:
            assert value == pytest.approx(result.pa, abs=1e-9)
        assert value <= result.pa + 1e-9
    assert float(result.per_sample.mean()) == pytest.approx(result.pa)


@settings(max_examples=60)
@given(total=energies, apart=st.floats(1e-6, 60))
def test_a_gaussian_kernel_has_one_hill_whose_top_is_found(total, apart):
    a, b = torch.tensor([total]).double(), torch.tensor([apart]).double()

    def kernel(r):
        return float(gaussian_kernel(r, a, b, 1))

    grid = [0.0, *np.geomspace(1e-6, 1e8, 300)]
    values = np.array([kernel(r) for r in grid])
    best = gaussian_maximizer(total, apart)
    assert (best == 0.0) == (apart >= 1 + total)
    # What rounding leaves of a value whose terms are as large as these.
    noise = 1e-13 * (1 + np.array(grid) * (total + apart))
    assert (kernel(best) >= values - noise).all()
    below, steps = np.array(grid[:-1]) >= best, np.diff(values)
    assert (steps[below] <= noise[1:][below]).all()
    above = np.array(grid[1:]) <= best
    assert (steps[above] >= -noise[1:][above]).all()


def test_more_outputs_are_coordinates_under_one_temperature():
    first, second = pair(30), pair(30, seed=1)
    both = [torch.stack(side, 1) for side in zip(first, second, strict=True)]
    joint = gaussian_agreement(*both, scale=1.0)
    apart = [gaussian_agreement(*one, scale=1.0).pa for one in (first, second)]
    assert joint.pa <= sum(apart) + 1e-12
    twice = gaussian_agreement(*(torch.stack([x, x], 1) for x in first), scale=1.0)
    assert twice.pa == pytest.approx(2 * apart[0])


def test_agreement_depends_on_no_unit():
    clean, shifted = pair()
    one = gaussian_agreement(clean, shifted, scale=1.5, center=0.2)
    other = gaussian_agreement(
        7 * clean + 3, 7 * shifted + 3, scale=7 * 1.5, center=7 * 0.2 + 3
    )
    assert other.pa == pytest.approx(one.pa, abs=1e-12)
    assert other.beta == pytest.approx(one.beta / 49)


def test_for_a_wide_prior_only_the_mean_square_change_counts():
    clean, shifted = pair(200)
    scale = 1e4
    change = float((clean - shifted).square().mean())
    pa = gaussian_agreement(clean, shifted, scale=scale).pa
    expected = math.log(scale) - 0.5 * math.log(math.e * change)
    assert pa == pytest.approx(expected, abs=1e-6)


def test_unchanged_predictions_score_infinity_and_opposite_ones_zero():
    still = torch.zeros(5)
    assert gaussian_agreement(still, still, scale=1.0).pa == math.inf
    far = torch.full((5,), 3.0)
    against = gaussian_agreement(far, -far, scale=1.0)
    assert (against.pa, against.beta) == (0.0, 0.0)


@settings(max_examples=20)
@given(
    beta=st.floats(1e-2, 30), size=st.sampled_from([64, 256]), seed=st.integers(0, 9)
)
def test_a_grid_of_values_errs_by_at_most_the_bound_of_chapter_35(beta, size, seed):
    clean, shifted = pair(3, seed=seed)
    length, step = 10.0, 10.0 / size
    grid = -5 + step * (torch.arange(size).double() + 0.5)
    logits = [-(grid - side[:, None]).abs() for side in (clean, shifted)]
    summed = float(agreement_curve(*logits, [beta]))
    exact = by_quadrature((clean, shifted), beta, abs, lambda _: 0.1, 5.0)
    once, twice = (
        0.75 * (step * b) ** 2 / -math.expm1(-b * length / 2) for b in (beta, 2 * beta)
    )
    if twice <= 0.5:
        bound = -2 * math.log1p(-once) - math.log1p(-twice)
        assert abs(summed - exact) <= bound + 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0]), "shifted: expected shape"),
        (([math.nan], [1.0]), "predictions: expected finite"),
        (([], []), r"predictions: expected shape \(N,\)"),
        (([[1.0, 2.0]], [1.0]), r"shifted: expected shape \(1, 2\)"),
    ],
)
def test_arrays_that_are_not_paired_predictions_are_refused(arguments, message):
    arrays = [torch.tensor(side) for side in arguments]
    with pytest.raises(ValueError, match=message):
        gaussian_agreement(*arrays, scale=1.0)
