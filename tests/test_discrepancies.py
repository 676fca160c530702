"""Discrepancies against closed forms, other libraries and their inequalities."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.spatial.distance import jensenshannon, pdist
from scipy.special import rel_entr, softmax
from scipy.stats import wasserstein_distance
from sklearn.metrics.pairwise import cosine_similarity as sklearn_cosines
from sklearn.metrics.pairwise import rbf_kernel

from robustbook.discrepancies import (
    centroid_distance,
    cosine_similarity,
    frechet_distance,
    jensen_shannon,
    kl_divergence,
    mmd,
    total_variation,
    wasserstein,
)
from robustbook.scores import same_answer_rate

PATIENT = settings(deadline=None, max_examples=50)

POSTERIOR = [kl_divergence, jensen_shannon, total_variation, wasserstein]
FEATURE = [cosine_similarity, centroid_distance, mmd, frechet_distance]


@st.composite
def logit_pairs(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    shape = draw(st.sampled_from([1, 2, 20, 300])), draw(st.integers(2, 7))
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e4]))
    beta = draw(st.sampled_from([0.0, 0.3, 1.0, 4.0, math.inf]))
    return *(scale * random.normal(size=(2, *shape))), beta


def posteriors(*logits):
    return tuple(softmax(x, axis=1) for x in logits)


def cloud(count, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dimension))


@PATIENT
@given(logit_pairs())
def test_bounds_and_inequalities(problem):
    *pair, beta = problem
    kl = kl_divergence(*pair, beta=beta, reduction="none")
    tv = total_variation(*pair, beta=beta, reduction="none")
    js = jensen_shannon(*pair, beta=beta, reduction="none")
    assert kl.dtype == tv.dtype == js.dtype == torch.float64
    assert kl.shape == tv.shape == js.shape == (len(pair[0]),)
    assert (kl >= 0).all()
    assert ((tv >= 0) & (tv <= 1)).all()
    assert ((js >= 0) & (js <= math.log(2))).all()
    assert (kl >= 2 * tv**2 - 1e-12).all()  # Pinsker
    assert (js <= math.log(2) * tv + 1e-12).all()
    assert (js >= 0.5 * tv**2 - 1e-12).all()
    back = kl_divergence(*reversed(pair), beta=beta, reduction="none")
    assert (js <= 0.25 * (kl + back) + 1e-9).all()


@PATIENT
@given(logit_pairs())
def test_the_mean_of_the_terms_is_a_float_and_symmetric_but_for_kl(problem):
    *pair, beta = problem
    for measure in POSTERIOR:
        terms = measure(*pair, beta=beta, reduction="none")
        mean = measure(*pair, beta=beta)
        assert type(mean) is float
        assert mean == float(terms.mean())
        if measure is not kl_divergence:
            back = measure(*reversed(pair), beta=beta)
            assert mean == pytest.approx(back, abs=1e-12)
        if measure is wasserstein:  # between classes without an order
            variation = total_variation(*pair, beta=beta, reduction="none")
            assert torch.equal(terms, variation)
        same = pair[0], pair[0] + 3.0
        assert measure(*same, beta=beta) == pytest.approx(0, abs=1e-9)
    for ground in ("index", "confidence"):
        assert wasserstein(pair[0], pair[0], beta=beta, ground=ground) == 0.0


@PATIENT
@given(logit_pairs())
def test_against_scipy(problem):
    *pair, _ = problem
    p, q = posteriors(*pair)
    kl = kl_divergence(*pair, reduction="none").numpy()
    expected = rel_entr(p, q).sum(1)
    # The comparison is limited to posteriors that keep their digits in scipy.
    whole = ((q >= np.finfo(float).tiny) | (p == 0)).all(1)
    np.testing.assert_allclose(kl[whole], expected[whole], rtol=1e-6, atol=1e-12)
    js = jensen_shannon(*pair, reduction="none").numpy()
    # Half of the smallest number is 0, by which scipy would divide.
    expected = jensenshannon(p, q, axis=1) ** 2
    finite = np.isfinite(expected)
    np.testing.assert_allclose(js[finite], expected[finite], atol=1e-7)
    tv = total_variation(*pair, reduction="none")
    np.testing.assert_allclose(tv, abs(p - q).sum(1) / 2, atol=1e-12)
    index = np.arange(p.shape[1])
    np.testing.assert_allclose(
        wasserstein(*pair, ground="index", reduction="none"),
        [wasserstein_distance(index, index, u, v) for u, v in zip(p, q, strict=True)],
        atol=1e-9,
    )
    assert wasserstein(*pair, ground="confidence") == pytest.approx(
        wasserstein_distance(p.max(1), q.max(1)), abs=1e-12
    )


def test_kl_has_a_direction_and_stays_exact_where_posteriors_underflow():
    clean, shifted = [[5.0, 0.0]], [[0.0, 0.0]]
    assert kl_divergence(clean, shifted) < math.log(2)
    assert kl_divergence(shifted, clean) > 1.5
    # (1, ~0) against (~0, 1): the divergence is the margin, 2e4, not inf or NaN.
    assert kl_divergence([[2e4, 0.0]], [[0.0, 2e4]]) == pytest.approx(2e4)
    assert kl_divergence([[1e100, 0.0]], [[0.0, 1e100]]) == pytest.approx(1e100)


def test_jensen_shannon_is_at_most_log_two_though_rounded():
    pair = 40 * torch.randn(2, 200, 4, generator=torch.manual_seed(0)).double()
    assert jensen_shannon(*pair, reduction="none").max() == math.log(2)


def test_infinite_beta_compares_predictions():
    clean, shifted = cloud(50, 4, 1), cloud(50, 4, 2)
    tv = total_variation(clean, shifted, beta=math.inf)
    assert tv == pytest.approx(1 - same_answer_rate(clean, shifted), abs=1e-12)
    assert kl_divergence(clean, shifted, beta=math.inf) == math.inf
    js = jensen_shannon(clean, shifted, beta=math.inf)
    assert js == pytest.approx(math.log(2) * tv, rel=1e-12)
    # A tie has half of the mass on each side: finite in one direction only.
    tie, sure = [[1.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]
    assert kl_divergence(sure, tie, beta=math.inf) == pytest.approx(math.log(2))
    assert kl_divergence(tie, sure, beta=math.inf) == math.inf


@pytest.mark.parametrize("measure", POSTERIOR)
def test_scales_of_logits_and_of_beta(measure):
    far = [[1.0, 0.5, -3.0]], [[1e10, 2.0, 0.0]]
    assert measure(*far, beta=1e305) == pytest.approx(0.0, abs=1e-12)
    pair = cloud(100, 5, 1), cloud(100, 5, 2)
    assert measure(*pair, beta=0.0) == 0.0
    scaled = 10 * pair[0], 10 * pair[1]
    assert measure(*scaled) > 1.2 * measure(*pair)
    assert measure(*scaled, beta=0.1) == pytest.approx(measure(*pair), rel=1e-9)


def test_index_ground_depends_on_the_numbering_and_confidence_forgets_the_samples():
    logits = cloud(30, 4)
    assert wasserstein(logits, logits[::-1], ground="confidence") == 0.0
    assert wasserstein(logits, logits[::-1]) > 0.1
    pair = cloud(100, 5, 1), cloud(100, 5, 2)
    order = [4, 0, 3, 1, 2]
    moved = [x[:, order] for x in pair]
    assert wasserstein(*moved) == pytest.approx(wasserstein(*pair), rel=1e-12)
    values = [wasserstein(*x, ground="index") for x in (pair, moved)]
    assert abs(values[0] - values[1]) > 0.01


@given(st.integers(0, 2**31), st.integers(1, 6))
@settings(PATIENT, max_examples=25)
def test_frechet_against_scipy(seed, dimension):
    random = np.random.default_rng(seed)
    mix = random.normal(size=(2, dimension, dimension)) + 2 * np.eye(dimension)
    first = random.normal(size=(60, dimension)) @ mix[0]
    second = random.normal(size=(80, dimension)) @ mix[1] + 1.0
    ours = frechet_distance(first, second)
    assert ours >= 0
    assert ours == pytest.approx(frechet_distance(second, first), rel=1e-6)
    s, t = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (first, second))
    means = first.mean(0) - second.mean(0)
    expected = np.sum(means**2) + np.trace(s + t - 2 * sqrtm(s @ t).real)
    assert ours == pytest.approx(expected, rel=1e-6)


def test_equal_features_are_at_distance_zero():
    features = cloud(100, 5)
    assert frechet_distance(features, features) == pytest.approx(0, abs=1e-9)
    assert centroid_distance(features, features) == 0.0
    far = centroid_distance(features, features + 2.0)
    assert far == pytest.approx(2 * math.sqrt(5))
    # The sets are not paired, so their sizes may differ.
    assert centroid_distance([[0]], [[1], [3]]) == 2.0
    assert cosine_similarity(features, features) == pytest.approx(1, abs=1e-12)
    # The unbiased estimate is just below 0, as no point is compared with itself.
    assert mmd(features, features) == pytest.approx(0, abs=1e-12)


@given(st.integers(0, 2**31), st.floats(-1, 1), st.sampled_from([1.0, 1e-9, 1e9]))
@settings(PATIENT, max_examples=25)
def test_which_feature_discrepancies_ignore_the_unit(seed, log_scale, huge):
    random = np.random.default_rng(seed)
    pair = random.normal(size=(2, 40, 3)) + np.array([0.0, 0.5])[:, None, None]
    scale = huge * 10**log_scale
    scaled = scale * pair
    for measure in (cosine_similarity, mmd):
        assert measure(*scaled) == pytest.approx(measure(*pair), rel=1e-6, abs=1e-9)
    for measure, power in ((centroid_distance, 1), (frechet_distance, 2)):
        expected = scale**power * measure(*pair)
        assert measure(*scaled) == pytest.approx(expected, rel=1e-6)
        assert measure(*scaled, relative=True) == pytest.approx(
            measure(*pair, relative=True), rel=1e-6
        )


def test_relative_divides_by_the_total_variance():
    first, second = cloud(50, 4, 1), cloud(50, 4, 2) + 1
    total = np.trace(np.cov(first.T))
    assert centroid_distance(first, second, relative=True) == pytest.approx(
        centroid_distance(first, second) / math.sqrt(total)
    )
    assert frechet_distance(first, second, relative=True) == pytest.approx(
        frechet_distance(first, second) / total
    )


def test_cosines_against_sklearn():
    first, second = cloud(30, 5, 1), cloud(30, 5, 2)
    expected = np.diag(sklearn_cosines(first, second))
    cosines = cosine_similarity(first, second, reduction="none")
    np.testing.assert_allclose(cosines, expected, atol=1e-12)
    assert cosine_similarity(first, second) == pytest.approx(expected.mean())
    assert cosine_similarity(1e-60 * first, 1e60 * second) == pytest.approx(
        expected.mean(), abs=1e-12
    )


def _mmd_by_definition(first, second, width):
    gamma = 1 / (2 * width**2)
    xx, yy, xy = (
        rbf_kernel(u, v, gamma=gamma)
        for u, v in ((first, first), (second, second), (first, second))
    )
    terms = xx + yy - xy - xy.T
    return terms[~np.eye(len(terms), dtype=bool)].mean()


def test_mmd_by_definition_with_sklearns_kernel():
    first, second = cloud(40, 3, 1), cloud(40, 3, 2) + 0.5
    for width in (0.3, 2.0):
        expected = _mmd_by_definition(first, second, width)
        assert mmd(first, second, bandwidth=width) == pytest.approx(expected, abs=1e-12)
    # The lower median of the 3160 distances of 80 points.
    width = np.sort(pdist(np.concatenate([first, second])))[3160 // 2 - 1]
    expected = _mmd_by_definition(first, second, width)
    assert mmd(first, second) == pytest.approx(expected, abs=1e-12)


def test_mmd_in_blocks_is_the_same(monkeypatch):
    first, second = cloud(50, 3, 1), cloud(50, 3, 2) + 0.5
    whole = mmd(first, second, reduction="none")
    monkeypatch.setattr("robustbook.discrepancies._features._BLOCK", 800)
    np.testing.assert_allclose(mmd(first, second, reduction="none"), whole, atol=1e-13)


def test_mmd_closed_form_without_bias_for_dependent_pairs():
    """The members of a pair, u and u + 1, depend on each other completely."""
    width, repeats, count = 1.0, 300, 40
    # E k(a, b) for a - b normal with mean d and variance 2.
    attraction = math.sqrt(width**2 / (width**2 + 2))
    truth = 2 * attraction * (1 - math.exp(-1 / (2 * (width**2 + 2))))
    estimates, errors = [], []
    for seed in range(repeats):
        first = cloud(count, 1, seed)
        terms = mmd(first, first + 1, bandwidth=width, reduction="none")
        estimates.append(float(terms.mean()))
        errors.append(2 * float(terms.std()) / math.sqrt(count))
    spread = np.std(estimates)
    assert abs(np.mean(estimates) - truth) < 4 * spread / math.sqrt(repeats)
    # The documented standard error is about right.
    assert 0.8 < np.mean(errors) / spread < 1.25


@pytest.mark.parametrize("measure", POSTERIOR + FEATURE)
def test_torch_numpy_and_precision_agree_and_the_input_stays(measure):
    narrow = cloud(40, 4, 1).astype(np.float32), cloud(40, 4, 2).astype(np.float32)
    wide = [torch.as_tensor(x.astype(np.float64)) for x in narrow]
    copies = [x.clone() for x in wide]
    expected = measure(*wide)
    assert all(torch.equal(*both) for both in zip(wide, copies, strict=True))
    assert measure(*narrow) == pytest.approx(expected, rel=1e-12)
    assert measure(*map(torch.as_tensor, narrow)) == pytest.approx(expected, rel=1e-12)


ONE, EYE = [[1.0, 0.0]], torch.eye(3)
CONFIDENCE = partial(wasserstein, ground="confidence")
FLAT, CLOUD = np.ones((5, 2)), cloud(5, 2)


@pytest.mark.parametrize(
    ("measure", "pair", "options", "message"),
    [
        (total_variation, (ONE, 2 * ONE), {}, "shape"),
        (kl_divergence, ([[1.0, -math.inf]], ONE), {}, "finite"),
        (kl_divergence, (ONE, ONE), {"beta": -1}, "beta"),
        (kl_divergence, (ONE, ONE), {"reduction": "sum"}, "of mean, none; got 'sum'"),
        (wasserstein, (ONE, ONE), {"ground": "cosine"}, "confidence; got 'cosine'"),
        (CONFIDENCE, (ONE, ONE), {"reduction": "none"}, "'mean' with ground='conf"),
        (mmd, (CLOUD, cloud(6, 2)), {}, r"\(5, 2\).*\(6, 2\)"),
        (mmd, (cloud(1, 2), cloud(1, 2)), {}, "at least 2 samples"),
        (mmd, (FLAT, FLAT), {}, "median.*bandwid"),
        (mmd, (CLOUD, CLOUD), {"bandwidth": 0}, "bandwidth"),
        (frechet_distance, (cloud(4, 4), cloud(9, 4)), {}, r"^features:.*\(4, 4\)"),
        (frechet_distance, (cloud(9, 4), cloud(9, 3)), {}, "4 features"),
        (cosine_similarity, (CLOUD, 0 * FLAT), {}, "shifted_features.*zeros at row 0"),
        (centroid_distance, (FLAT, CLOUD), {"relative": True}, "vary"),
        (centroid_distance, (np.zeros((2, 3, 4)), CLOUD), {}, "flatten"),
        (centroid_distance, (CLOUD > 0, CLOUD), {}, "real numbers"),
        (centroid_distance, ([[1.0, math.nan]], CLOUD), {}, r"NaN at index \(0, 1\)"),
        *((f, (1e200 * CLOUD, CLOUD), {}, "within ±1e.150") for f in FEATURE),
    ],
)
def test_bad_values_are_named(measure, pair, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        measure(*pair, **options)


@pytest.mark.parametrize("scale", [1e-160, 1.0, 1e90])
def test_relative_frechet_distance_has_no_unit(scale):
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    shifted = clean + 0.3
    expected = frechet_distance(clean, shifted, relative=True)
    distance = frechet_distance(scale * clean, scale * shifted, relative=True)
    assert distance == pytest.approx(expected, rel=1e-9)
