"""Bad input: a clear error that names the argument, never a silent number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    agreement_search,
    compare_agreement,
    gibbs_posterior,
    posterior_agreement,
    symmetric_channel_capacity,
)

GOOD = torch.tensor([[1.0, 0.0, 2.0], [0.5, 3.0, 0.0]])


def spoiled(place: tuple[int, int], value: float) -> torch.Tensor:
    logits = GOOD.clone()
    logits[place] = value
    return logits


BAD_PAIRS = [
    (GOOD[0], GOOD[0], ValueError, r"logits: expected shape \(N, K\).*got \(3,\)"),
    (GOOD[None], GOOD[None], ValueError, r"logits: expected shape"),
    (GOOD, GOOD[:1], ValueError, r"shifted_logits: .*\(2, 3\).*got \(1, 3\)"),
    (GOOD, GOOD[:, :2], ValueError, r"shifted_logits: .*got \(2, 2\)"),
    (GOOD[:0], GOOD[:0], ValueError, "at least one sample"),
    (GOOD[:, :1], GOOD[:, :1], ValueError, "at least 2 classes"),
    (spoiled((1, 2), math.nan), GOOD, ValueError, r"logits: .*NaN at index \(1, 2\)"),
    (GOOD, spoiled((0, 1), math.nan), ValueError, r"shifted_logits: .*index \(0, 1\)"),
    (spoiled((1, 0), math.inf), GOOD, ValueError, r"inf at index \(1, 0\)"),
    (GOOD, spoiled((1, 0), -math.inf), ValueError, r"-inf at index \(1, 0\)"),
    (GOOD.double() * 1e200, GOOD.double(), ValueError, "within ±1e\\+100"),
    (GOOD.int(), GOOD, TypeError, "logits: expected floating-point.*int32"),
    (GOOD, GOOD.bool(), TypeError, "shifted_logits: expected floating-point.*bool"),
    (GOOD, GOOD.to(torch.complex64), TypeError, "complex64"),
    ("logits", GOOD, TypeError, "logits: expected a torch tensor"),
    (None, GOOD, TypeError, "logits: expected a torch tensor"),
    (np.ma.masked_array([[1.0, 2.0]]), GOOD, TypeError, "masked array"),
    (GOOD.to_sparse(), GOOD, TypeError, "expected a dense tensor"),
    (GOOD.to(torch.float8_e4m3fn), GOOD, TypeError, "float8"),
    (np.array([["a", "b"]]), GOOD, TypeError, "logits: expected a torch tensor"),
]


@pytest.mark.parametrize(("clean", "shifted", "error", "message"), BAD_PAIRS)
@pytest.mark.parametrize(
    "function",
    [
        posterior_agreement,
        agreement_search,
        adam_agreement,
        lambda clean, shifted: agreement_curve(clean, shifted, [1.0]),
    ],
)
def test_bad_logits(function, clean, shifted, error, message):
    with pytest.raises(error, match=message):
        function(clean, shifted)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        ([0.5, 0.5], ValueError, r"prior: expected shape \(3,\)"),
        ([0.5, 0.5, 0.0], ValueError, "positive.*index 2"),
        ([0.5, 0.75, -0.25], ValueError, "positive.*index 2"),
        ([0.5, 0.5, 0.5], ValueError, "sum to 1, got a sum of 1.5"),
        ([0.5, math.nan, 0.5], ValueError, "prior: .*NaN at index 1"),
        (torch.tensor([True, False, False]), TypeError, "prior: expected real"),
        (torch.ones(3) * 1j, TypeError, "prior: expected real"),
    ],
)
def test_bad_priors(prior, error, message):
    with pytest.raises(error, match=message):
        posterior_agreement(GOOD, GOOD, prior=prior)


@pytest.mark.parametrize(
    ("tol", "error", "message"),
    [
        *(
            (tol, ValueError, "a positive finite number")
            for tol in (0.0, -1e-9, math.inf)
        ),
        *((tol, TypeError, "expected a real number") for tol in ("tight", None, 1j)),
        (math.nan, ValueError, "expected a number, got NaN"),
    ],
)
def test_bad_tolerance(tol, error, message):
    with pytest.raises(error, match=f"tol: .*{message}"):
        posterior_agreement(GOOD, GOOD, tol=tol)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        posterior_agreement(GOOD, GOOD, [1 / 3] * 3)


@pytest.mark.parametrize(
    ("betas", "message"),
    [
        *(([beta], r"betas\[0\]") for beta in (-1.0, math.inf, math.nan)),
        (1.0, r"betas: expected shape \(B,\)"),
    ],
)
def test_bad_betas(betas, message):
    with pytest.raises(ValueError, match=message):
        agreement_curve(GOOD, GOOD, betas)


def test_bad_temperature():
    with pytest.raises(ValueError, match="beta: expected a number of at least 0"):
        gibbs_posterior(GOOD, -0.5)


@pytest.mark.parametrize(
    ("mismatch", "classes", "error"),
    [(-0.1, 2, ValueError), (1.1, 2, ValueError), (0.1, 1, ValueError),
     (0.1, 2.5, TypeError), (math.nan, 2, ValueError), ("a", 2, TypeError)],
)  # fmt: skip
def test_bad_channels(mismatch, classes, error):
    with pytest.raises(error, match=r"mismatch|num_classes"):
        symmetric_channel_capacity(mismatch, classes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta0": -1.0}, "beta0"),
        ({"lr": 0.0}, "lr"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_adam_options(options, message):
    with pytest.raises(ValueError, match=message):
        adam_agreement(GOOD, GOOD, **options)


def test_comparison_needs_the_same_samples():
    with pytest.raises(ValueError, match="logits_b: expected the shape of logits_a"):
        compare_agreement(GOOD, GOOD, GOOD[:1], GOOD[:1])
    with pytest.raises(ValueError, match="shifted_b: expected the shape of logits_b"):
        compare_agreement(GOOD, GOOD, GOOD, GOOD[:1])


@pytest.mark.parametrize("level", [0.0, 1.0, 1 - 1e-16, 2.0])
def test_bad_levels(level):
    with pytest.raises(ValueError, match="level"):
        compare_agreement(GOOD, GOOD, GOOD, GOOD, level=level)


def test_capacity_of_very_many_classes():
    ours = symmetric_channel_capacity(0.1, 10**12)
    entropy = -0.1 * math.log(0.1) - 0.9 * math.log(0.9)
    assert ours == pytest.approx(12 * math.log(10) * 0.9 - entropy)
