"""The certificate on adversarial problems: bounds, invariances, dense grids."""

import itertools
import math

import numpy as np
import pytest
import torch
from hostile import FAMILIES, problem
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_views import dense_grid, noisy, problems, rows

from robustbook.agreement import (
    CertificateError,
    agreement_curve,
    posterior_agreement,
)
from robustbook.agreement.solver import _problem, agreement_search

TOL = 1e-9
SETTINGS = settings(max_examples=80, deadline=None, derandomize=True)


def two_level(groups):
    """Binary logits ±m/2 for groups of (count, clean margin, shifted margin)."""
    counts, clean, shifted = zip(*groups, strict=True)
    repeat = torch.tensor(counts)
    pair = []
    for margins in (clean, shifted):
        m = torch.tensor(margins, dtype=torch.float64).repeat_interleave(repeat)
        pair.append(torch.stack([m / 2, -m / 2], 1))
    return pair


#: The published counterexamples to concavity.
FIRST = tuple(two_level([(50, 20, 20), (10, 1, -1), (2000, 0.03, 0.03)]))
SECOND = tuple(two_level([(100, 10, 10), (10, 1, -1), (900, 0.05, 0.05)]))


@SETTINGS
@given(problems(), st.none() | st.integers(0, 1000))
@example(FIRST, None)
@example(SECOND, None)
def test_no_grid_point_exceeds_the_certificate(views, seed):
    prior, rarest = None, 1 / views[0].shape[1]
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        prior = torch.rand(views[0].shape[1], generator=generator).double() + 0.05
        prior /= prior.sum()
        rarest = float(prior.min())
    tol = TOL if prior is None else 1e-7
    result = posterior_agreement(*views, prior=prior, tol=tol)
    assert 0 <= result.pa <= -(len(views) - 1) * math.log(rarest) + 1e-12
    assert 0 <= result.gap <= tol
    curve = agreement_curve(*views, dense_grid(views), prior=prior)
    assert float(curve.max()) <= result.upper_bound
    assert float(result.per_sample.mean()) == pytest.approx(result.pa, abs=1e-12)
    at_beta = agreement_curve(*views, [result.beta], prior=prior)
    assert float(at_beta[0]) == pytest.approx(result.pa, abs=1e-12)


@SETTINGS
@given(problems())
def test_every_interval_bound_holds_inside_its_interval(views):
    trace = agreement_search(*views, tol=TOL)
    grids = [
        np.linspace(left, right if math.isfinite(right) else max(1.0, left) * 1e3, 30)
        for left, right, _ in trace.intervals
    ]
    if grids:
        curves = agreement_curve(*views, np.concatenate(grids)).reshape(-1, 30)
        bounds = rows([bound for *_, bound in trace.intervals])[0]
        assert bool((curves.amax(1) <= bounds + 1e-15).all())
    ends = [interval[:2] for interval in trace.intervals]
    if trace.evaluations:
        # The intervals cover [0, infinity) without a hole.
        assert ends[0][0] == 0.0
        assert ends[-1][1] == math.inf
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))


@SETTINGS
@given(problems(), st.integers(0, 1000), st.sampled_from([1e-30, 2.0**-20, 3.0, 1e30]))
def test_invariances(views, seed, scale):
    reference = posterior_agreement(*views, tol=TOL)
    samples, classes = views[0].shape
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(classes, generator=generator)
    place = torch.randperm(samples, generator=generator)
    offset = torch.randn(samples, 1, generator=generator).double().round()
    same = {
        "symmetry": views[::-1],
        "views": views[1:] + views[:1],
        "classes": [view[:, order] for view in views],
        "samples": [view[place] for view in views],
        "scale": [view * scale for view in views],
        "duplication": [view.repeat(3, 1) for view in views],
    }
    for what, other in same.items():
        found = posterior_agreement(*other, tol=TOL)
        assert found.pa == pytest.approx(reference.pa, abs=2 * TOL), what
        at_beta = agreement_curve(*other, [found.beta])
        assert float(at_beta[0]) == pytest.approx(found.pa, abs=1e-12), what
        if what != "classes":  # Of ties, the first class counts.
            assert found.mismatch == pytest.approx(reference.mismatch), what
            hard = pytest.approx(reference.hard_part, abs=2 * TOL)
            assert found.hard_part == hard, what
    uniform = torch.full((classes,), 1.0 / classes)
    found = posterior_agreement(*views, prior=uniform, tol=TOL).pa
    assert found == pytest.approx(reference.pa, abs=2 * TOL), "prior"
    if all(float(view.abs().max()) < 1e3 for view in views):
        # Adding a constant rounds the logits: exact only for moderate ones.
        first, *others = [view.round() for view in views]
        shift = posterior_agreement(first + offset, *others, tol=TOL).pa
        plain = posterior_agreement(first, *others, tol=TOL).pa
        assert shift == pytest.approx(plain, abs=2 * TOL)


@pytest.mark.parametrize(
    ("pair", "pa", "beta"),
    [
        pytest.param(FIRST, 0.14860, 75.5, id="first published counterexample"),
        pytest.param(SECOND, 0.09518, 37.2, id="second published counterexample"),
        # Predictions differ, and yet three classes may agree.
        pytest.param(
            (rows([2.0, 1.9, -5.0]), rows([1.9, 2.0, -5.0])), 0.40204, 1.036,
            id="disagreeing predictions",
        ),
        # Argmax sets {0, 1} and {0}: the overlap tends to 1/2, times K = 3.
        pytest.param(
            (rows([1.0, 1.0, 0.0]), rows([1.0, 0.0, -1.0])), math.log(3 / 2), math.inf,
            id="ties count at infinity",
        ),
        pytest.param(
            (rows([1.0, 1.0 - 1e-12]), rows([1.0 - 1e-12, 1.0])), 0.0, 0.0,
            id="near-ties are no ties",
        ),
    ],
)  # fmt: skip
def test_known_problems_are_solved_globally(pair, pa, beta):
    result = posterior_agreement(*pair)
    assert result.pa == pytest.approx(pa, abs=1e-5)
    assert result.beta == pytest.approx(beta, rel=2e-3)


@pytest.mark.parametrize("views", [2, 3, 5])
def test_views_that_all_agree_reach_the_cap_at_infinity(views):
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    result = posterior_agreement(*(logits * (v + 1) for v in range(views)))
    assert result.beta == math.inf
    assert result.pa == pytest.approx((views - 1) * math.log(7), abs=1e-14)
    assert result.evaluations == 0
    assert result.log_pa == pytest.approx(0.0, abs=1e-10)


def test_constant_rows_contribute_nothing_and_dilute_the_rest():
    logits, shifted = noisy(2, classes=5)
    zeros = torch.zeros(40, 5, dtype=torch.float64)
    for pair in ((logits, zeros), (zeros, logits)):
        result = posterior_agreement(*pair)
        assert result.pa == 0.0
        assert result.gap <= TOL
    alone = posterior_agreement(logits, shifted)
    twice = torch.cat([shifted, shifted])
    diluted = posterior_agreement(torch.cat([logits, zeros]), twice)
    assert diluted.pa == pytest.approx(alone.pa / 2, abs=2 * TOL)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_double(dtype):
    clean, shifted = (part.to(dtype) for part in noisy(6, 2, 500))
    exact = posterior_agreement(clean.double(), shifted.double())
    assert posterior_agreement(clean, shifted).pa == pytest.approx(exact.pa, abs=1e-12)


@pytest.mark.parametrize("views", [2, 3])
def test_large_problems_are_shifted_chunk_by_chunk(monkeypatch, views):
    problem = noisy(7, views, 3000, 11)
    kept = posterior_agreement(*problem)
    monkeypatch.setattr(_problem, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(_problem, "CHUNK_ENTRIES", {"cpu": 1000, "cuda": 1000})
    streamed = posterior_agreement(*problem)
    assert streamed.pa == pytest.approx(kept.pa, abs=1e-12)
    assert streamed.beta == pytest.approx(kept.beta, rel=1e-6)


def test_a_tolerance_below_rounding_is_refused_with_a_remedy():
    clean, shifted = noisy(8, 2, 100)
    for other, tol in ((shifted, 1e-15), (clean, 1e-16)):
        with pytest.raises(CertificateError, match="Set tol above") as refusal:
            posterior_agreement(clean, other, tol=tol)
        named = float(str(refusal.value).rpartition(" ")[2])
        assert tol < named < 1e-9
        assert posterior_agreement(clean, other, tol=1.1 * named).gap <= 1.1 * named


def test_arrays_of_any_stride_are_read_and_never_written(tmp_path):
    clean, shifted = (view.numpy() for view in noisy(0, 2, 30, 4))
    expected, before = posterior_agreement(*noisy(0, 2, 30, 4)).pa, clean.copy()
    assert posterior_agreement(clean, shifted).pa == expected
    np.testing.assert_array_equal(clean, before)
    assert posterior_agreement(clean[::-1], shifted[::-1]).pa == pytest.approx(expected)
    # A memory map is read without a warning.
    np.save(tmp_path / "logits.npy", clean)
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    assert posterior_agreement(mapped, mapped).beta == math.inf


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_cuda_agrees_with_cpu():
    clean, shifted = noisy(10, 2, 2000)
    cpu = posterior_agreement(clean, shifted)
    gpu = posterior_agreement(clean.cuda(), shifted.cuda())
    assert gpu.pa == pytest.approx(cpu.pa, abs=1e-9)
    assert gpu.per_sample.is_cuda


def test_tiny_scales_are_solved_or_refused():
    reference = posterior_agreement(*FIRST)
    tiny = posterior_agreement(*(part * 1e-120 for part in FIRST))
    assert tiny.pa == pytest.approx(reference.pa, abs=2e-9)
    for scale in (1e-155, 1e-200, 1e-300):
        with pytest.raises(ValueError, match="differences of at least"):
            posterior_agreement(*(part * scale for part in FIRST))


def test_a_rare_class_may_lead_by_its_weight():
    clean = torch.tensor([[-374.0, 0.0, -600.0]], dtype=torch.float64)
    shifted = torch.tensor([[-374.0, -570.0, 0.0]], dtype=torch.float64)
    prior = torch.tensor([1e-99, 0.5, 0.5], dtype=torch.float64)
    # In logarithms: -748 + 99 log 10 beats -570 + log 2 and -600 + log 2.
    expected = math.log(math.exp(-748 + 570 + 99 * math.log(10)) + 2) - 570
    value = agreement_curve(clean, shifted, [1.0], prior=prior)
    assert float(value[0]) == pytest.approx(expected, rel=1e-12)


def test_a_flat_kernel_and_one_of_many_classes_are_certified():
    # Independent bits: J is 0 at every beta, the hardest case for the bounds.
    bits = rows([0.0, 1.0, 0.0, 1.0]), rows([0.0, 0.0, 1.0, 1.0])
    result = posterior_agreement(*bits, tol=1e-7)
    assert abs(result.pa) <= 1e-7
    assert result.gap <= 1e-7
    assert posterior_agreement(*noisy(0, 2, 20, 20_000)).gap <= 1e-9
    # A large one, of an ordinary kind, takes few evaluations.
    large = posterior_agreement(*noisy(9, 2, 10_000))
    assert large.gap <= 1e-9
    assert large.evaluations <= 40


@pytest.mark.parametrize(
    ("samples", "classes", "views"), [(200_000, 2, 2), (30_000, 10, 3), (3000, 300, 2)]
)
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_a_large_ordinary_problem_is_certified_in_a_few_passes(
    samples, classes, views, noise, monkeypatch
):
    draws = torch.Generator().manual_seed(0)
    clean = torch.randn(samples, classes, generator=draws).double()
    labels = torch.randint(classes, (samples,), generator=draws)
    clean[torch.arange(samples), labels] += 3
    pair = [
        clean + noise * torch.randn(samples, classes, generator=draws)
        for _ in range(views)
    ]
    result = posterior_agreement(*pair)
    assert result.gap <= 1e-9
    # The first look, the survey in single precision, and few evaluations in double.
    assert result.trace.passes <= (9 if noise > 2 else 3)
    # Without a survey, the search proves the same.
    monkeypatch.setattr(_problem, "LARGEST_LOG_WEIGHT", 0.0)
    slow = posterior_agreement(*pair)
    assert result.pa == pytest.approx(slow.pa, abs=2e-9)
    assert result.upper_bound >= slow.pa
    assert slow.trace.passes > result.trace.passes


@pytest.mark.parametrize("family", FAMILIES)
def test_a_survey_of_a_hostile_problem_proves_the_same(family, monkeypatch):
    for seed in range(3):
        pair = [
            np.repeat(view, 40, axis=0).astype(float) for view in problem(family, seed)
        ]
        order = np.random.default_rng(seed).permutation(len(pair[0]))
        pair = [view[order] for view in pair]
        plain = posterior_agreement(*pair)
        with monkeypatch.context() as patch:
            patch.setattr(_problem, "SMALL_ENTRIES", 0)
            patch.setattr(_problem, "SAMPLE_ENTRIES", 0)
            patch.setattr(_problem, "SAMPLE_ROWS", len(order) // 9)
            surveyed = posterior_agreement(*pair)
        assert surveyed.pa == pytest.approx(plain.pa, abs=1e-9)
        assert surveyed.gap <= 1e-9
        assert surveyed.upper_bound >= plain.pa - 1e-13
        assert plain.upper_bound >= surveyed.pa - 1e-13


def test_the_curve_goes_on_to_infinity():
    clean = torch.tensor([[2.0, 2.0, 0.0], [0.0, 1.0, 0.0]])
    betas = [math.inf, 1.0, 700.0, math.inf]
    curve = agreement_curve(clean, clean, betas)
    # A tie of two among three classes, and one that is sure.
    expected = (math.log(3 / 2) + math.log(3)) / 2
    assert curve[[0, 2, 3]].tolist() == pytest.approx([expected] * 3, abs=1e-12)
    assert curve[1] == agreement_curve(clean, clean, [1.0])
    apart = agreement_curve(clean, clean.roll(1, 1), [700.0, math.inf])
    assert apart[0] < -300
    assert apart[1] == -math.inf
