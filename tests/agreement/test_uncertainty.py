"""Standard errors: the envelope theorem against the bootstrap; comparisons."""

import math

import pytest
import torch
from random_views import one_hot_views
from scipy.stats import sem

from robustbook.agreement import compare_agreement, posterior_agreement


def seen(samples, seed, noise, views=2):
    """Logits of a fairly accurate model, and views of the same under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (samples,), generator=generator)
    clean = torch.randn(samples, 5, generator=generator)
    clean[torch.arange(samples), labels] += 4
    others = torch.randn(views - 1, samples, 5, generator=generator)
    return [clean, *(clean + noise * others)]


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_envelope_standard_error_matches_the_bootstrap(noise):
    clean, shifted = seen(400, 0, noise)
    result = posterior_agreement(clean, shifted)
    generator = torch.Generator().manual_seed(1)
    resampled = []
    for _ in range(400):
        rows = torch.randint(0, 400, (400,), generator=generator)
        resampled.append(posterior_agreement(clean[rows], shifted[rows]).pa)
    bootstrap = float(torch.tensor(resampled).std())
    # 400 resamples know their standard deviation to about 3.5 % (one sigma).
    assert result.standard_error == pytest.approx(bootstrap, rel=0.15)


def test_standard_error_of_five_samples():
    result = posterior_agreement(*seen(5, 2, 2.0))
    assert 0 < result.standard_error == pytest.approx(sem(result.per_sample))


def test_comparison_is_paired():
    clean, mild = seen(500, 3, 1.0)
    generator = torch.Generator().manual_seed(4)
    strong = mild + 1.5 * torch.randn(500, 5, generator=generator)
    result = compare_agreement(clean, mild, clean, strong)
    assert result.value == pytest.approx(result.first.pa - result.second.pa)
    assert result.interval[0] < result.value < result.interval[1]
    assert result.interval[0] > 0
    gaps = result.first.per_sample - result.second.per_sample
    assert result.standard_error == pytest.approx(sem(gaps))
    unpaired = math.hypot(result.first.standard_error, result.second.standard_error)
    assert result.standard_error < unpaired
    wider = compare_agreement(clean, mild, clean, strong, level=0.99)
    assert wider.interval[0] < result.interval[0]
    itself = compare_agreement(clean, mild, clean, mild)
    assert itself.value == 0.0
    # Equal in all pairs, but not for sure in those that were not drawn.
    assert -itself.interval[0] == itself.interval[1] > 0
    # A single pair has no standard error.
    assert math.isnan(posterior_agreement(clean[:1], mild[:1]).standard_error)


@pytest.mark.parametrize("views", [2, 3])
@pytest.mark.parametrize("prior", [None, [0.4, 0.3, 0.1, 0.1, 0.1]])
def test_the_hard_part_is_the_agreement_of_the_predictions(views, prior):
    logits = seen(300, 7, 3.0, views)
    result = posterior_agreement(*logits, prior=prior)
    votes = torch.stack([view.argmax(1) for view in logits])
    hard = posterior_agreement(*one_hot_views(votes, 5), prior=prior)
    assert result.hard_part == pytest.approx(hard.pa, abs=2e-9)
    assert result.hard_part + result.confidence_part == pytest.approx(result.pa)
    differ = (votes != votes[0]).any(0).double().mean()
    assert result.mismatch == hard.mismatch == pytest.approx(float(differ))
