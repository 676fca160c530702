"""A training in one of several regimes: what is borrowed, what is standardized."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import torch
from torch import nn

from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import (
    OPPORTUNITIES,
    SELECTION_HUE,
    Scenes,
    Setup,
    opportunities,
)
from robustbook.models import build_model, load_model
from robustbook.studies._run import Row, Run, cached_rows, decimals
from robustbook.studies.domains._pictures import held_out_scenes, training_pictures
from robustbook.studies.domains._pictures import pictures as drawn
from robustbook.studies.domains._training import TrainingSetting
from robustbook.training import ERM, train_domains

#: The network of Chapter 15.
SMALL: Final = "strided-cnn"
#: Domains that differ in the hue: it tells nothing of the class (Experiment 6), or it
#: gives the class away, more and less (Experiment 7).
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {"two hues": SELECTION_HUE} | {name: opportunities(name) for name in OPPORTUNITIES}
)


@dataclass(frozen=True, kw_only=True)
class Regime(TrainingSetting):
    """One way to train: `SMALL`, or a network that can be loaded."""

    network: str
    #: Whether the pictures of each environment are standardized by its own statistics.
    own: bool = True
    #: Whether the weights begin as they are loaded.
    borrowed: bool = False
    #: The kind of device on which this is part of a study.
    device: str = "cpu"

    def checkpoints(self) -> list[str]:
        """Those that this project or others publish; packages have their own sums."""
        named = self.network == SMALL or self.network.startswith("imagenet:")
        return [] if named else [self.network]

    @property
    def keys(self) -> Row:
        """What tells regimes apart in a table."""
        names = "network", "size", "own", "borrowed", "lr"
        return {name: getattr(self, name) for name in names}


def measure(
    run: Run[Regime], regime: Regime, setting: str, training_seed: int
) -> list[Row]:
    """Train and score every epoch, or read what that gave."""
    # Not part of it: how many other trainings there are, and where.
    others = {"seeds", "models", "device"}
    plan = {name: one for name, one in asdict(regime).items() if name not in others}
    return cached_rows(
        {**plan, "setting": setting, "training_seed": training_seed},
        partial(_trained, run, regime, setting, training_seed),
        code=__name__,
    )


def _trained(
    run: Run[Regime], regime: Regime, setting: str, training_seed: int
) -> Iterator[Row]:
    setup = SETUPS[setting]

    def seen(scenes: Sequence[Scenes]) -> list[Dataset]:
        images = drawn(scenes, regime)
        return [standardized(one) for one in images] if regime.own else images

    held = partial(
        held_out_scenes, setup, setting=regime, seed=training_seed, other_digits=False
    )
    sources = training_pictures(setup, regime, training_seed)
    if regime.own:
        sources = [standardized(one) for one in sources]
    first, second = seen(
        held(environments=setup.training, split="validation", most=regime.validated)
    )
    tests = seen(held(environments=setup.tests, split="test", most=regime.tested))
    model = new_network(regime, len(setup.shapes), training_seed)
    began = time.process_time()
    history = train_domains(
        model, ERM(), sources, epochs=regime.epochs, lr=regime.lr, seed=training_seed,
        batch_size=regime.batch_size, pairs={"ID": (first, second)},
        tests={str(k): test for k, test in enumerate(tests)}, device=run.device,
        precision=regime.precision, progress=False,
    )  # fmt: skip
    told = {
        "parameters": sum(one.numel() for one in model.parameters()),
        "count": regime.count, "epochs": regime.epochs,
        "seconds": decimals(time.process_time() - began, 1),
    }  # fmt: skip
    for row in history.rows:
        scores = {name: row[name] for name in row if name.startswith("test/")}
        scores = {"loss": row["loss"], "accuracy": row["ID/accuracy"], **scores}
        yield {
            "epoch": row["epoch"],
            **{name: decimals(value, 4) for name, value in scores.items()},
            **told,
        }


def standardized(data: Dataset) -> Dataset:
    """Pictures with mean 1/2 and standard deviation 1/4 in each channel of the set."""
    images = data.images / 255
    mean = images.mean((0, 2, 3), keepdim=True)
    images = 0.5 + 0.25 * (images - mean) / images.std((0, 2, 3), keepdim=True)
    return Dataset(images, data.labels, data.name, data.split, data.num_classes)


def new_network(regime: Regime, num_classes: int, seed: int) -> nn.Module:
    """A network with a new last layer; its other weights are borrowed, or new."""
    if regime.network == SMALL:
        options = {"width": regime.width, "norm": regime.norm}
        options["num_classes"] = num_classes
        return build_model(SMALL, seed=seed, options=options)
    model = load_model(regime.network).requires_grad_(True)
    layers = dict(model.named_modules())
    name = [one for one, layer in layers.items() if isinstance(layer, nn.Linear)][-1]
    parent, _, place = name.rpartition(".")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not regime.borrowed:
            for layer in layers.values():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        last = nn.Linear(layers[name].in_features, num_classes)
    setattr(layers[parent], place, last)
    for layer in layers.values():
        if isinstance(layer, nn.BatchNorm2d):
            # torch's own: statistics that follow within an epoch.
            layer.momentum = 0.1
    return model
