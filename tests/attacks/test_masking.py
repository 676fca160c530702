"""Vanishing gradients, for which the cross-entropy must not be the only loss."""

import pytest

from robustbook.attacks import apgd, fab, fmn, pgd


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
