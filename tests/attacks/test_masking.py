"""Vanishing gradients, for which the cross-entropy must not be the only loss."""

import pytest
import torch
from pyautoattack.square import SquareAttack
from torch import nn

from robustbook.attacks import apgd, fab, fmn, pgd, square


@pytest.fixture(scope="module")
def problem(digits):
    model, images, labels = digits
    return model, (lambda x: 100 * model(x)), images, labels


EPS = 0.12


def test_large_logits_blind_the_cross_entropy(problem):
    plain, scaled, images, labels = problem
    for attack in (pgd, apgd):
        honest = attack(plain, images, labels, eps=EPS).robust_accuracy()
        blind = attack(scaled, images, labels, eps=EPS).robust_accuracy()
        assert blind > honest + 0.4


def test_other_losses_do_not_care(problem):
    plain, scaled, images, labels = problem
    for attack, options in (
        (apgd, {"loss": "dlr", "eps": EPS}),
        (apgd, {"loss": "targeted", "eps": EPS, "steps": 20}),
        (fmn, {"steps": 30}),
        (fab, {"steps": 10, "targets": 3}),
    ):
        one = attack(plain, images, labels, **options).robust_accuracy(EPS * 1.001)
        other = attack(scaled, images, labels, **options).robust_accuracy(EPS * 1.001)
        assert abs(one - other) <= 2 / len(images)


@pytest.mark.parametrize(("norm", "eps"), [("linf", EPS), ("l2", 1.0)])
def test_square_needs_no_gradient_and_stays_in_its_bound(problem, norm, eps):
    plain, _, images, labels = problem
    blind = lambda x: (1e4 * plain(x)).detach()  # noqa: E731
    few, many = (
        square(blind, images, labels, eps=eps, norm=norm, steps=steps)
        for steps in (1, 300)
    )
    assert many.robust_accuracy() < few.robust_accuracy() - 0.2
    assert float(many.norms[many.success].max()) <= eps + 1e-6
    # It falls short of an attack that follows the true gradient.
    told = apgd(plain, images, labels, eps=eps, norm=norm, loss="targeted")
    assert many.robust_accuracy() > told.robust_accuracy()


def test_square_goes_on_after_a_tie_and_leaves_logits_alone():
    weights = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    kept = []

    def stepped(batch):
        logits = (batch.flatten(1) @ weights.T / 2).round()
        kept.append(logits)
        return logits

    # Many of the margins of whole numbers are 0, where the first class is the answer.
    result = square(stepped, images, eps=0.2, steps=200)
    assert all(bool(logits.isfinite().all()) for logits in kept)
    library = SquareAttack(stepped, "Linf", n_queries=200, eps=0.2)
    library.init_hyperparam(images)
    labels = stepped(images).argmax(1)
    _, found = library.attack_single_run(images, labels)
    assert int(result.success.sum()) > int((stepped(found).argmax(1) != labels).sum())
    tie = square(lambda x: 0 * x.flatten(1)[:, :2], images, eps=0.2, steps=3)
    assert not tie.success.any()


@pytest.mark.parametrize("size", [(12, 12), (24, 24), (28, 20), (32, 36), (4, 9)])
def test_square_in_l2_refuses_what_its_first_grid_leaves(digits, size):
    model, images, _ = digits
    for fits in ((8, 8), (9, 30), (28, 28), (32, 32)):
        larger = nn.functional.interpolate(images[:2], fits)
        found = square(_shrunk(model), larger, eps=0.1, norm="l2", steps=2)
        assert len(found) == 2
    other = nn.functional.interpolate(images[:2], size)
    message = f"does not fit {size[0]} × {size[1]} pixels"
    with pytest.raises(ValueError, match=message):
        square(_shrunk(model), other, eps=0.1, norm="l2", steps=2)


def _shrunk(model):
    return lambda images: model(nn.functional.interpolate(images, (8, 8)))
