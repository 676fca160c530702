"""A name followed by a defense: the model inside of it, with its defaults."""

import pytest
import torch

from robustbook.datasets import data_directory, load_dataset
from robustbook.models import JPEGReverseSigmoid, load_model, logits_of


@pytest.mark.parametrize("name", ["digits-cnn", "digits-linear-s2"])
def test_a_defense_behind_a_name_wraps_the_model(name):
    defended = load_model(f"{name}+jpeg-rs")
    assert isinstance(defended, JPEGReverseSigmoid)
    assert not any(module.training for module in defended.modules())
    assert not any(p.requires_grad for p in defended.parameters())
    images = load_dataset("digits", "test").images[:50]
    expected = logits_of(JPEGReverseSigmoid(load_model(name)), images)
    assert torch.equal(logits_of(defended, images), expected)


def test_attacks_see_through_it():
    images = load_dataset("digits", "test").images[:20].requires_grad_()
    logits = load_model("digits-cnn+jpeg-rs")(images)
    (gradient,) = torch.autograd.grad(logits[:, 0].sum(), images)
    assert (gradient.flatten(1).abs().amax(1) > 0).all()


def test_defenses_can_be_stacked_and_take_the_folder():
    folder = data_directory() / "checkpoints"
    twice = load_model("digits-cnn+jpeg-rs+jpeg-rs", directory=folder)
    assert isinstance(twice.model, JPEGReverseSigmoid)
    assert not isinstance(twice.model.model, JPEGReverseSigmoid)


@pytest.mark.parametrize("name", ["digits-cnn+oak", "digits-cnn+", "+jpeg-rs", "+"])
def test_unknown_defenses_are_named(name):
    with pytest.raises(ValueError, match=r'NAME\+jpeg-rs"\); got ') as caught:
        load_model(name)
    assert repr(name) in str(caught.value)


def test_an_unknown_model_inside_a_defense_is_named():
    with pytest.raises(ValueError, match="got 'oak'"):
        load_model("oak+jpeg-rs")
