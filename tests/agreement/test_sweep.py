"""Shares of shifted samples, and the decomposition over groups."""

import math

import pytest
import torch

from robustbook.agreement import (
    decompose_agreement,
    posterior_agreement,
    shift_by_ratio,
)


@pytest.fixture
def attacked():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (200,), generator=generator)
    clean = torch.randn(200, 5, generator=generator)
    clean[torch.arange(200), labels] += 3
    shifted = clean + 2 * torch.randn(200, 5, generator=generator)
    norms = torch.rand(200, generator=generator)
    return clean, shifted, labels, norms


def test_the_smallest_perturbations_are_shifted_first(attacked):
    clean, shifted, _, norms = attacked
    none, some, everything = (
        shift_by_ratio(clean, shifted, ratio, norms=norms) for ratio in (0, 0.3, 1)
    )
    assert torch.equal(none, clean)
    assert torch.equal(everything, shifted)
    mixed = clean.clone()
    chosen = norms.argsort()[:60]
    mixed[chosen] = shifted[chosen]
    assert torch.equal(some, mixed)
    norms[:10] = math.inf  # Failed attacks come last.
    mixed = shift_by_ratio(clean, shifted, 0.95, norms=norms)
    assert torch.equal(mixed, torch.cat([clean[:10], shifted[10:]]))


def test_a_random_order_is_seeded(attacked):
    clean, shifted, *_ = attacked
    first = shift_by_ratio(clean, shifted, 0.5)
    assert torch.equal(shift_by_ratio(clean, shifted, 0.5), first)
    assert not torch.equal(shift_by_ratio(clean, shifted, 0.5, seed=1), first)
    assert int((first == shifted).all(1).sum()) == 100


def test_the_decomposition_is_exact_and_its_approximation_is_that_of_the_thesis(
    attacked,
):
    clean, shifted, labels, _ = attacked
    result = posterior_agreement(clean, shifted)
    parts = decompose_agreement(result, clean, shifted, labels)
    assert parts.total == pytest.approx(result.pa, abs=1e-12)
    assert sum(group.count for group in vars(parts).values()) == 200
    changed = parts.changed_correct.count + parts.changed_wrong.count
    assert changed / 200 == pytest.approx(result.mismatch)
    # And the approximation is the thesis's.
    before = (result.beta * clean.double()).softmax(1)
    kept = (clean.argmax(1) == shifted.argmax(1)) & (clean.argmax(1) == labels)
    missing = float((1 - before.amax(1))[kept].mean())
    share = float(kept.double().mean())
    expected = share * (math.log(5) + math.log(1 - 2 * missing))
    assert parts.kept_correct.approximation == pytest.approx(expected)


def test_bad_input(attacked):
    clean, shifted, labels, norms = attacked
    with pytest.raises(ValueError, match=r"ratio: .*got 1\.5"):
        shift_by_ratio(clean, shifted, 1.5)
    with pytest.raises(ValueError, match="norms: expected shape"):
        shift_by_ratio(clean, shifted, 0.5, norms=norms[:5])
    norms[3] = -1
    with pytest.raises(ValueError, match="at least 0, got -1 at index 3"):
        shift_by_ratio(clean, shifted, 0.5, norms=norms)
    result = posterior_agreement(clean, shifted)
    with pytest.raises(ValueError, match="as in the result"):
        decompose_agreement(result, clean[:5], shifted[:5], labels[:5])
    with pytest.raises(ValueError, match="labels: expected labels from 0 to 4"):
        decompose_agreement(result, clean, shifted, labels + 1)


def test_a_result_of_other_views_or_of_a_prior_is_refused(attacked):
    clean, shifted, labels, _ = attacked
    others = [
        posterior_agreement(clean, shifted, shifted.flip(0)),
        posterior_agreement(clean, shifted + 0.5 * clean),
        posterior_agreement(clean, shifted, prior=[0.4, 0.3, 0.1, 0.1, 0.1]),
    ]
    for result in others:
        with pytest.raises(ValueError, match="measured with a uniform prior"):
            decompose_agreement(result, clean, shifted, labels)


def test_posteriors_that_hardly_overlap_are_decomposed():
    """Where the product of two posteriors underflows, contributions stay."""
    clean = torch.tensor([[1.0, 0.0]] * 400 + [[800.0, 0.0]])
    shifted = torch.cat([clean[:400], torch.tensor([[0.0, 800.0]])])
    result = posterior_agreement(clean, shifted)
    parts = decompose_agreement(result, clean, shifted, torch.zeros(401).long())
    assert parts.total == pytest.approx(result.pa, abs=1e-12)
    assert parts.changed_correct.count == 1
