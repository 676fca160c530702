"""Three views and more: oracles, what pairs of views say, and what they do not."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize_scalar

from robustbook.agreement import (
    agreement_curve,
    agreement_search,
    posterior_agreement,
    symmetric_channel_capacity,
)

TOL = 1e-9
SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)


def noisy(seed, views=3, samples=40, classes=4, noise=1.0):
    """Views of one signal, each with noise of its own."""
    generator = torch.Generator().manual_seed(seed)
    shape = views + 1, samples, classes
    signal, *others = torch.randn(shape, generator=generator).double()
    return [signal + noise * other for other in others]


def rows(*entries):
    return torch.tensor(entries, dtype=torch.float64)


def exact_kernel(views, beta, prior=None):
    """J by its definition with 50 digits."""
    with mpmath.workdps(50):
        beta, total = mpmath.mpf(beta), mpmath.mpf(0)
        for sample in zip(*(view.tolist() for view in views), strict=True):
            weights = [[mpmath.e ** (beta * mpmath.mpf(x)) for x in f] for f in sample]
            sums = [mpmath.fsum(own) for own in weights]
            classes = len(sample[0])
            rates = [mpmath.mpf(1) / classes] * classes if prior is None else prior
            overlap = mpmath.fsum(
                rates[j] * mpmath.fprod(
                    own[j] / total / rates[j]
                    for own, total in zip(weights, sums, strict=True)
                )
                for j in range(classes)
            )  # fmt: skip
            total += mpmath.log(overlap)
        return total / len(views[0])


@pytest.mark.parametrize("views", [3, 4, 6])
@pytest.mark.parametrize("prior", [None, ["0.5", "0.25", "0.125", "0.125"]])
def test_fifty_digits(views, prior):
    problem = noisy(views, views, samples=6)
    problem[0][:3] *= 100
    exact_prior = prior and [mpmath.mpf(rate) for rate in prior]
    prior = prior and [float(rate) for rate in prior]
    result = posterior_agreement(*problem, prior=prior)
    assert result.gap <= TOL
    exact = exact_kernel(problem, result.beta, exact_prior)
    assert abs(exact - result.pa) < 1e-12
    for exponent in range(-30, 31):
        beta = mpmath.mpf(10) ** (mpmath.mpf(exponent) / 10)
        assert exact_kernel(problem, beta, exact_prior) <= result.upper_bound


def test_fifty_digits_where_products_underflow():
    problem = [rows([4000.0, 0, -1]), rows([0.0, 4000, -1]), rows([0.0, 1, 3000])]
    betas = [0.01, 0.3, 10.0]
    ours = agreement_curve(*problem, betas)
    for value, beta in zip(ours.tolist(), betas, strict=True):
        assert value == pytest.approx(float(exact_kernel(problem, beta)), rel=1e-13)


@pytest.mark.parametrize(("samples", "classes"), [(2, 2), (3, 3), (5, 2)])
def test_brute_force_over_all_hypotheses(samples, classes):
    """(1/N) log sum over K^N hypotheses of p(c) prod_v p(c|X_v) / p(c)."""
    problem = noisy(samples, 3, samples, classes)
    hypotheses = list(itertools.product(range(classes), repeat=samples))
    for beta in (0.0, 0.7, 3.0):
        kernel = torch.ones(len(hypotheses), dtype=torch.float64) / len(hypotheses)
        for view in problem:
            total = [beta * sum(float(view[i, c]) for i, c in enumerate(hypothesis))
                     for hypothesis in hypotheses]  # fmt: skip
            kernel *= torch.tensor(total, dtype=torch.float64).softmax(0) * len(
                hypotheses
            )
        expected = float(kernel.sum().log()) / samples
        ours = agreement_curve(*problem, [beta])
        assert float(ours) == pytest.approx(expected, abs=1e-12)


@st.composite
def problems(draw):
    """Views with exact ties, constant rows, and scales decades apart."""
    views = draw(st.integers(3, 5))
    classes = draw(st.integers(2, 5))
    samples = draw(st.integers(1, 8))
    entries = st.one_of(
        st.integers(-2, 2).map(float), st.sampled_from([1.0 - 2**-40, 1.0 + 2**-40])
    )
    shape = (views, samples, classes)
    array = draw(hnp.arrays(np.float64, shape, elements=entries))
    decades = st.lists(st.integers(-3, 3), min_size=samples, max_size=samples)
    scale = 10.0 ** np.array(draw(decades), dtype=float)[:, None]
    return [torch.from_numpy(view) for view in array * scale]


def grid(views, points=120):
    spread = sum(view.amax(1) - view.amin(1) for view in views)
    live = spread[spread > 0]
    if len(live) == 0:
        return [0.0, 1.0]
    return np.geomspace(1e-3 / float(live.max()), 1e3 / float(live.min()), points)


@SETTINGS
@given(problems())
def test_no_grid_point_exceeds_the_certificate(views):
    result = posterior_agreement(*views, tol=TOL)
    most = (len(views) - 1) * math.log(views[0].shape[1])
    assert 0 <= result.pa <= most + 1e-12
    assert 0 <= result.gap <= TOL
    assert float(agreement_curve(*views, grid(views)).max()) <= result.upper_bound
    assert float(result.per_sample.mean()) == pytest.approx(result.pa, abs=1e-12)


@SETTINGS
@given(problems())
def test_every_interval_bound_holds_inside_its_interval(views):
    for left, right, bound in agreement_search(*views).intervals:
        stop = right if math.isfinite(right) else max(1.0, left) * 1e3
        curve = agreement_curve(*views, np.linspace(left, stop, 20))
        assert float(curve.max()) <= bound + 1e-15


@SETTINGS
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_views_does_not_matter(views, random):
    result = posterior_agreement(*views)
    random.shuffle(views)
    other = posterior_agreement(*views)
    assert other.pa == pytest.approx(result.pa, abs=2 * TOL)
    assert other.mismatch == result.mismatch
    assert other.hard_part == pytest.approx(result.hard_part, abs=2 * TOL)


@SETTINGS
@given(problems())
def test_two_of_the_views_alone_are_the_measure_of_pairs(views):
    # A view that says nothing adds nothing.
    nothing = torch.zeros_like(views[0])
    pair = posterior_agreement(*views[:2]).pa
    third = posterior_agreement(*views[:2], nothing).pa
    assert third == pytest.approx(pair, abs=2 * TOL)


@SETTINGS
@given(problems())
def test_the_deficit_never_falls_when_a_view_is_added(views):
    """(m - 1) log K - PA: at least that of any views among them."""
    log_k = math.log(views[0].shape[1])
    deficit = {
        subset: (size - 1) * log_k - posterior_agreement(*(views[v] for v in subset)).pa
        for size in range(2, len(views) + 1)
        for subset in itertools.combinations(range(len(views)), size)
    }
    for subset, other in itertools.product(deficit, deficit):
        if set(subset) < set(other):
            assert deficit[subset] <= deficit[other] + 2 * TOL
    # And, over all pairs, at least their sum over m - 1.
    for subset, own in deficit.items():
        pairs = sum(deficit[pair] for pair in itertools.combinations(subset, 2))
        assert own >= pairs / (len(subset) - 1) - 10 * TOL


@SETTINGS
@given(problems(), st.floats(0.01, 5))
def test_the_chain_rule(views, beta):
    """Views one by one, each against the sum of the logits before it."""
    whole = float(agreement_curve(*views, [beta]))
    sums = list(itertools.accumulate(views))
    links = list(zip(sums, views[1:], strict=False))
    chain = math.fsum(float(agreement_curve(*link, [beta])) for link in links)
    assert whole == pytest.approx(chain, rel=1e-9, abs=1e-9)
    pa = math.fsum(posterior_agreement(*link).pa for link in links)
    assert posterior_agreement(*views).pa <= pa + 10 * TOL


def test_at_zero_the_curvature_is_the_sum_over_pairs():
    views = noisy(1, 4)
    trace = agreement_search(*views)
    centered = [view - view.mean(1, keepdim=True) for view in views]
    covariances = [
        float((one * other).mean())
        for one, other in itertools.combinations(centered, 2)
    ]
    step = 1e-3
    numeric = 2 * float(agreement_curve(*views, [step])) / step**2
    assert numeric == pytest.approx(2 * sum(covariances), rel=1e-2)
    assert trace.value > 0


#: Sums of two of these over four classes are independent; all three are not.
CHARACTERS = rows([1.0, 1, 0, 0]), rows([1.0, 0, 1, 0]), rows([1.0, 0, 0, 1])


def test_three_views_may_agree_on_what_no_two_of_them_do():
    for pair in itertools.combinations(CHARACTERS, 2):
        # tol: the kernel is flat, J = 0 everywhere.
        assert posterior_agreement(*pair, tol=1e-7).pa == pytest.approx(0.0, abs=1e-7)
    result = posterior_agreement(*CHARACTERS)
    assert result.pa == pytest.approx(math.log(2), abs=1e-12)
    # The bound by the pairs is attained: 0 / 2 + log(4) / 2.
    assert result.pa == pytest.approx(0.5 * math.log(4), abs=1e-12)
    tanh = [math.tanh(beta / 2) for beta in (0.5, 1.0, 4.0)]
    ours = agreement_curve(*CHARACTERS, [0.5, 1.0, 4.0])
    closed = [math.log1p(t**3) for t in tanh]
    np.testing.assert_allclose(ours, closed, atol=1e-14)


def test_pairs_may_agree_nearly_wholly_and_the_three_not_at_all():
    # One sample of large logits whose sets of best classes meet in pairs only.
    odd = rows([1.0, 1, 0]), rows([1.0, 0, 1]), rows([0.0, 1, 1])
    same = rows(*[[1e-3, 0, 0]] * 99)
    views = [torch.cat([view, same]) for view in odd]
    for pair in itertools.combinations(views, 2):
        pa = 0.99 * math.log(3) + 0.01 * math.log(3 / 4)
        assert posterior_agreement(*pair).pa == pytest.approx(pa, abs=1e-9)
    assert posterior_agreement(*views).pa == 0.0


def test_two_classes_are_decided_by_their_pairs():
    views = noisy(2, 3, classes=2)
    for beta in (0.3, 1.0, 3.0):
        t = [torch.tanh(beta * (view[:, 0] - view[:, 1]) / 2) for view in views]
        pairs = sum(a * b for a, b in itertools.combinations(t, 2))
        ours = agreement_curve(*views, [beta])
        assert float(ours) == pytest.approx(float(pairs.log1p().mean()), abs=1e-6)


def one_hot_views(votes, classes, height=1.0):
    return [
        height * torch.nn.functional.one_hot(own, classes).double() for own in votes
    ]


@pytest.mark.parametrize(
    ("views", "classes"), [(3, 2), (3, 3), (3, 10), (4, 3), (5, 4)]
)
@pytest.mark.parametrize("noise", [0.1, 0.4, 0.9])
def test_hard_decisions_are_noisy_readers_of_one_hidden_class(views, classes, noise):
    """The best rate of m symmetric readers, by likelihood, is the best beta."""
    generator = torch.Generator().manual_seed(views + classes)
    truth = torch.randint(classes, (300,), generator=generator)
    guesses = torch.randint(classes, (views, 300), generator=generator)
    blind = torch.rand(views, 300, generator=generator) < noise
    votes = torch.where(blind, guesses, truth)
    result = posterior_agreement(*one_hot_views(votes, classes, 3.0))
    counts = torch.nn.functional.one_hot(votes.T, classes).sum(1).double()

    def loss(right):
        wrong = (1 - right) / (classes - 1)
        density = right**counts * wrong ** (views - counts)
        return -float((density.sum(1) * classes ** (views - 1)).log().mean())

    best = minimize_scalar(
        loss, bounds=(1 / classes, 1 - 1e-9), method="bounded", options={"xatol": 1e-12}
    )
    assert result.pa == pytest.approx(max(0.0, -best.fun), abs=1e-7)
    assert result.hard_part == pytest.approx(result.pa, abs=2 * TOL)
    # No readers fit better than the votes themselves: the entropy of their patterns.
    relative = (votes - votes[0]) % classes
    _, frequency = relative.T.unique(dim=0, return_counts=True)
    shares = frequency.double() / 300
    entropy = -float((shares * shares.log()).sum())
    assert result.hard_part <= (views - 1) * math.log(classes) - entropy + TOL


@pytest.mark.parametrize("odd", [0, 10, 30, 60, 80])
def test_three_hard_views_of_two_classes_are_a_channel_of_four_letters(odd):
    votes = torch.zeros(3, 100, dtype=torch.int64)
    votes[2, :odd] = 1
    result = posterior_agreement(*one_hot_views(votes, 2))
    assert result.mismatch == odd / 100
    assert result.pa == pytest.approx(symmetric_channel_capacity(odd / 100, 4), abs=TOL)


def test_hard_part_under_a_prior_is_the_agreement_of_the_predictions():
    prior = [0.4, 0.3, 0.2, 0.1]
    views = noisy(3, 3, samples=300)
    votes = torch.stack([view.argmax(1) for view in views])
    result = posterior_agreement(*views, prior=prior)
    hard = posterior_agreement(*one_hot_views(votes, 4), prior=prior)
    assert result.hard_part == pytest.approx(hard.pa, abs=2 * TOL)
    differ = (votes != votes[0]).any(0).double().mean()
    assert result.mismatch == hard.mismatch == pytest.approx(float(differ))


def test_the_mismatch_counts_first_argmaxes_of_ties():
    views = rows([1.0, 1], [0, 0]), rows([1.0, 0], [0, 1]), rows([1.0, 1], [1, 1])
    assert posterior_agreement(*views).mismatch == 0.5


@pytest.mark.parametrize("views", [3, 5])
def test_views_that_all_agree_reach_the_cap_at_infinity(views):
    logits = noisy(0)[0]
    result = posterior_agreement(*(logits * (v + 1) for v in range(views)))
    assert result.beta == math.inf
    assert result.pa == pytest.approx((views - 1) * math.log(4), abs=1e-14)
    assert result.log_pa == pytest.approx(0.0, abs=1e-10)
    assert result.num_views == views


def test_large_problems_are_shifted_chunk_by_chunk(monkeypatch):
    from robustbook.agreement import _kernel

    views = noisy(4, 3, 3000, 11)
    kept = posterior_agreement(*views)
    monkeypatch.setattr(_kernel, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(_kernel, "CHUNK_ENTRIES", {"cpu": 1000, "cuda": 1000})
    streamed = posterior_agreement(*views)
    assert streamed.pa == pytest.approx(kept.pa, abs=1e-12)
    assert streamed.beta == pytest.approx(kept.beta, rel=1e-6)


def test_intervals_cover():
    truth = posterior_agreement(*noisy(5, 3, 50_000)).pa
    results = [posterior_agreement(*noisy(100 + seed, 3, 300)) for seed in range(200)]
    inside = [abs(r.pa - truth) <= 1.96 * r.standard_error for r in results]
    # Binomial(200, 0.95): five sigma below the nominal level is 0.873.
    assert sum(inside) / 200 >= 0.873


def test_bad_views_are_named():
    views = noisy(6)
    with pytest.raises(ValueError, match=r"views\[2\]: expected the shape of logits"):
        posterior_agreement(*views[:2], views[2][:-1])
    views[2][3, 1] = math.nan
    with pytest.raises(ValueError, match=r"views\[2\]: expected finite .* \(3, 1\)"):
        posterior_agreement(*views)
    with pytest.raises(ValueError, match="views: expected at most 101"):
        posterior_agreement(*[torch.eye(10)] * 102)
    with pytest.raises(TypeError, match="views: expected two or more arrays, got 1"):
        agreement_curve(torch.eye(3), [0.0, 1.0])
