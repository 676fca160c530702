"""Intervals over families of networks."""

import numpy as np
import pytest
from scipy.stats import sem
from scipy.stats import t as student

from robustbook.models import list_public_models, public_model
from robustbook.studies.families import design_of, over_families

#: Options that the images decide.
_IMAGE = {"channels", "size"}
#: Networks of each design in Chapter 25.
SIZES = {
    "cnn_a": 6,
    "resnet2b": 2,
    "conv_small": 1,
    "marabou": 1,
    "a": 1,
    "b": 1,
    "c": 1,
}


def mean_of(values):
    return lambda some: np.mean([values[name] for name in some])


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("abcde", id="each is a family"),
        pytest.param(
            [
                f"{data}-{d}{i}"
                for d in ("cnn_a", "conv_small", "resnet2b", "x")
                for data, i in (("cifar10", ""), ("mnist", ""))
            ][:6],
            id="families of two",
        ),
    ],
)
def test_of_a_mean_over_equal_families_it_is_students_interval(names):
    drawn = np.random.default_rng(0).normal(size=len(names))
    values = dict(zip(names, drawn, strict=True))
    families = {}
    for name, value in values.items():
        families.setdefault(design_of(name), []).append(value)
    each = [np.mean(own) for own in families.values()]
    half = student.ppf(0.975, len(each) - 1) * sem(each)
    value, low, high = over_families(mean_of(values), list(names))
    assert value == pytest.approx(np.mean(each))
    assert (low, high) == pytest.approx((value - half, value + half))


def test_of_a_mean_a_larger_family_weighs_as_its_networks_do():
    """Busing's error, by hand: m of n networks, with mean d, add m d² / (n - m)."""
    values = {"cifar10-cnn_a": 3.0, "mnist-cnn_a": 5.0, "a": 1.0, "b": 0.0, "c": 1.0}
    value, low, high = over_families(mean_of(values), list(values))
    assert value == pytest.approx(2.0)
    error = np.sqrt(np.mean([2 / 3 * 2**2, 1 / 4, 1 / 4 * 2**2, 1 / 4]))
    assert high - value == pytest.approx(student.ppf(0.975, 3) * error)
    assert value - low == pytest.approx(high - value)


@pytest.mark.parametrize("own", [0.3, 1.0])
def test_where_one_design_has_half_of_the_networks_it_holds_a_mean_in_ninety_of_100(
    own,
):
    """As Chapter 25 says. Designs differ by one, the networks of a design by `own`."""
    names = [f"cifar10-{d}{i}" for d, n in SIZES.items() for i in range(n)]
    designs = [design_of(name) for name in names]
    rng, held = np.random.default_rng(0), []
    for _ in range(2000):
        effects = {design: rng.normal() for design in sorted(set(designs))}
        values = dict(zip(names, own * rng.normal(size=len(names)), strict=True))
        for name, design in zip(names, designs, strict=True):
            values[name] += effects[design]
        _, low, high = over_families(mean_of(values), names)
        held.append(low <= 0 <= high)
    assert 0.87 < np.mean(held) < 0.94


def test_one_design_has_no_interval():
    with pytest.raises(ValueError, match="at least 2 designs, got 1"):
        over_families(len, ["cifar10-cnn_a_adv", "mnist-cnn_a_adv"])


def test_public_networks_with_the_same_layers_are_one_family():
    families = {}
    for name in list_public_models():
        entry = public_model(name)
        layers = {k: v for k, v in entry.options.items() if k not in _IMAGE}
        families.setdefault(f"{entry.arch} {layers}", set()).add(design_of(name))
    assert len(families) > 5
    assert all(len(names) == 1 for names in families.values())
