"""Models that every measure refuses, and one that all of them accept."""

from functools import partial

import pytest
import torch
from torch import nn

from robustbook import average_case
from robustbook.attacks import apgd, fab, fgsm, fmn, pgd
from robustbook.average_case import parts
from robustbook.margins import gradient_normalized_margin, input_margin

MEASURES = {
    "fgsm": partial(fgsm, eps=0.1),
    "pgd": partial(pgd, eps=0.1, steps=4),
    "apgd": partial(apgd, eps=0.1, steps=4),
    "fmn": partial(fmn, steps=4),
    "fab": partial(fab, steps=4),
    "input_margin": partial(input_margin, steps=4, refine_steps=4),
}
MOVES = pytest.mark.parametrize("measure", [*MEASURES.values()], ids=[*MEASURES])
MEASURES |= {
    "gradient_normalized_margin": gradient_normalized_margin,
    "monte_carlo": partial(average_case.monte_carlo, sigma=0.3, samples=64),
    "control_variate": partial(average_case.control_variate, sigma=0.3, samples=64),
    "taylor": partial(average_case.taylor, sigma=0.3),
    "mmse": partial(average_case.mmse, sigma=0.3),
    "softmax_proxy": parts.softmax_proxy,
}
every_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)

IMAGES = torch.tensor([[0.50, 0.40], [0.30, 0.36], [0.70, 0.62]])
WEIGHTS = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.2, 0.1]])


def pure(images):
    return (images - 0.5) @ WEIGHTS.T


@every_measure
def test_a_model_may_work_in_place(measure):
    def in_place(images):
        return images.sub_(0.5) @ WEIGHTS.T

    images = IMAGES.clone()
    plain, same = measure(pure, IMAGES), measure(in_place, images)
    assert torch.equal(images, IMAGES)
    plain, same = (
        getattr(one, "adversarial", getattr(one, "probability", one))
        for one in (plain, same)
    )
    assert torch.equal(same, plain)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@MOVES
def test_no_broken_logit_is_a_success(measure, value):
    """An argmax of NaN logits would look like another class."""

    def broken(images):
        clean = torch.cdist(images.detach(), IMAGES).amin(dim=1, keepdim=True) == 0
        return torch.where(clean, pure(images), pure(images) + value)

    message = r"expected finite logits, got NaN or infinity on [123] of [123] images"
    with pytest.raises(ValueError, match=message):
        measure(broken, IMAGES)


@MOVES
def test_logits_beyond_float32_are_refused(measure):
    """They are finite in the dtype of the model, and infinite in that of attacks."""

    def large(images):
        logits = pure(images.float()).double()
        clean = torch.cdist(images.detach(), IMAGES.double()).amin(1, keepdim=True) == 0
        return torch.where(clean, logits, 1e40 * logits)

    with pytest.raises(ValueError, match=r"fit into float32.* got .*e\+[34]\d; divide"):
        measure(large, IMAGES.double())


@every_measure
@pytest.mark.parametrize(
    ("images", "model", "message"),
    [
        (IMAGES, nn.Linear(2, 3).double().eval(), "float64, got torch.float32; conv"),
        (IMAGES.double(), nn.Linear(2, 3).eval(), "float32, got torch.float64; conv"),
        (IMAGES, lambda x: pure(x) + 0j, "real floating-point logits, got dtype .*64"),
        (IMAGES, lambda x: pure(x).long(), "real floating-point logits, got dtype"),
    ],
    ids=["double model", "double images", "complex", "integer"],
)
def test_numbers_of_another_type_are_named(measure, images, model, message):
    with pytest.raises(TypeError, match=message):
        measure(model, images)


def test_the_keys_of_a_mapping_are_listed():
    for name, remedy in (("logits", r"\['logits'\]\)$"), ("out", "of 'out', 'aux'$")):
        with pytest.raises(TypeError, match=remedy):
            gradient_normalized_margin(lambda x, n=name: {n: x, "aux": x}, IMAGES)


@every_measure
def test_other_errors_of_a_model_are_left_alone(measure):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        measure(nn.Linear(5, 3).eval(), IMAGES)
