"""ImageNet has a thousand classes: attacks, and the measure, with K = 1000.

The images are small and the model is random, so that it takes seconds.
"""

import math
from functools import partial

import pytest
import torch
from torch import nn

from robustbook import agreement
from robustbook.attacks import apgd, fab, fmn, pgd
from robustbook.models import logits_of
from robustbook.scores import accuracy

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
    right = torch.arange(COUNT) % 8 > 0
    labels = torch.where(right, clean.argmax(1), (clean.argmax(1) + 1) % CLASSES)
    attacked = ATTACKS[name](network, images, labels, progress=False)
    shifted = logits_of(network, attacked.adversarial)
    if name in MINIMAL:
        sizes = (attacked.adversarial - images).flatten(1).abs().amax(1).double()
        assert torch.allclose(sizes[attacked.success], attacked.norms[attacked.success])
    else:
        assert float((attacked.adversarial - images).abs().max()) <= EPS + 1e-6
    assert bool(attacked.success[~right].all())
    assert float(attacked.success[right].double().mean()) > 0.5
    true = accuracy(shifted, labels)
    assert true == pytest.approx(1 - float(attacked.success.double().mean()), abs=0.02)
    result = agreement.posterior_agreement(clean, shifted)
    limit = math.log(CLASSES) - result.mismatch * math.log(2)
    assert 0 < result.pa <= limit + 1e-9
    assert result.gap <= 1e-9
