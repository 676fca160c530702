"""Shares of shifted samples."""

import math

import pytest
import torch

from robustbook.agreement import shift_by_ratio


@pytest.fixture
def attacked():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (200,), generator=generator)
    clean = torch.randn(200, 5, generator=generator)
    clean[torch.arange(200), labels] += 3
    shifted = clean + 2 * torch.randn(200, 5, generator=generator)
    norms = torch.rand(200, generator=generator)
    return clean, shifted, norms


def test_the_smallest_perturbations_are_shifted_first(attacked):
    clean, shifted, norms = attacked
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
    clean, shifted, _ = attacked
    first = shift_by_ratio(clean, shifted, 0.5)
    assert torch.equal(shift_by_ratio(clean, shifted, 0.5), first)
    assert not torch.equal(shift_by_ratio(clean, shifted, 0.5, seed=1), first)
    assert int((first == shifted).all(1).sum()) == 100


def test_bad_input(attacked):
    clean, shifted, norms = attacked
    with pytest.raises(ValueError, match=r"ratio: .*got 1\.5"):
        shift_by_ratio(clean, shifted, 1.5)
    with pytest.raises(ValueError, match="norms: expected shape"):
        shift_by_ratio(clean, shifted, 0.5, norms=norms[:5])
    norms[3] = -1
    with pytest.raises(ValueError, match="at least 0, got -1 at index 3"):
        shift_by_ratio(clean, shifted, 0.5, norms=norms)
