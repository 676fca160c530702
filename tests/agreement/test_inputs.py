"""Bad input: a clear error that names the argument, never a silent number."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    compare_agreement,
    gibbs_posterior,
    posterior_agreement,
    symmetric_channel_capacity,
)
from robustbook.agreement.solver import agreement_bounds, agreement_search

GOOD = torch.tensor([[1.0, 0.0, 2.0], [0.5, 3.0, 0.0]])
BAD_STEPS = {"beta0": -1.0, "lr": 0.0, "epochs": 0, "batch_size": 0, "seed": -1}


def spoiled(place, value):
    logits = GOOD.clone()
    logits[place] = value
    return logits


BAD_PAIRS = [
    (GOOD[0], GOOD[0], ValueError, r"logits: expected shape \(N, K\).*got \(3,\)"),
    (GOOD[None], GOOD[None], ValueError, "logits: expected shape"),
    ((GOOD,), (GOOD,), ValueError, "logits: expected shape"),
    (GOOD[None, None].expand(2, 3, 2, 3), GOOD, ValueError, "logits: expected shape"),
    (GOOD, GOOD[:1], ValueError, r"shifted_logits: .*\(2, 3\).*got \(1, 3\)"),
    (GOOD, GOOD[:, :2], ValueError, r"shifted_logits: .*got \(2, 2\)"),
    (GOOD[:0], GOOD[:0], ValueError, "at least one sample"),
    (GOOD[:, :1], GOOD[:, :1], ValueError, "at least 2 classes"),
    (spoiled((1, 2), math.nan), GOOD, ValueError, r"logits: .*NaN at index \(1, 2\)"),
    (GOOD, spoiled((0, 1), math.nan), ValueError, r"shifted_logits: .*index \(0, 1\)"),
    (spoiled((1, 0), math.inf), GOOD, ValueError, r"inf at index \(1, 0\)"),
    (GOOD, spoiled((1, 0), -math.inf), ValueError, r"-inf at index \(1, 0\).*clip"),
    (GOOD.double() * 1e200, GOOD.double(), ValueError, "within ±1e\\+100"),
    (GOOD, GOOD.bool(), TypeError, "shifted_logits: expected floating-point.*bool"),
    (GOOD, GOOD.to(torch.complex64), TypeError, "complex64"),
    ("logits", GOOD, TypeError, "logits: expected a torch tensor"),
    (None, GOOD, TypeError, "logits: expected a torch tensor"),
    (SimpleNamespace(logits=GOOD), GOOD, TypeError, r"pass its \.logits"),
    ({"logits": GOOD}, GOOD, TypeError, r"pass its \['logits'\]"),
    (GOOD.to(torch.float8_e4m3fn), GOOD, TypeError, "float8"),
    (np.array([["a", "b"]]), GOOD, TypeError, "logits: expected a torch tensor"),
]


def test_integer_logits_are_numbers():
    whole = (10 * GOOD).int()
    expected = posterior_agreement(whole.double(), whole.double().flip(0))
    assert posterior_agreement(whole, whole.flip(0)).pa == expected.pa


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
        ([0.5, 0.5, 0.0], ValueError, "prior: expected positive"),
        ([0.5, 0.75, -0.25], ValueError, "prior: expected positive"),
        ([0.5, 0.5, 0.5], ValueError, "sum to 1, got a sum of 1.5"),
        ([0.5, math.nan, 0.5], ValueError, "prior: .*got nan"),
        (torch.tensor([True, False, False]), TypeError, "prior: expected real"),
        (torch.ones(3) * 1j, TypeError, "prior: expected real"),
    ],
)
def test_bad_priors(prior, error, message):
    with pytest.raises(error, match=message):
        posterior_agreement(GOOD, GOOD, prior=prior)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *(
            (partial(posterior_agreement, GOOD, GOOD, tol=tol), error, f"tol: .*{text}")
            for tol, error, text in (
                (0.0, ValueError, "a positive finite number"),
                (-1e-9, ValueError, "a positive finite number"),
                (math.inf, ValueError, "a positive finite number"),
                (math.nan, ValueError, "expected a number, got NaN"),
                ("tight", TypeError, "expected a real number"),
                (None, TypeError, "expected a real number"),
                (1j, TypeError, "expected a real number"),
            )
        ),
        *(
            (partial(agreement_curve, GOOD, GOOD, betas), ValueError, message)
            for betas, message in (
                *(([beta], r"betas\[0\]") for beta in (-1.0, math.nan)),
                ([[1.0]], r"betas: expected shape \(B,\)"),
            )
        ),
        # Without inverse temperatures, the error says how to pass them.
        (partial(agreement_curve, GOOD, GOOD), ValueError, r"betas=\[0.1, 1, 10\]"),
        (
            partial(gibbs_posterior, GOOD, -0.5),
            ValueError,
            "beta: expected a number of",
        ),
        # By position it is a third view.
        (
            partial(posterior_agreement, GOOD, GOOD, [0.3] * 3),
            ValueError,
            r"views\[2\]",
        ),
        *(
            (partial(symmetric_channel_capacity, *channel), error, name)
            for channel, error, name in (
                ((-0.1, 2), ValueError, "mismatch"),
                ((1.1, 2), ValueError, "mismatch"),
                ((math.nan, 2), ValueError, "mismatch"),
                (("a", 2), TypeError, "mismatch"),
                ((0.1, 1), ValueError, "num_classes"),
                ((0.1, 2.5), TypeError, "num_classes"),
            )
        ),
        *(
            (partial(adam_agreement, GOOD, GOOD, **{name: value}), ValueError, name)
            for name, value in BAD_STEPS.items()
        ),
        *(
            (partial(compare_agreement, *4 * [GOOD], level=level), ValueError, "level")
            for level in (0.0, 1.0, 1 - 1e-16, 2.0)
        ),
        *(
            (partial(compare_agreement, GOOD, GOOD, *other), ValueError, message)
            for other, message in (
                ((GOOD[:1], GOOD[:1]), "logits_b: expected the shape of logits_a"),
                ((GOOD, GOOD[:1]), "shifted_b: expected the shape of logits_b"),
            )
        ),
        *(
            (partial(agreement_bounds, GOOD, GOOD, *ends), ValueError, name)
            for ends, name in (((1.0, 1.0), "right"), ((-1.0, 1.0), "left"))
        ),
    ],
)
def test_bad_options(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_single_beta_gives_a_single_value():
    (expected,) = agreement_curve(GOOD, GOOD.flip(0), [2.0])
    for value in (
        agreement_curve(GOOD, GOOD.flip(0), 2.0),
        agreement_curve(GOOD, GOOD.flip(0), betas=2.0),
    ):
        assert value.shape == ()
        assert value == expected
