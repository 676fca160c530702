"""Regimes of training: what is standardized, what is borrowed, what is where."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import draw_all
from robustbook.models import load_model, logits_of
from robustbook.studies import STUDIES
from robustbook.studies.domains import domain_regime as study
from robustbook.studies.domains._pictures import (
    HUES,
    POSITIONS,
    SETUPS,
    held_out_pictures,
    held_out_scenes,
    standardized,
    training_pictures,
)
from robustbook.studies.domains._training import LEARNERS, new_network
from robustbook.studies.run import Run
from robustbook.training import train_domains

from ..conftest import SEED

QUICK = STUDIES["domain_regime"].settings("quick")
FULL = STUDIES["domain_regime"].settings("full")
KINDS = ("cpu", "cuda")
(BORROWED,) = (one for one in QUICK if one.borrowed)
NEW = replace(BORROWED, borrowed=False)


def keys_of(regime):
    return {name: getattr(regime, name) for name in study.COLUMNS}


def test_standardized_pictures_forget_the_scale_of_each_channel():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 60, (6, 3, 4, 4), generator=generator).to(torch.uint8)
    # Another brightness and contrast in each channel: the same pictures afterwards.
    factor = torch.tensor([1, 2, 4]).reshape(3, 1, 1)
    changed = (images * factor + torch.tensor([9, 0, 7]).reshape(3, 1, 1)).byte()
    labels = torch.arange(6) % 3
    one, other = (
        standardized(Dataset(some, labels, "made up", "train", 3))
        for some in (images, changed)
    )
    assert torch.allclose(one.images, other.images, atol=1e-5)
    assert torch.allclose(one.images.mean((0, 2, 3)), torch.tensor(0.5), atol=1e-5)
    assert torch.allclose(one.images.std((0, 2, 3)), torch.tensor(0.25), atol=1e-5)
    assert torch.equal(one.labels, labels)


def test_one_scale_for_all_is_one_line_for_each_channel():
    drawn, seen = (
        [*training_pictures("ZGO", plan, 0), *held_out_pictures("ZGO", plan, 0)[1]]
        for plan in (replace(BORROWED, scale=scale) for scale in ("drawn", "sources"))
    )
    both = torch.cat([data.images for data in seen[:2]])
    assert torch.allclose(both.mean((0, 2, 3)), torch.tensor(0.5), atol=1e-5)
    assert torch.allclose(both.std((0, 2, 3)), torch.tensor(0.25), atol=1e-5)
    for channel in range(3):
        x, y = (torch.cat([one.images[:, channel] for one in some]).flatten().double()
                for some in (drawn, seen))  # fmt: skip
        slope, start = np.polyfit(x, y, 1)
        assert np.allclose(start + slope * x, y, atol=1e-5)


@pytest.mark.parametrize("regime", [BORROWED, NEW])
def test_all_but_the_last_layer_is_borrowed_or_new(regime):
    state = torch.get_rng_state()
    network = new_network(regime, 3, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    loaded = dict(load_model(regime.network).named_parameters())
    kept = {
        name
        for name, value in network.named_parameters()
        if value.shape == loaded[name].shape and torch.equal(value, loaded[name])
    }
    changed = {name for name, value in loaded.items() if name not in kept}
    if regime.borrowed:
        assert changed == {"linear.weight", "linear.bias"}
    else:
        # The scale of a normalization may be the one that it began with.
        assert {name for name in kept if loaded[name].ndim > 1} == set()
    assert all(value.requires_grad for value in network.parameters())
    assert network(torch.zeros(2, 3, 24, 24)).shape == (2, 3)
    again = new_network(regime, 3, seed=1).state_dict()
    assert all(torch.equal(again[k], v) for k, v in network.state_dict().items())


def test_every_training_has_every_epoch(domain_regime):
    columns = (*study.COLUMNS, "setting", "training_seed", "epoch")
    found = [tuple(row[name] for name in columns) for row in domain_regime.rows]
    seeds = range(SEED, SEED + QUICK[0].seeds)
    epochs = range(1, QUICK[0].epochs + 1)
    assert sorted(map(str, found)) == sorted(
        str((*keys_of(one).values(), setting, seed, epoch))
        for one, setting, seed, epoch in product(QUICK, HUES, seeds, epochs)
    )
    for row in domain_regime.rows:
        if row["setting"] == "ZSO":
            assert row["test/0"] == row["test/1"]


def test_regimes_are_the_same_on_every_kind_of_device():
    here, there = ([*study.parts(Run("", "full", 0, kind, FULL))] for kind in KINDS)
    assert here == there
    assert {regime for regime, *_ in here} == set(FULL)
    # Those that only a GPU can train are another study, with rows of its own.
    large = STUDIES["domain_regime_large"]
    assert large.device == "cuda"
    assert not set(FULL) & set(large.settings("full"))


@pytest.mark.processor
def test_learners_are_trained_on_standardized_pictures(regime_learners):
    """One training by hand, in its only epoch, and one of its rows."""
    (plan,) = STUDIES["regime_learners"].settings("quick")
    setup = SETUPS["printed"]

    def seen(scenes):
        return [
            standardized(one.dataset(size=plan.size, dtype=torch.uint8))
            for one in scenes
        ]

    how = {"shapes": setup.shapes, "source": plan.dataset, "count": plan.count}
    network = new_network(plan, 2, SEED)
    train_domains(
        network, LEARNERS["IRM"], seen(draw_all(setup.training, **how, seed=SEED)),
        epochs=plan.epochs, lr=plan.lr, batch_size=plan.batch_size, seed=SEED,
        precision=plan.precision, progress=False,
    )  # fmt: skip
    scenes = held_out_scenes("printed", setup.tests, "test", plan, SEED)
    where = {"learner": "IRM", "training_seed": SEED, "digits": "same", "ratio": 1.0}
    for factors, shifted in enumerate(seen(scenes)):
        row = regime_learners.row(what="pair", factors=factors, **where)
        logits = logits_of(network.eval(), shifted.images)
        sure = logits.double().softmax(1).amax(1).mean()
        assert row["confidence"] == pytest.approx(float(sure), abs=1e-4)


@pytest.mark.parametrize("name", ["regime_selection", "regime_positions"])
def test_every_process_is_scored_on_every_pair(quick, name):
    """And the pairs of Experiment 6 are those of Tables 5.3 and 5.4."""
    processes = STUDIES[name].settings("quick")
    rows = quick(name).rows
    found = [(row["learner"], row["setting"], row["epoch"]) for row in rows]
    assert found == [
        (one.learner, setting, epoch)
        for setting in (*HUES, *POSITIONS)
        for one in processes
        if setting in one.setups
        for epoch in range(1, one.epochs + 1)
    ]
    for row in rows:
        pairs = {name.split("/")[0] for name in row if name.endswith("/pa")}
        five = {"SD", "1F-MD", "5F-MD", "OOD"} if "two" in row["setting"] else {}
        assert pairs == {"ID", *five}
        if five:
            assert row["SD/pa"] == pytest.approx(math.log(4), abs=1e-5)
