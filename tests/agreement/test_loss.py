"""Agreement as an objective: gradient, limits, and the bias of small batches."""

import math

import numpy as np
import pytest
import torch

from robustbook.agreement import agreement_curve, agreement_loss, posterior_agreement
from robustbook.agreement.solver import Kernel


def pairs(count=40, classes=4, seed=0, noise=1.0, dtype=torch.float64):
    draws = torch.Generator().manual_seed(seed)
    clean = 2 * torch.randn(count, classes, generator=draws, dtype=torch.float64)
    moved = noise * torch.randn(count, classes, generator=draws, dtype=torch.float64)
    return clean.to(dtype), (clean + moved).to(dtype)


def gradients(clean, shifted, **options):
    live = [view.clone().requires_grad_() for view in (clean, shifted)]
    loss = agreement_loss(*live, **options)
    return loss.detach(), torch.autograd.grad(loss, live)


def test_autograd_passes_its_own_check_at_the_maximizer_and_at_a_given_beta():
    views = [view.requires_grad_() for view in pairs(6, 3)]
    assert torch.autograd.gradcheck(
        lambda *v: agreement_loss(*v, beta=0.7), views, eps=1e-6, atol=1e-7
    )
    # The value is within 1e-9 of the supremum, so the step has to be large.
    assert torch.autograd.gradcheck(agreement_loss, views, eps=1e-3, atol=1e-4)


def test_the_gradient_is_the_product_of_the_posteriors_minus_each():
    clean, shifted = pairs()
    beta = posterior_agreement(clean, shifted).beta
    p, q = (beta * clean).softmax(1), (beta * shifted).softmax(1)
    joint = p * q / (p * q).sum(1, keepdim=True)
    _, found = gradients(clean, shifted)
    torch.testing.assert_close(found[0], beta / len(clean) * (p - joint))
    torch.testing.assert_close(found[1], beta / len(clean) * (q - joint))


def test_a_step_changes_no_scale_and_no_constant_of_a_sample():
    clean, shifted = pairs()
    _, found = gradients(clean, shifted)
    along = (found[0] * clean + found[1] * shifted).sum()
    size = (found[0].norm() ** 2 + found[1].norm() ** 2).sqrt()
    assert abs(float(along)) < 1e-3 * float(size)
    for gradient in found:
        assert float(gradient.sum(1).abs().max()) < 1e-12
    constants = torch.linspace(-50, 50, len(clean), dtype=torch.float64)[:, None]
    loss, moved = gradients(clean + constants, shifted - 3 * constants)
    assert float(loss) == pytest.approx(float(gradients(clean, shifted)[0]), abs=1e-9)
    for one, other in zip(found, moved, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_loss_is_flat_where_no_answers_agree_or_all_do():
    clean, _ = pairs()
    for other, value in ((-clean, 0), (2 * clean, -math.log(4))):
        loss, found = gradients(clean, other)
        assert float(loss) == pytest.approx(value, abs=1e-12)
        assert all(float(gradient.abs().max()) == 0 for gradient in found)
    assert posterior_agreement(clean, -clean).beta == 0
    # Where nothing agrees, so is the measure itself.
    noise = 1e-3 * pairs(seed=5)[0]
    assert posterior_agreement(clean + noise, -clean).pa == 0


def test_at_infinity_ties_share_and_a_mismatch_costs_everything():
    tied = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]).double()
    one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    loss, found = gradients(tied, one, beta=math.inf)
    assert float(loss) == pytest.approx(math.log(2) / 2 - math.log(3), abs=1e-6)
    assert all(float(gradient.abs().max()) == 0 for gradient in found)
    assert float(agreement_loss(one, one.flip(0), beta=math.inf)) == math.inf
    # A tie that opens the right way gains at once what it cost: no gradient says so.
    opened = tied + torch.tensor([[1e-9, 0.0, 0.0], [0.0, 0.0, 0.0]])
    gain = posterior_agreement(opened, one).pa - posterior_agreement(tied, one).pa
    assert gain == pytest.approx(math.log(2) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("dtype", "kind", "close"),
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-5),
        (torch.float16, torch.float32, 2e-3),
    ],
)
def test_the_value_has_the_type_of_the_logits_and_the_gradient_too(dtype, kind, close):
    views = pairs(dtype=dtype)
    loss, found = gradients(*views)
    assert loss.dtype == kind
    exact = -posterior_agreement(*pairs()).pa
    assert float(loss) == pytest.approx(exact, abs=close)
    assert {gradient.dtype for gradient in found} == {dtype}


def test_arrays_have_a_loss_too_and_only_one_view_may_be_live():
    clean, shifted = pairs()
    given = agreement_loss(clean.numpy(), shifted.numpy(), beta=0.5)
    assert float(given) == pytest.approx(-float(agreement_curve(clean, shifted, [0.5])))
    alone = clean.clone().requires_grad_()
    agreement_loss(alone, shifted).backward()
    torch.testing.assert_close(alone.grad, gradients(clean, shifted)[1][0])


def test_the_batches_of_a_finer_partition_are_more_optimistic():
    clean, shifted = pairs(480, noise=2.0)
    means = []
    for size in (2, 6, 24, 120, 480):
        blocks = zip(clean.split(size), shifted.split(size), strict=True)
        means.append(np.mean([posterior_agreement(*block).pa for block in blocks]))
    assert all(np.diff(means) < 0)
    assert means[0] > 1.5 * means[-1]


def test_at_a_given_temperature_batches_have_no_bias():
    clean, shifted = pairs(480, noise=2.0)
    beta = posterior_agreement(clean, shifted).beta
    whole, found = gradients(clean, shifted, beta=beta)
    parts = [
        gradients(*block, beta=beta)
        for block in zip(clean.split(12), shifted.split(12), strict=True)
    ]
    mean = np.mean([float(loss) for loss, _ in parts])
    assert mean == pytest.approx(float(whole), abs=1e-12)
    joined = torch.cat([gradient[0] for _, gradient in parts]) / len(parts)
    torch.testing.assert_close(joined, found[0])


def test_the_bias_of_a_batch_falls_as_one_over_its_size():
    draws = torch.Generator().manual_seed(0)
    clean, shifted = pairs(4000, noise=2.0)
    result = posterior_agreement(clean, shifted)
    p, q = ((result.beta * view).softmax(1) for view in (clean, shifted))
    joint = p * q / (p * q).sum(1, keepdim=True)
    slopes = ((joint - p) * clean + (joint - q) * shifted).sum(1)
    bend = -Kernel(clean, shifted).evaluate(result.beta).curvature
    size = 100
    expected = float(slopes.var()) / (2 * size * bend)
    gains = []
    for _ in range(200):
        rows = torch.randint(len(clean), (size,), generator=draws)
        batch = clean[rows], shifted[rows]
        fixed = agreement_loss(*batch, beta=result.beta)
        gains.append(posterior_agreement(*batch).pa + float(fixed))
    assert min(gains) >= -1e-9
    assert np.mean(gains) == pytest.approx(expected, rel=0.35)


@pytest.mark.parametrize("beta", [-1.0, math.nan])
def test_a_temperature_below_zero_is_refused(beta):
    with pytest.raises(ValueError, match="beta: expected a number"):
        agreement_loss(*pairs(), beta=beta)
