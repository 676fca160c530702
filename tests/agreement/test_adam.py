"""The papers' procedure: its course, its limits and its wrong maxima."""

import math

import pytest
import torch
from random_views import noisy

from robustbook.agreement import adam_agreement, agreement_curve, posterior_agreement


@pytest.fixture
def pair():
    return noisy(0, samples=200, classes=4)


def test_it_never_beats_the_certificate(pair):
    exact = posterior_agreement(*pair)
    trace = adam_agreement(*pair, epochs=300)
    assert float(trace.pa.max()) <= exact.upper_bound
    assert trace.best_pa == pytest.approx(exact.pa, abs=1e-5)


def test_the_trace_is_evaluated_exactly(pair):
    trace = adam_agreement(*pair, epochs=5, batch_size=64)
    assert trace.beta.shape == trace.pa.shape == (6,)
    assert trace.steps == 5 * math.ceil(200 / 64)
    assert torch.equal(trace.pa, agreement_curve(*pair, trace.beta))
    assert trace.final_beta == float(trace.beta[-1])
    assert trace.best_pa >= float(trace.pa[-1])
    # The first step is the learning rate.
    trace = adam_agreement(*pair, epochs=1, beta0=1.0, lr=0.25)
    assert abs(trace.final_beta - 1.0) == pytest.approx(0.25, rel=1e-4)


def test_it_finds_the_wrong_maximum():
    margins = torch.tensor([20.0] * 50 + [1.0] * 10 + [0.03] * 2000)
    others = torch.where(margins == 1, -margins, margins)
    pair = [torch.stack([m / 2, -m / 2], 1) for m in (margins, others)]
    exact, trace = posterior_agreement(*pair), adam_agreement(*pair, epochs=500)
    assert trace.best_pa < exact.pa / 5
    assert trace.best_beta == pytest.approx(0.361, abs=0.01)


def test_a_seed_shuffles_and_no_seed_keeps_the_order(pair):
    fixed = adam_agreement(*pair, epochs=3, batch_size=16)
    again = adam_agreement(*pair, epochs=3, batch_size=16)
    shuffled = adam_agreement(*pair, epochs=3, batch_size=16, seed=1)
    assert torch.equal(fixed.beta, again.beta)
    assert not torch.equal(fixed.beta, shuffled.beta)


def test_it_needs_no_gradient_mode(pair):
    expected = adam_agreement(*pair, epochs=2).final_beta
    with torch.no_grad():
        assert adam_agreement(*pair, epochs=2).final_beta == expected
    with torch.inference_mode():
        again = adam_agreement(*(part.clone() for part in pair), epochs=2)
    assert again.final_beta == expected


def test_extreme_numbers_leave_no_nan_or_are_refused(pair):
    clean = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    trace = adam_agreement(clean, clean.flip(0), epochs=20)
    assert bool(torch.isfinite(trace.beta).all())
    assert float(adam_agreement(pair[0], -pair[0], epochs=30).beta.min()) == 0
    with pytest.raises(ValueError, match=r"logits: expected at most 1e\+30"):
        adam_agreement(pair[0].double() * 1e39, pair[1].double())
    with pytest.raises(ValueError, match=r"beta0: expected at most 1e\+30"):
        adam_agreement(*pair, beta0=1e39)
