"""ImageNet has a thousand classes: attacks, and the measure, with K = 1000.

The images are small and the models random, so that it takes seconds. With a linear
model the smallest perturbation is known exactly.
"""

import math
from functools import partial

import pytest
import torch
from linear_models import linear
from torch import nn

from robustbook import agreement
from robustbook.attacks import apgd, fab, fmn, pgd, smallest
from robustbook.models import logits_of
from robustbook.scores import accuracy, same_answer_rate

CLASSES, COUNT = 1000, 64
EPS = 0.05
ATTACKS = {
    "pgd": partial(pgd, eps=EPS, steps=10),
    "apgd-dlr": partial(apgd, eps=EPS, steps=10, loss="dlr"),
    "apgd-targeted": partial(apgd, eps=EPS, steps=10, loss="targeted", targets=9),
    "fmn-targeted": partial(fmn, steps=30, targets=5),
    "fab-targeted": partial(fab, steps=6, targets=5),
}
MINIMAL = ("fmn-targeted", "fab-targeted")


def one_in_eight_wrong(labels):
    wrong = labels.clone()
    wrong[::8] = (labels[::8] + 1) % CLASSES
    return wrong


@pytest.fixture(scope="module")
def thousand():
    return linear(CLASSES, count=COUNT)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64)
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(64, CLASSES)).eval()


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack(network, name):
    generator = torch.Generator().manual_seed(2)
    images = 0.3 + 0.4 * torch.rand(COUNT, 3, 8, 8, generator=generator)
    clean = logits_of(network, images)
    labels = one_in_eight_wrong(clean.argmax(1))
    attacked = ATTACKS[name](network, images, labels, progress=False)
    shifted = logits_of(network, attacked.adversarial)
    assert shifted.shape == (COUNT, CLASSES)
    if name in MINIMAL:
        sizes = (attacked.adversarial - images).flatten(1).abs().amax(1).double()
        assert torch.allclose(sizes[attacked.success], attacked.norms[attacked.success])
    else:
        assert float((attacked.adversarial - images).abs().max()) <= EPS + 1e-6
    right = clean.argmax(1) == labels
    assert bool(attacked.success[~right].all())
    assert float(attacked.success[right].double().mean()) > 0.5
    true = accuracy(shifted, labels)
    assert true == pytest.approx(1 - float(attacked.success.double().mean()), abs=0.02)
    assert same_answer_rate(clean, shifted) <= 1 - accuracy(clean, labels) + true + 1e-9
    result = agreement.posterior_agreement(clean, shifted)
    limit = math.log(CLASSES) - result.mismatch * math.log(2)
    assert 0 < result.pa <= limit + 1e-9
    assert result.gap <= 1e-9


def test_smallest_perturbations_are_those_of_the_linear_model(thousand):
    images = thousand.images
    # A wrong target costs untargeted FMN a few per cent, so several are tried.
    options = {"targets": 5, "bisections": 12, "progress": False}
    by_fmn = fmn(thousand, images, steps=30, **options)
    by_fab = fab(thousand, images, steps=10, **options)
    excess = smallest(by_fmn, by_fab).norms / thousand.linf - 1
    assert float(excess.min()) > -1e-3
    assert float(excess.median()) < 0.01
