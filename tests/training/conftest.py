"""What the tests of training share: small data and trainings, weights to the bit."""

import dataclasses
import itertools
from functools import cache

import pytest
import torch

from robustbook.datasets import diagvib, load_dataset
from robustbook.models import build_model
from robustbook.selection import pair_scores
from robustbook.training import (
    ERM,
    LISA,
    _loop,
    _resume,
    train_domains,
)
from robustbook.training._recipes import LongTraining, Recipe
from robustbook.training._retrain import train_recipe


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


SETUP = diagvib.DISCRIMINABILITY
LONG = Recipe(
    "m", "small-cnn", epochs=4, lr=0.05, adversarial_eps=0.1, adversarial_steps=1,
    long=LongTraining(0.1, averaging=0.8, padding=1, held_out=20, weight_decay=1e-4),
)  # fmt: skip


@cache
def draw(environments=SETUP.training, split="train", paired=False, dtype=torch.float32):
    scenes = diagvib.draw_all(
        environments, shapes=SETUP.shapes, count=40, split=split, paired=paired
    )
    return [part.dataset(size=16, dtype=dtype) for part in scenes]


def build(seed=0):
    return build_model("strided-cnn", seed=seed, options={"width": 4, "num_classes": 2})


def measured():
    """Pairs, tests and scores."""
    first, second = draw(split="validation", paired=True)
    return {
        "pairs": {"ID": (first, second), "SD": (first, first)},
        "tests": {"5": draw(SETUP.tests[5:], "test")[0]},
        "measure": pair_scores,
    }


def train(path=None, *, model=None, learner=None, domains=None, **options):
    """A training on domains with all there is to measure: model and history."""
    model = build() if model is None else model
    common = {"epochs": 4, "lr": 0.01, "seed": 0, "batch_size": 16, "progress": False}
    domains = draw() if domains is None else domains
    options = {**common, **measured(), "checkpoint": path, **options}
    return model, train_domains(model, learner or ERM(), domains, **options)


def first_bias(model):
    return next(value for name, value in model.named_parameters() if "bias" in name)


def train_to_keep(path=None, **options):
    """A training with all there is to keep, too."""
    keep = {"learner": LISA(), "keep": ["ID/pa"], "watch": {"bias": first_bias}}
    return train(path, **{**keep, **options})


def train_long(data, path=None, *, options=None, **changes):
    """A long training, with other options of its own or of its recipe."""
    changes["long"] = dataclasses.replace(LONG.long, **(options or {}))
    recipe = dataclasses.replace(LONG, **changes)
    model = build_model("small-cnn", seed=0)
    where = {"seed": 0, "checkpoint": path, "progress": False}
    return model, train_recipe(recipe, model, data, **where)


def equal(first, second):
    """Whether two models have the same weights, to the last bit."""
    theirs = second.state_dict()
    return all(torch.equal(v, theirs[k]) for k, v in first.state_dict().items())


def given(helper):
    """Make a fixture of a helper of this file."""
    return pytest.fixture(scope="session")(lambda: helper)


long, learn, full = given(train_long), given(train), given(train_to_keep)
samples, network, same_weights = given(draw), given(build), given(equal)
data = pytest.fixture(scope="session")(measured)


@pytest.fixture(scope="session")
def small():
    return load_dataset("digits", "train").subset(range(300))


@pytest.fixture
def stopped(monkeypatch):
    """Call a training that is stopped after so many epochs."""

    def stop(train, *, after):
        counted = itertools.count(1)

        def write(path, state):
            _resume.write_state(path, state)
            if next(counted) == after:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(_loop, "write_state", write)
            with pytest.raises(KeyboardInterrupt):
                train()

    return stop
