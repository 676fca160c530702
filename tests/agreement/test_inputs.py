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


def spoiled(place, value):
    logits = GOOD.clone()
    logits[place] = value
    return logits


BAD_PAIRS = [
    (GOOD[0], GOOD[0], ValueError, r"logits: expected shape \(N, K\).*got \(3,\)"),
    ((GOOD,), (GOOD,), ValueError, "logits: expected shape"),
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


PAIR = GOOD, GOOD


@pytest.mark.parametrize(
    ("function", "name", "values"),
    [
        (partial(posterior_agreement, *PAIR), "tol", (0, math.inf, math.nan, "x", 1j)),
        (partial(agreement_curve, *PAIR), "betas", ([-1.0], [math.nan], [[1.0]])),
        (partial(gibbs_posterior, GOOD), "beta", (-0.5,)),
        (partial(symmetric_channel_capacity, num_classes=2), "mismatch", (-0.1, 1.1)),
        (partial(symmetric_channel_capacity, 0.1), "num_classes", (1,)),
        (partial(adam_agreement, *PAIR), "beta0", (-1.0,)),
        (partial(adam_agreement, *PAIR), "lr", (0.0,)),
        (partial(adam_agreement, *PAIR), "epochs", (0,)),
        (partial(adam_agreement, *PAIR), "batch_size", (0,)),
        (partial(adam_agreement, *PAIR), "seed", (-1,)),
        (partial(compare_agreement, *PAIR, *PAIR), "level", (0.0, 1.0, 1 - 1e-16)),
        (partial(compare_agreement, *PAIR, GOOD), "shifted_b", (GOOD[:1],)),
        (partial(agreement_bounds, *PAIR, 1.0), "right", (1.0,)),
        (partial(agreement_bounds, *PAIR, right=1.0), "left", (-1.0,)),
    ],
)
def test_bad_options(function, name, values):
    for value in values:
        with pytest.raises(
            (TypeError, ValueError), match=rf"^{name}(\[0\])?: expected"
        ):
            function(**{name: value})


def test_misplaced_arguments_are_named():
    # Without inverse temperatures, the error says how to pass them.
    with pytest.raises(ValueError, match=r"betas=\[0.1, 1, 10\]"):
        agreement_curve(*PAIR)
    # By position a prior is a third view.
    with pytest.raises(ValueError, match=r"views\[2\]"):
        posterior_agreement(*PAIR, [1] * 3)
    with pytest.raises(ValueError, match="logits_b: expected the shape of logits_a"):
        compare_agreement(*PAIR, GOOD[:1], GOOD[:1])


def test_a_single_beta_gives_a_single_value():
    (expected,) = agreement_curve(GOOD, GOOD.flip(0), [2.0])
    value = agreement_curve(GOOD, GOOD.flip(0), betas=2.0)
    assert value.shape == ()
    assert value == expected == agreement_curve(GOOD, GOOD.flip(0), 2.0)
