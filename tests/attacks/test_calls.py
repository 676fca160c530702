"""Tests of all attacks: labels, seeds, batches, side effects, bad input."""

import copy
import math
import random
import sys
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from robustbook.attacks import (
    apgd,
    fab,
    fgsm,
    fmn,
    pgd,
    square,
)

EPS = 0.1
ATTACKS = {
    "fgsm": partial(fgsm, eps=EPS),
    "pgd": partial(pgd, eps=EPS, steps=10),
    "apgd-ce": partial(apgd, eps=EPS, steps=10),
    "apgd-dlr": partial(apgd, eps=EPS, steps=10, loss="dlr"),
    "apgd-targeted": partial(apgd, eps=EPS, steps=5, loss="targeted", targets=3),
    "fmn": partial(fmn, steps=15),
    "fab": partial(fab, steps=5),
    "fab-targeted": partial(fab, steps=5, targets=3, bisections=5),
    "square": partial(square, eps=EPS, steps=50),
}
RANDOM = ["pgd", "apgd-ce", "apgd-dlr", "apgd-targeted", "square"]
every_attack = pytest.mark.parametrize("name", sorted(ATTACKS))


@every_attack
def test_result_and_generators(digits, name):
    model, images, labels = digits
    before = images.clone()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    result = ATTACKS[name](model, images, labels)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]
    adversarial = result.adversarial
    assert torch.equal(images, before)
    assert result.attack == name.replace("fab-targeted", "fab")
    assert adversarial.shape == images.shape
    assert adversarial.dtype == images.dtype
    assert not adversarial.requires_grad
    assert 0 <= float(adversarial.min()) <= float(adversarial.max()) <= 1
    assert torch.equal(result.success, model(adversarial).argmax(1) != labels)
    assert result.norms.dtype == torch.float64
    assert torch.equal(torch.isinf(result.norms), ~result.success)
    assert bool(result.success.any())


@every_attack
def test_same_seed_same_result_in_any_batch(digits, name):
    model, images, labels = digits
    first = ATTACKS[name](model, images, labels, seed=3)
    again = ATTACKS[name](model, images, labels, seed=3)
    assert torch.equal(first.adversarial, again.adversarial)
    assert torch.equal(first.norms, again.norms)
    if name != "square":  # It changes the images of a batch in the same places.
        batched = ATTACKS[name](model, images, labels, seed=3, batch_size=7)
        apart = (first.adversarial - batched.adversarial).flatten(1).abs().amax(1)
        # Another batch size rounds differently, which can flip a sign or two.
        assert float((apart < 1e-3).double().mean()) > 0.9
        assert int((first.success != batched.success).sum()) <= 1
    other = ATTACKS[name](model, images, labels, seed=0)
    assert name not in RANDOM or not torch.equal(first.adversarial, other.adversarial)


@every_attack
def test_parameters_are_unchanged(digits, name):
    """The parameters have gradients already; some are hidden in a callable."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    before = [p.detach().clone() for p in model.parameters()]
    for given in (model, lambda x: model(x)):
        ATTACKS[name](given, digits[1][:8])
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert parameter.requires_grad
        assert torch.equal(parameter, value)
        assert bool((parameter.grad == 7).all())


@every_attack
def test_labels_are_the_predictions_and_errors_left_alone_by_default(digits, name):
    model, images, _ = digits
    predicted = model(images).argmax(1)
    own = ATTACKS[name](model, images)
    given = ATTACKS[name](model, images, predicted)
    assert torch.equal(own.adversarial, given.adversarial)
    assert torch.equal(own.success, given.success)
    wrong = (predicted + 1) % 10
    result = ATTACKS[name](model, images, wrong)
    assert torch.equal(result.adversarial, images)
    assert bool(result.success.all())
    assert bool((result.norms == 0).all())
    if name in ("fgsm", "pgd"):
        moved = ATTACKS[name](model, images, wrong, skip_errors=False).adversarial
        assert bool(((moved - images).flatten(1).abs().amax(1) > 0).all())


@every_attack
def test_numpy_double_and_gradient_modes(digits, name):
    model, images, labels = digits
    plain = ATTACKS[name](model, images[:10], labels[:10])
    with torch.inference_mode():
        inside = ATTACKS[name](model, images[:10] * 1, labels[:10].numpy())
    assert torch.equal(plain.adversarial, inside.adversarial)

    def double(pixels):
        assert pixels.dtype == torch.float64
        return model(pixels.float()).double()

    wide = ATTACKS[name](double, images[:10].double().numpy(), labels[:10])
    assert wide.adversarial.dtype == torch.float64
    assert torch.equal(wide.success, plain.success)


@pytest.mark.parametrize("attack", [fmn, fab])
def test_failed_samples_are_infinite(attack):
    """A model that never changes its mind near the images."""

    def stubborn(images):
        flat = images.flatten(1)
        return torch.stack([5 + 0 * flat[:, 0], flat.mean(1), flat[:, 0]], dim=1)

    images = torch.full((3, 1, 4, 4), 0.5)
    result = attack(stubborn, images, steps=10, bisections=5)
    assert not bool(result.success.any())
    assert torch.isinf(result.norms).all()
    assert torch.equal(result.adversarial, images)
    assert result.robust_accuracy() == 1.0


def test_training_mode_is_named(digits):
    _, images, labels = digits
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout())
    with pytest.warns(UserWarning, match="training mode") as caught:
        first, again = (pgd(model, images, labels, eps=EPS, steps=2) for _ in "12")
    assert {warning.filename for warning in caught} == {__file__}
    assert model.training
    assert torch.equal(first.adversarial, again.adversarial)


def test_zero_gradients_of_dlr_are_named():
    def flat(images):
        column = images.flatten(1).sum(1, keepdim=True) * 0
        return column + torch.tensor([3.0, 2.0, 1.0])

    with pytest.warns(UserWarning, match="gradient of zero"):
        apgd(flat, torch.full((2, 1, 2, 2), 0.5), eps=EPS, loss="dlr", steps=2)


IMAGES = torch.full((3, 1, 4, 4), 0.5)


def first_pixels(images):
    return images.flatten(1)[:, :5]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": lambda x: x}, ValueError, r"logits of shape \(3, K\)"),
        ({"model": lambda x: x.numpy()}, TypeError, "tensor of logits, got ndarray"),
        ({"model": lambda x: first_pixels(x.detach())}, ValueError, "differentiated"),
        ({"model": lambda x: first_pixels(x) / 0}, ValueError, "finite"),
        ({"images": IMAGES.byte()}, TypeError, r"images.float\(\) / 255"),
        ({"images": IMAGES.flatten()}, ValueError, r"expected shape \(N, ...\)"),
        ({"images": IMAGES * 4}, ValueError, r"in \[0, 1\], got 2 to 2; normalization"),
        ({"images": IMAGES * 510}, ValueError, "divide them by 255"),
        ({"labels": torch.tensor([1, 2, 5])}, ValueError, "from 0 to 4, got 5"),
        ({"eps": 0}, ValueError, "eps: expected a positive"),
        ({"steps": 0}, ValueError, "steps: expected at least 1"),
        ({"step_size": -1}, ValueError, "step_size: expected a positive"),
        ({"step_size": 2}, ValueError, "step_size: .* pass 2/255"),
        ({"norm": "l1"}, ValueError, "norm: expected one of linf, l2; got 'l1'"),
        ({"batch_size": 0}, ValueError, "batch_size: expected at least 1"),
        ({"seed": -1}, ValueError, "seed: expected at least 0"),
        *(
            ({"attack": attack, "eps": 8}, ValueError, "pass 8/255")
            for attack in (fgsm, pgd, apgd, square)
        ),
    ],
)
def test_bad_input(change, error, message):
    options = {"model": first_pixels, "images": IMAGES, "eps": 0.1} | change
    attack = options.pop("attack", pgd)
    with pytest.raises(error, match=message):
        attack(options.pop("model"), options.pop("images"), **options)


@pytest.mark.parametrize(
    ("attack", "options", "message"),
    [
        (partial(apgd, eps=EPS), {"loss": "hinge"}, "loss: expected one of ce, dlr"),
        (partial(apgd, eps=EPS), {"loss": "dlr"}, "at least 3 classes .* got 2"),
        (partial(apgd, eps=EPS), {"loss": "targeted"}, "at least 4 classes .* got 2"),
        (partial(square, eps=EPS), {"norm": "l2"}, "does not fit 4 × 4 pixels"),
        *((attack, {"targets": 0}, "targets: expected") for attack in (fmn, fab)),
        *((attack, {"bisections": -1}, "bisections: exp") for attack in (fmn, fab)),
    ],
)
def test_bad_options_of_single_attacks(attack, options, message):
    with pytest.raises(ValueError, match=message):
        attack(lambda x: first_pixels(x)[:, :2], IMAGES, **options)


@every_attack
def test_unknown_options_are_named_with_the_attack(digits, name):
    attack = name.replace("fab-targeted", "fab")
    with pytest.raises(TypeError, match=f"^{attack}: expected .*; got restarts"):
        ATTACKS[name](*digits, restarts=3)


@pytest.mark.parametrize(
    ("attack", "library", "module"),
    [
        (partial(fgsm, eps=EPS), "foolbox", "foolbox.attacks"),
        (fab, "pyautoattack", "pyautoattack.autopgd_base"),
    ],
)
def test_missing_library_is_named(monkeypatch, attack, library, module):
    import robustbook.attacks

    runs = f"{library}_runs"
    monkeypatch.delitem(sys.modules, f"robustbook.attacks.{runs}", raising=False)
    monkeypatch.delattr(robustbook.attacks, runs, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"{library} is not installed; pip install .*\[attacks\]"
    with pytest.raises(ModuleNotFoundError, match=message):
        attack(first_pixels, IMAGES)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@every_attack
def test_cuda(digits, name):
    source, images, labels = digits
    model = copy.deepcopy(source).cuda()
    state = torch.cuda.get_rng_state()
    result = ATTACKS[name](model, images, labels)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert result.adversarial.device == images.device
    on_cpu = ATTACKS[name](source, images, labels)
    assert abs(result.robust_accuracy() - on_cpu.robust_accuracy()) < 0.05


@pytest.mark.filterwarnings("ignore:.*gradient of zero")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_random_starts_are_uniform_in_the_ball(norm):
    """Where the gradient is zero, PGD stays where it started."""
    images = torch.full((3000, 1, 1, 3), 0.5)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    nn.init.zeros_(flat[1].weight)
    labels = flat.eval()(images).argmax(1)
    moved = pgd(
        flat, images, labels, norm=norm, eps=0.3, steps=1, progress=False
    ).adversarial
    change = (moved - images).flatten(1) / 0.3
    order = 2 if norm == "l2" else math.inf
    sizes = torch.linalg.vector_norm(change, order, dim=1)
    assert kstest(sizes**3, "uniform").pvalue > 0.01
    assert change.mean(0).abs().max() < 0.05
