"""Settings of trainings on two domains, their learners and networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn

from robustbook.models import build_model, load_model
from robustbook.studies.run import Run, Setting
from robustbook.training import ERM, IRM, LISA, Learner

#: The network of Chapter 16.
SMALL: Final = "strided-cnn"
#: Learners with the options of the published configuration, and three that mix by
#: CutMix, with probability p across the classes of a domain (0.5 if not said), else
#: across the domains.
LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {
        "ERM": ERM(),
        "IRM": IRM(),
        "LISA": LISA(),
        "LISA, CutMix": LISA(mix="cutmix"),
        "LISA, CutMix, p=0": LISA(across_domains=1.0, mix="cutmix"),
        "LISA, CutMix, p=1": LISA(across_domains=0.0, mix="cutmix"),
    }
)
#: The learners that the sources compare.
COMPARED_LEARNERS: Final = ("ERM", "IRM", "LISA")


@dataclass(frozen=True, kw_only=True)
class TrainingSetting(Setting):
    """How much is trained, on pictures of the digits of a data set."""

    #: Side of the images in pixels, and width of the network.
    size: int
    width: int
    #: Images of each domain in an epoch, and in a step.
    count: int
    batch_size: int
    epochs: int
    lr: float
    optimizer: str = "adam"
    #: Number of training seeds per learner.
    seeds: int
    norm: str = "group"
    #: `SMALL` or a network that can be loaded, and whether its weights are kept.
    network: str = SMALL
    borrowed: bool = False
    #: Pictures as they are "drawn", or standardized by the mean and standard deviation
    #: of the "sources" together, or of their "own" environment.
    scale: str = "drawn"
    #: Precision of the training; evaluation is in float32.
    precision: str = "float32"
    #: How often each digit appears in a validation or test sample, and the greatest
    #: numbers of scenes.
    repeats_per_digit: int = 1
    validated: int | None = None
    tested: int | None = None

    def __post_init__(self) -> None:
        loaded = () if self.network == SMALL else (self.network,)
        object.__setattr__(self, "models", loaded)

    @property
    def of_pictures(self) -> TrainingSetting:
        """The same for all ways to train on the same pictures."""
        same = {item.name: getattr(self, item.name) for item in fields(TrainingSetting)}
        same |= {"lr": 0.0, "optimizer": "", "borrowed": False}
        return TrainingSetting(**same)


@dataclass(frozen=True, kw_only=True)
class Regime(TrainingSetting):
    """One way to train: a learner, an optimizer, a network and its pictures."""

    scale: str = "own"
    learner: str = "ERM"
    #: The domains on which a study trains in this way.
    setups: tuple[str, ...] = ()


#: Options that all full and all quick settings share.
FULL: Final = partial(
    TrainingSetting, dataset="mnist", size=64, width=16, seeds=5, precision="bfloat16"
)
QUICK: Final = partial(
    TrainingSetting, dataset="digits", size=24, width=8, batch_size=32, seeds=2
)


def trainings(
    run: Run[Any], setups: Iterable[str], learners: Iterable[str]
) -> Iterator[tuple[str, str, int]]:
    """Setups, learners and seeds, one seed after the other."""
    seeds = run.seeds(run.setting.seeds)
    for training_seed, setup, learner in product(seeds, setups, learners):
        yield setup, learner, training_seed


def new_network(setting: TrainingSetting, num_classes: int, seed: int) -> nn.Module:
    """A network with a new last layer; its other weights are kept, or new, too."""
    if setting.network == SMALL:
        shape = {"width": setting.width, "norm": setting.norm}
        shape["num_classes"] = num_classes
        return build_model(SMALL, seed=seed, options=shape)
    model = load_model(setting.network).requires_grad_(True)
    layers = dict(model.named_modules())
    name = [key for key, layer in layers.items() if isinstance(layer, nn.Linear)][-1]
    parent, _, attribute = name.rpartition(".")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not setting.borrowed:
            for layer in layers.values():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        last = nn.Linear(layers[name].in_features, num_classes)
    setattr(layers[parent], attribute, last)
    for layer in layers.values():
        if isinstance(layer, nn.BatchNorm2d):
            # torch's default, with which statistics follow within an epoch.
            layer.momentum = 0.1
    return model
