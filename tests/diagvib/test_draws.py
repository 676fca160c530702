"""What is drawn: the same for a seed, balanced, paired or disjoint."""

import copy
from pickle import dumps, loads

import numpy as np
import pytest
import torch

from robustbook.datasets import diagvib, load_dataset
from robustbook.datasets.diagvib import Environment, draw, draw_all
from robustbook.datasets.diagvib._render import _masks, count_masks

from ..conftest import needs_folder

needs_mnist = needs_folder("mnist")
RED = Environment()
ANY = Environment(*diagvib.FACTORS.values())
SPLITS = ("train", "validation", "test")
VALUES = ("labels", "instances", "hue", "lightness", "crop", "position", "scale")


def same(first, second, names=VALUES):
    return all(torch.equal(getattr(first, n), getattr(second, n)) for n in names)


def test_a_seed_is_a_world():
    first, again = (draw(ANY, count=50, seed=4) for _ in range(2))
    assert same(first, again)
    assert torch.equal(first.images(size=32), again.images(size=32))
    other = draw(ANY, count=50, seed=5)
    assert not any(same(first, other, [name]) for name in VALUES)


def test_more_scenes_begin_with_the_fewer():
    few, many = (draw(ANY, shapes=(1, 4, 7), count=n, seed=1) for n in (301, 1000))
    assert same(few, many.subset(slice(0, 301)))


def test_seeds_of_the_process_neither_matter_nor_change():
    images = []
    for seed in (1, 2):
        np.random.seed(seed)
        torch.manual_seed(seed)
        states = np.random.get_state()[1].copy(), torch.get_rng_state()
        images.append(draw(ANY, count=10).images(size=32))
        assert np.array_equal(np.random.get_state()[1], states[0])
        assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.equal(*images)


def test_classes_are_equally_frequent_from_the_first_scenes_on():
    scenes = draw(RED, shapes=(1, 4, 7, 9), count=402)
    for end in (4, 40, 400):
        assert torch.bincount(scenes.labels[:end]).tolist() == [end // 4] * 4
    orders = {tuple(run.tolist()) for run in scenes.labels[:400].view(-1, 4)}
    assert len(orders) > 15


def test_the_digit_shown_is_that_of_the_label():
    scenes = draw(RED, shapes=(9, 4), count=30)
    seen = scenes.images(size=128)
    masks = {k: _masks("digits", "train", d, 40) for k, d in enumerate((9, 4))}
    places = zip(scenes.labels.tolist(), scenes.instances.tolist(), strict=True)
    for image, (label, instance) in zip(seen, places, strict=True):
        mask = masks[label][instance] > 127
        # As much of the picture as the mask covers, up to its scale.
        share = ((image - 127 / 255).abs().amax(0) > 0.1).sum() / mask.sum()
        assert 0.8 < float(share) < 1.35


def test_every_level_of_a_choice_is_drawn_equally_often():
    scenes = draw(ANY, count=6000, seed=3)
    for factor, levels in diagvib.FACTORS.items():
        counts = torch.bincount(scenes.levels[factor], minlength=len(levels))
        expected = 6000 / len(levels)
        assert float((counts - expected).abs().max()) < 4 * expected**0.5
    table = torch.corrcoef(torch.stack([*scenes.levels.values()]).double())
    assert float((table - torch.eye(len(table))).abs().max()) < 0.06


def test_values_fill_their_intervals_evenly():
    scenes = draw(RED, count=4000, seed=6)
    shares = {
        "hue": ((scenes.hue + 15) % 360) / 30,
        "dark end": scenes.lightness[:, 0] * 11,
        "light end": scenes.lightness[:, 1] * 11 - 4,
        "across": scenes.position[:, 0] * 7 - 3,
        "down": scenes.position[:, 1] * 7 - 3,
        "row": scenes.crop[:, 0],
        "column": scenes.crop[:, 1],
        "scale": (scenes.scale - 1 / 1.05) / (1.05 - 1 / 1.05),
    }
    for name, share in shares.items():
        assert float(share.min()) >= -1e-5, name
        assert float(share.max()) <= 1 + 1e-5, name
        counts = torch.histc(share, bins=8, min=0, max=1)
        assert float((counts - 500).abs().max()) < 4 * 500**0.5, name
    table = torch.corrcoef(torch.stack(list(shares.values())))
    assert float((table - torch.eye(len(shares))).abs().max()) < 0.06


def test_paired_environments_differ_in_nothing_but_the_shifted_factors():
    shifted = RED.changed(hue="blue", position="lower center")
    first, second = draw_all([RED, shifted], shapes=(4, 9), count=80, paired=True)
    assert same(first, second, ["labels", "instances", "lightness", "crop", "scale"])
    np.testing.assert_allclose((second.hue - first.hue) % 360, 240, atol=1e-3)
    assert torch.equal(first.position[:, 0], second.position[:, 0])
    moved = second.position[:, 1] - first.position[:, 1]
    np.testing.assert_allclose(moved, 2 / 7, atol=1e-6)


def test_disjoint_environments_share_no_digit_but_the_class():
    first, second, third = draw_all([RED] * 3, shapes=(4, 9), count=300)
    for label, digit in enumerate((4, 9)):
        parts = (first, second, third)
        used = [set(part.instances[part.labels == label].tolist()) for part in parts]
        together = set.union(*used)
        assert sum(map(len, used)) == len(together)
        assert together == set(range(count_masks("digits", "train", digit)))
    assert torch.equal(first.labels, second.labels)
    assert not torch.equal(first.scale, second.scale)


def test_environments_can_be_paired_in_groups():
    # Experiment 5b: the unshifted sample is another one than the shifted ones, which
    # are the same digits throughout.
    blue = RED.changed(hue="blue")
    large = blue.changed(scale="large")
    options = {"shapes": (4, 9), "count": 150, "paired": [0, 1, 1]}
    first, second, third = draw_all([RED, blue, large], **options)
    assert torch.equal(first.labels, second.labels)
    assert same(second, third, ["labels", "instances", "hue", "lightness", "position"])
    assert not torch.equal(first.instances, second.instances)
    for label in (0, 1):
        mine = first.labels == label
        used = [set(part.instances[mine].tolist()) for part in (first, second)]
        assert not used[0] & used[1]
    for wrong in ([0, 1], [0, 2, 2], [1, 1, 1]):
        with pytest.raises(ValueError, match="paired: expected true, false, or 3"):
            draw_all([RED, blue, large], count=4, paired=wrong)
    whole = draw_all([RED, blue], count=20, paired=True)
    assert same(whole[1], draw_all([RED, blue], count=20, paired=[0, 0])[1])


def test_digits_are_used_up_before_they_come_again():
    total = count_masks("digits", "train", 4)
    scenes = draw(RED, shapes=[4], count=3 * total)
    laps = scenes.instances.view(3, total)
    for lap in laps:
        assert sorted(lap.tolist()) == list(range(total))
    assert not torch.equal(laps[0], laps[1])


def test_splits_share_no_digit():
    train, test = (load_dataset("digits", s).labels.bincount() for s in SPLITS[::2])
    for shape in range(10):
        sizes = [count_masks("digits", split, shape) for split in SPLITS]
        most = int(train[shape]) * 4 // 5
        assert sizes == [most, train[shape] - most, test[shape]]


@needs_mnist
def test_the_parts_of_mnist_have_the_sizes_of_the_original():
    sizes = {
        split: [count_masks("mnist", split, shape) for shape in range(10)]
        for split in SPLITS
    }
    assert sizes == {
        "train": [4738, 5393, 4766, 4904, 4673, 4336, 4734, 5012, 4680, 4759],
        "validation": [1185, 1349, 1192, 1227, 1169, 1085, 1184, 1253, 1171, 1190],
        "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    }


@needs_mnist
def test_mnist_digits_fill_their_square():
    masks = _masks("mnist", "test", 3, 40) > 127
    rows, columns = masks.any(2), masks.any(1)
    longest = torch.maximum(rows.sum(1), columns.sum(1))
    # Strokes too faint for the threshold are lost, at the ends of a few digits.
    assert float((longest >= 27).float().mean()) > 0.9
    assert int(longest.max()) <= 29
    assert int(masks.sum((1, 2)).min()) > 20
    assert not bool(masks[:, :5].any() or masks[:, -5:].any())
    scenes = draw(RED, shapes=(3,), count=64, source="mnist", split="test")
    assert scenes.images(size=32).shape == (64, 3, 32, 32)


TIED = Environment(hue={4: "red"})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: draw(RED, count=4, shapes=(4, 4)), ValueError, "shapes: .* different"),
        (lambda: draw(RED, count=4, shapes=(4, 11)), ValueError, "digits from 0 to 9"),
        (lambda: draw(RED, count=4, shapes=4), TypeError, "shapes: expected"),
        (lambda: draw(RED, count=4, split="val"), ValueError, "of train, validation"),
        (lambda: draw(RED, count=4, source="svhn"), ValueError, "one of digits, mnist"),
        (lambda: draw(RED, count=0), ValueError, "count: expected at least 1, got 0"),
        (lambda: draw(RED, count=4, seed=-1), ValueError, "seed: expected at least 0"),
        (lambda: draw(TIED, count=2, shapes=(4, 9)), ValueError, "for the digit 9"),
        (lambda: draw_all([], count=1), ValueError, "at least one, got none"),
        (lambda: draw_all([RED, 4], count=4), TypeError, "environments: expected"),
        (lambda: draw_all([RED], count=4, paired=1), TypeError, "paired: expected"),
        (lambda: draw_all([RED] * 200, shapes=[4], count=1), ValueError, "paired=True"),
        (lambda: Environment(hue="pink"), ValueError, "hue: expected one of red"),
        (lambda: Environment(position={4: ("mid",)}), ValueError, "one of upper left"),
        (lambda: Environment(hue={"four": "red"}), ValueError, "hue: .* 0 to 9 as k"),
        (lambda: RED.changed(color="red"), TypeError, "color"),
        (lambda: RED.levels("shape", 4), ValueError, "factor: expected one of hue"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_levels_without_an_order_or_twice_are_refused():
    for choice in ({"red", "blue"}, ("red", "red"), (x for x in ["red"]), 5, None, ()):
        with pytest.raises(ValueError, match="hue: expected a level, a tuple"):
            Environment(hue=choice)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: loads(dumps(x))])
def test_environments_and_setups_can_be_copied_pickled_and_hashed(again):
    setup = diagvib.opportunities("1-CGO")
    for one in (*setup.training, setup, diagvib.SELECTION_HUE):
        assert again(one) == one
        assert hash(again(one)) == hash(one)
    assert setup != diagvib.opportunities("2-CGO")
