"""Attacks on linear models, whose exact margins are known."""

from functools import partial

import numpy as np
import pytest
import torch

from robustbook.attacks import apgd, fab, fgsm, fmn, pgd, smallest


def excess(result, margins):
    """Return the relative excess of the norms over the exact margins."""
    assert bool(result.success.all())
    return result.norms / margins - 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("problem", ["binary", "ten"])
@pytest.mark.parametrize("attack", [fmn, fab])
def test_targeted_minimal_attacks_find_the_margin(request, attack, problem, norm):
    model = request.getfixturevalue(problem)
    result = attack(model, model.images, steps=30, targets=9, norm=norm)
    beyond = excess(result, getattr(model, norm))
    assert -1e-3 < float(beyond.min()) <= float(beyond.max()) < 0.01


@pytest.mark.parametrize("attack", [fmn, fab])
@pytest.mark.parametrize("problem", ["binary", "ten", "hundred"])
def test_untargeted_minimal_attacks(request, attack, problem):
    """FMN goes for the likeliest class, which is mostly, not always, the nearest."""
    model = request.getfixturevalue(problem)
    beyond = excess(attack(model, model.images, steps=30), model.linf)
    assert -1e-3 < float(beyond.min()) <= float(beyond.median()) < 0.01
    if attack is fab or problem == "binary":
        assert float(beyond.max()) < 0.01


@pytest.mark.parametrize("step_size", [1.0, 10.0])
def test_fmn_does_not_stop_on_the_boundary(ten, step_size):
    """In foolbox, 1 to 3 % of these come back as the clean image."""
    assert bool(fmn(ten, ten.images, step_size=step_size).success.all())


@pytest.mark.parametrize("attack", [fmn, fab])
def test_bisections_remove_the_overshoot(ten, attack):
    options = {"steps": 10, "targets": 9}
    plain = attack(ten, ten.images, **options)
    bisected = attack(ten, ten.images, bisections=20, **options)
    assert bool((bisected.norms <= plain.norms).all())
    assert float(excess(bisected, ten.linf).max()) < 2e-3
    for eps in (0.01, 0.05, 0.1):
        share = float((ten.linf > eps).double().mean())
        assert bisected.robust_accuracy(eps) == pytest.approx(share, abs=0.01)
    assert bisected.robust_accuracy() == 0
    for eps, message in ((-1.0, "at least 0"), (8, "pass 8/255")):
        with pytest.raises(ValueError, match=message):
            bisected.robust_accuracy(eps)


@pytest.mark.parametrize("attack", [fgsm, pgd, apgd, partial(apgd, loss="targeted")])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fixed_size_is_exact_with_two_classes_or_a_target(binary, ten, attack, norm):
    # The gradient points straight at the only other class or at the target.
    model = binary if attack in (fgsm, pgd, apgd) else ten
    margins = getattr(model, norm)
    eps = float(margins.median())
    result = attack(model, model.images, eps=eps, norm=norm)
    # From a random start, steps of 2.5 eps in all end 5 degrees away on the sphere.
    clear = (margins / eps - 1).abs() > (1e-3 if attack in (fgsm, apgd) else 1e-2)
    assert torch.equal(result.success[clear], (margins < eps)[clear])
    assert 0 < float(result.success.double().mean()) < 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    "attack",
    [fgsm, pgd, apgd, partial(apgd, loss="dlr")],
    ids=["fgsm", "pgd", "apgd-ce", "apgd-dlr"],
)
def test_no_success_within_the_margin(ten, attack, norm):
    """With any loss, the size is respected and no attack succeeds within the margin."""
    margins = getattr(ten, norm)
    eps = float(margins.median())
    result = attack(ten, ten.images, eps=eps, norm=norm)
    assert not bool(result.success[margins > eps * 1.001].any())
    # Even the wrong loss succeeds on most images with small margins.
    assert float(result.success[margins < eps * 0.5].double().mean()) > 0.9
    moved = (result.adversarial - ten.images).flatten(1)
    size = torch.linalg.vector_norm(moved, ord=2 if norm == "l2" else torch.inf, dim=1)
    assert float(size.max()) <= eps * (1 + 1e-5) + 1e-6
    assert torch.isinf(result.norms[~result.success]).all()
    norms = result.norms[result.success]
    np.testing.assert_allclose(norms, size[result.success], rtol=1e-5)


def test_smallest(ten):
    quick, slow = fmn(ten, ten.images, steps=5), fab(ten, ten.images, steps=5)
    both = smallest(quick, slow)
    assert torch.equal(both.norms, torch.minimum(quick.norms, slow.norms))
    assert both.attack == "fmn+fab"
    assert torch.equal(both.success, quick.success | slow.success)
    with pytest.raises(ValueError, match=r"one norm and shape, got .*linf.* and .*l2"):
        smallest(quick, fmn(ten, ten.images, steps=5, norm="l2"))
    with pytest.raises(ValueError, match="expected one norm and shape"):
        smallest(quick, fmn(ten, ten.images[:5], steps=5))
    with pytest.raises(TypeError, match="separate arguments, got list"):
        smallest([quick, slow])
    with pytest.raises(TypeError, match="got none"):
        smallest()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_success_of_an_attack_counts_at_the_size_of_the_attack(ten, norm):
    # Adding the perturbation rounds, so some norms are slightly larger than eps.
    for eps in (0.3, 8 / 255, 0.7):
        result = pgd(ten, ten.images, eps=eps, norm=norm, steps=5)
        assert result.robust_accuracy(eps) == result.robust_accuracy()
