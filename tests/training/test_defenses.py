"""Losses of defenses against values that were computed by hand."""

import math

import pytest
import torch
from torch import nn

from robustbook.training import Pairing, adversarial_loss, defense
from robustbook.training._defenses import DEFENSES, boosted_cross_entropy

LABELS = torch.tensor([0, 1])
IMAGES = torch.tensor([0.5, 0.5]).reshape(2, 1, 1, 1)
SIZE = {"eps": 0.25, "steps": 1}


class Line(nn.Module):
    """One pixel x, logits (0, a (x - b)): of two classes, the border is at b."""

    def __init__(self, slope=2.0, border=0.375):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope))
        self.border = border

    def forward(self, images):
        x = images.flatten(1)
        return torch.cat([0 * x, self.slope * (x - self.border)], 1)


def value_of(name, model=None, *, images=IMAGES, labels=LABELS, **options):
    objective = defense(name, **{**SIZE, **options})
    model, generator = model or Line(), torch.Generator().manual_seed(0)
    if isinstance(objective, Pairing):
        batch = images[None], labels[None]
        return objective.loss(model, *batch, epoch=0, generator=generator)[0]
    return objective(model, images, labels, generator)


def entropy(logit):
    """-log p of the first class, where the second has this logit more."""
    return math.log1p(math.exp(logit))


def kl(first, second):
    """Relative entropy of two answers, each given by its second logit."""
    p = 1 / (1 + math.exp(-first))
    return p * (entropy(-second) - entropy(-first)) + (1 - p) * (
        entropy(second) - entropy(first)
    )


# Image 0 (class 0) is wrong, and moves up to 0.75; image 1 moves down to 0.25.
CLEAN, UP, DOWN = 0.25, 0.75, -0.25
ATTACKED = (entropy(UP) + entropy(-DOWN)) / 2
UNTOUCHED = (entropy(CLEAN) + entropy(-CLEAN)) / 2
APART = ((UP - CLEAN) ** 2 + (DOWN - CLEAN) ** 2) / 2


def test_losses_are_what_their_authors_define():
    for name, expected in {
        "sat": ATTACKED,
        "alp": (UNTOUCHED + ATTACKED) / 2 + 0.5 * APART,
        "clp-attacked": UNTOUCHED + 0.5 * APART,
        # Of two classes the boosted cross-entropy is twice the plain one.
        "mart": 2 * ATTACKED
        + 2.5 * (1 - math.exp(-entropy(CLEAN))) * kl(CLEAN, UP)
        + 2.5 * (1 - math.exp(-entropy(-CLEAN))) * kl(CLEAN, DOWN),
    }.items():
        assert value_of(name).item() == pytest.approx(expected, rel=1e-5), name


def test_trades_attacks_the_answer_not_the_label():
    found = value_of("trades").item() - UNTOUCHED
    # Either way out of the image, whatever the label; the farther answer is of one.
    ways = [6 * kl(CLEAN, UP), 6 * kl(CLEAN, DOWN)]
    assert min(abs(found - (a + b) / 2) for a in ways for b in ways) < 1e-5
    swapped = value_of("trades", labels=LABELS.flip(0)).item() - UNTOUCHED
    assert swapped == pytest.approx(found, rel=1e-5)


def test_clean_pairs_are_pulled_together_without_an_attack():
    images = torch.tensor([0.25, 0.75, 0.5, 0.25]).reshape(4, 1, 1, 1)
    labels = torch.tensor([0, 1, 0, 1])
    logits = [-0.25, 0.75, 0.25, -0.25]
    risk = sum(entropy(-z if y else z) for z, y in zip(logits, labels, strict=True)) / 4
    pairs = ((logits[0] - logits[2]) ** 2 + (logits[1] - logits[3]) ** 2) / 2
    found = value_of("clp", images=images, labels=labels, noise_std=0.0)
    assert found.item() == pytest.approx(risk + 0.5 * pairs, rel=1e-5)
    alone = value_of("clp", images=images[:1], labels=labels[:1], noise_std=0.0)
    assert alone.item() == pytest.approx(entropy(-0.25), rel=1e-5)


def test_the_largest_margin_is_sought_at_the_border():
    # Image 0 is wrong: its own entropy; image 1 turns at 0.375: log 2, nearly.
    found = value_of("mma").item()
    assert found == pytest.approx(
        (UNTOUCHED + entropy(CLEAN) + math.log(2)) / 3, abs=5e-3
    )
    # Out of reach: nothing is added.
    far = value_of("mma", Line(border=0.0), labels=torch.tensor([1, 1]))
    assert far.item() == pytest.approx(entropy(-1.0) / 3, rel=1e-5)


def test_boosting_knows_the_strongest_rival():
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()[None]
    found = boosted_cross_entropy(logits, torch.tensor([0]))
    assert found.item() == pytest.approx(-math.log(0.5) - math.log(0.7))
    sure = torch.tensor([[0.0, 200.0]])
    assert float(boosted_cross_entropy(sure, torch.tensor([0]))) == pytest.approx(400)


@pytest.mark.parametrize("name", DEFENSES)
def test_every_loss_teaches_the_weights_and_leaves_no_gradient_elsewhere(name):
    model, images = Line(), IMAGES.clone()
    value_of(name, model, images=images).backward()
    assert float(model.slope.grad.abs()) > 0
    assert images.grad is None


def test_a_defense_is_named_and_has_a_ball():
    assert defense("sat", **SIZE).__qualname__ == adversarial_loss(**SIZE).__qualname__
    with pytest.raises(ValueError, match=r"name: .*sat.*mma.*got 'pgd'"):
        defense("pgd", eps=0.1)
    for name in DEFENSES:
        with pytest.raises(ValueError, match="eps"):
            defense(name, eps=0.0)
        with pytest.raises(ValueError, match="steps"):
            defense(name, eps=0.1, steps=0)
    for option in ("weight", "noise_std"):
        with pytest.raises(ValueError, match=option):
            defense("clp", eps=0.1, **{option: -1.0})
