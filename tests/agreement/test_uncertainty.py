"""Standard errors: the envelope theorem against the bootstrap; comparisons."""

import math

import pytest
import torch

from robustbook.agreement import compare_agreement, posterior_agreement


def noisy_pair(samples, seed, noise):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (samples,), generator=generator)
    clean = torch.randn(samples, 5, generator=generator)
    clean[torch.arange(samples), labels] += 4
    shifted = clean + noise * torch.randn(samples, 5, generator=generator)
    return clean, shifted


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_envelope_standard_error_matches_the_bootstrap(noise):
    clean, shifted = noisy_pair(400, 0, noise)
    result = posterior_agreement(clean, shifted)
    generator = torch.Generator().manual_seed(1)
    resampled = []
    for _ in range(400):
        rows = torch.randint(0, 400, (400,), generator=generator)
        resampled.append(posterior_agreement(clean[rows], shifted[rows]).pa)
    bootstrap = float(torch.tensor(resampled).std())
    # 400 resamples know their standard deviation to about 3.5 % (one sigma).
    assert result.standard_error == pytest.approx(bootstrap, rel=0.15)


def test_intervals_cover():
    truth = posterior_agreement(*noisy_pair(100_000, 2, 2.0)).pa
    inside = 0
    for seed in range(200):
        result = posterior_agreement(*noisy_pair(300, 100 + seed, 2.0))
        inside += abs(result.pa - truth) <= 1.96 * result.standard_error
    # Binomial(200, 0.95): five sigma below the nominal level is 0.873.
    assert inside / 200 >= 0.873


def test_comparison_is_paired():
    clean, mild = noisy_pair(500, 3, 1.0)
    generator = torch.Generator().manual_seed(4)
    strong = mild + 1.5 * torch.randn(500, 5, generator=generator)
    result = compare_agreement(clean, mild, clean, strong)
    assert result.difference == pytest.approx(result.a.pa - result.b.pa)
    assert result.interval[0] < result.difference < result.interval[1]
    assert result.interval[0] > 0
    unpaired = math.hypot(result.a.standard_error, result.b.standard_error)
    assert result.standard_error < unpaired
    wider = compare_agreement(clean, mild, clean, strong, level=0.99)
    assert wider.interval[0] < result.interval[0]
    itself = compare_agreement(clean, mild, clean, mild)
    assert itself.difference == 0.0
    assert itself.interval == (0.0, 0.0)


def test_a_single_pair_has_no_standard_error():
    result = posterior_agreement(torch.eye(2)[:1], torch.eye(2)[:1])
    assert math.isnan(result.standard_error)


def test_the_parts_add_up():
    clean, shifted = noisy_pair(300, 6, 3.0)
    result = posterior_agreement(clean, shifted)
    assert result.hard_part + result.confidence_part == pytest.approx(result.pa)
    predictions = (clean.argmax(1) != shifted.argmax(1)).double().mean()
    assert result.mismatch == pytest.approx(float(predictions))


def test_hard_part_under_a_prior_is_the_agreement_of_the_predictions():
    clean, shifted = noisy_pair(300, 7, 3.0)
    prior = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot
    hard = posterior_agreement(
        one_hot(clean.argmax(1), 5).double(),
        one_hot(shifted.argmax(1), 5).double(),
        prior=prior,
    )
    result = posterior_agreement(clean, shifted, prior=prior)
    assert result.hard_part == pytest.approx(hard.pa, abs=2e-9)
