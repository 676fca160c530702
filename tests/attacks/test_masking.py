"""Vanishing gradients, for which the cross-entropy must not be the only loss."""

import pytest

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
