"""Single precision: what a survey allows for rounding is enough, and not ten times."""

from functools import partial

import numpy as np
import pytest
import torch
from hostile import FAMILIES, problem
from random_views import exact_kernel, noisy

from robustbook.agreement.solver import Kernel, agreement_bounds, maximize
from robustbook.agreement.solver import _search as search
from robustbook.agreement.solver._survey import PEAK, survey

#: A survey goes on by products from one of these to the next.
FAR = [PEAK - 1, PEAK, PEAK + 1, *range(PEAK + 65, 2000, 64)]


def worst_pair(classes=1000):
    """All classes but one alike, where the errors of exp of all sums add up."""
    depths = torch.linspace(1e-5, 4e-4, 4000, dtype=torch.float64)

    def error(depth):
        return (-depth).float().exp().double() / (-depth).exp() - 1.0

    total = depths[:, None] + depths
    errors = error(depths)[:, None] + error(depths) - error(total)
    place = np.unravel_index(int(errors.abs().argmax()), errors.shape)
    rows = torch.zeros(2, classes, dtype=torch.float64)
    rows[0, 1:], rows[1, 1:] = -depths[place[0]], -depths[place[1]]
    return [row[None].repeat(2, 1) for row in rows]


def test_products_of_a_thousand_exponentials_err_by_what_is_allowed():
    pair = worst_pair()
    kernel = Kernel(*pair)
    points, _ = survey(kernel, 1.0, FAR, slice(0, 3))
    shares = []
    for point in points:
        exact = exact_kernel([view[:1] for view in pair], point.beta)
        shares.append(float(abs(point.value - exact)) / point.rounding)
        plain = kernel.evaluate(point.beta)
        error = abs(point.concave_slope - plain.concave_slope)
        assert error <= point.slope_rounding
    assert max(shares) <= 1.0
    # With a tenth of the allowance for each product, this problem would be above it.
    assert max(shares) >= 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_values_slopes_and_curvatures_are_within_what_rounding_allows(family):
    for seed in range(6):
        pair = [torch.as_tensor(view.astype(float)) for view in problem(family, seed)]
        kernel = Kernel(*pair)
        if kernel.everything_idle:
            continue
        step = 1.0 / kernel.scale
        points, curvatures = survey(kernel, step, range(1, 25), slice(8, 23))
        for point, most in zip(points, [*curvatures, np.inf], strict=True):
            plain = kernel.evaluate(point.beta)
            assert abs(point.value - plain.value) <= point.rounding
            error = abs(point.concave_slope - plain.concave_slope)
            assert error <= point.slope_rounding
            assert not abs(point.slope - plain.slope) > point.slope_rounding
            assert plain.curvature <= most + 1e-12 * abs(most)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e4])
def test_opposed_views_have_variances_although_their_sum_has_none(scale):
    # The allowance was that of the sum alone, which is constant here.
    one = torch.tensor([[0.0, -1.0], [0.0, -2.0]], dtype=torch.float64) * scale
    views = one, one.flip(1)
    kernel = Kernel(*views)
    beta = 1.0 / scale
    inside = kernel.evaluate(beta * (1 + 5e-10)).value
    bounds = agreement_bounds(*views, beta, beta * (1 + 1e-9))
    assert bounds.curvature >= inside
    _, curvatures = survey(kernel, beta / PEAK, range(1, 25), slice(8, 23))
    exact = [kernel.evaluate(beta / PEAK * place).curvature for place in range(9, 24)]
    for most, left, right in zip(curvatures[8:], exact, exact[1:], strict=False):
        assert most >= max(left, right)


def test_a_plan_hides_no_error_but_the_refusal_of_its_subsample(monkeypatch):
    views = noisy(0, 2, 30_000)
    surveyed = maximize(Kernel(*views), 1e-9)
    alike = [torch.zeros(10, 10, dtype=torch.float64)] * 2
    tiny = [1e-140 * torch.randn(10, 10).double() for _ in views]
    other = [1e3 * view[:300].flip(1) for view in (views[0], -views[1])]
    for misleading in (alike, tiny, other):
        with monkeypatch.context() as patch:
            few = partial(Kernel, *misleading)
            patch.setattr(Kernel, "of_subsample", lambda _, few=few: few())
            plain = maximize(Kernel(*views), 1e-9)
        assert plain.value == pytest.approx(surveyed.value, abs=2e-9)
    monkeypatch.setattr(search, "plan", lambda *_: [].index(1))
    with pytest.raises(ValueError, match="not in list"):
        maximize(Kernel(*views), 1e-9)


def test_a_survey_with_a_prior_is_within_its_allowance():
    views = noisy(3, 3, 50, 4)
    prior = torch.tensor([1e-9, 0.2, 0.3, 0.5 - 1e-9]).double()
    kernel = Kernel(*views, prior=prior)
    points, _ = survey(kernel, 0.05, range(1, 60), slice(8, 23))
    for point in points:
        exact = exact_kernel([view[:] for view in views], point.beta, prior.tolist())
        assert abs(point.value - exact) <= point.rounding
