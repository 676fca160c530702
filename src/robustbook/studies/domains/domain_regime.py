"""Trainings that come nearer to the printed accuracies under a shortcut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Final

from robustbook.studies.domains._pictures import HUES, SETUPS
from robustbook.studies.domains._recorded import scored_epochs as measure
from robustbook.studies.domains._training import SMALL, Regime, new_network
from robustbook.studies.run import Row, Run

#: The columns that distinguish regimes.
COLUMNS: Final = ("network", "size", "scale", "borrowed", "lr")
_SMALL: Final = partial(
    Regime, dataset="mnist", network=SMALL, size=64, width=16, count=800,
    batch_size=32, epochs=4, lr=1e-3, seeds=3, validated=120, tested=200,
    precision="bfloat16",
)  # fmt: skip
_RESNET: Final = partial(_SMALL, network="cifar10-resnet20", size=32)
# Nearer to the sources, who have 100 epochs of 15 000 pictures a domain.
_LARGE: Final = partial(
    _SMALL,
    network="imagenet:efficientnet-lite0",
    size=128,
    count=5000,
    batch_size=64,
    epochs=10,
    validated=300,
    tested=1000,
    precision="auto",
)
_QUICK: Final = partial(
    Regime, dataset="digits", network="cifar10-preact-adv-s0", size=24, width=8,
    count=90, batch_size=30, epochs=1, lr=5e-3, seeds=2, validated=30, tested=30,
)  # fmt: skip
SETTINGS: Final[dict[str, tuple[Regime, ...]]] = {
    "full": (
        _SMALL(scale="drawn"),
        _SMALL(),
        _RESNET(),
        _RESNET(borrowed=True, seeds=5),
        _RESNET(borrowed=True, lr=1e-4),
        _RESNET(lr=1e-4),
        # What own statistics are worth to a network that does see shapes, compared with
        # none and with those of the sources, which change the contrast alone.
        _RESNET(borrowed=True, scale="drawn", seeds=5),
        _RESNET(borrowed=True, scale="sources", seeds=5),
    ),
    "quick": (
        _QUICK(network=SMALL, scale="sources"),
        _QUICK(network=SMALL),
        _QUICK(),
        _QUICK(borrowed=True),
    ),
    "full large": tuple(
        _LARGE(borrowed=kind, lr=lr) for lr in (1e-3, 1e-4) for kind in (False, True)
    ),
    "quick large": (_QUICK(borrowed=True, seeds=1),),
}


def rows(run: Run[Regime]) -> Iterator[Row]:
    """Train ERM on two domains that differ in hue, in one regime after another.

    A regime is a ``network`` and the ``size`` of its pictures; their ``scale``, as they
    are "drawn", or standardized by the mean and standard deviation of the "sources"
    together or of each environment's "own" pictures; ``borrowed``, whether training
    starts from weights learned on photographs, with a new last layer, or from new ones;
    and ``lr``, Adam's rate.

    One row for each regime, ``setting`` ("two hues", where the hue tells nothing of the
    class, or one of :data:`robustbook.datasets.diagvib.OPPORTUNITIES`),
    ``training_seed`` (also of all pictures) and ``epoch``: ``loss``, the ``accuracy``
    on validation pictures of both domains, and ``test/0`` to ``test/5``; ``parameters``
    of the network, ``count`` of the training pictures of a domain, and ``epochs``.

    In the study ``domain_regime_large``, for a CUDA device, weights are from ImageNet
    and pictures of the sources' size.

    PA thesis, Experiments 6 and 7, Tables 5.3 and B.3; PA paper, Table 1. The book's
    audit of domain shift.
    """
    for job in run.progress(parts(run)):
        regime, setting, _, training_seed = job
        classes = len(SETUPS[setting].shapes)
        network = new_network(regime, classes, training_seed)
        sizes = {
            "parameters": sum(part.numel() for part in network.parameters()),
            "count": regime.count,
            "epochs": regime.epochs,
        }
        for row in measure(run, *job, digits=4):
            scores = {"loss": row["loss"], "accuracy": row["ID/accuracy"]}
            scores |= {name: row[name] for name in row if name.startswith("test/")}
            yield {
                **{name: getattr(regime, name) for name in COLUMNS},
                "setting": setting,
                "training_seed": training_seed,
                "epoch": row["epoch"],
                **scores,
                **sizes,
            }


def parts(run: Run[Regime]) -> Iterator[tuple[Regime, str, str, int]]:
    """The trainings that the rows are computed from."""
    most = range(max(regime.seeds for regime in run.settings))
    for setting, number, regime in product(HUES, most, run.settings):
        if number < regime.seeds:
            yield regime, setting, regime.learner, run.seed + number
