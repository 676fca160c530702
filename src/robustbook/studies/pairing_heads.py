"""Training for agreement: linear heads on what a network sees in PACS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Final

import torch
from torch import nn

from robustbook.agreement import pair_by_label
from robustbook.corruptions import corrupt
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import pacs_features
from robustbook.studies._run import Row, Run, small_network
from robustbook.studies.pairing import Pair, PairingSetting, Task, trainings
from robustbook.training import OtherDomain

_setting: Final = partial(
    PairingSetting, view="heads", size=0.0, batch_size=50, lr=0.001, seeds=5
)
SETTINGS: Final = {
    "full": (_setting(dataset="pacs", count=400, epochs=12, weights=(0.01, 0.1, 1.0)),),
    "quick": (
        _setting(dataset="digits", count=100, epochs=3, weights=(0.1,), seeds=2),
    ),
}


def rows(run: Run[PairingSetting]) -> Iterator[Row]:
    """Train heads on photographs and art, and measure them on cartoons.

    Rows as of the study ``pairing``. In the quick profile three kinds of digits take
    the place of the domains. Chapter 36.
    """
    tasks = {"heads": _heads}
    return trainings(run, tasks, lambda one: _domains(one.dataset), code=__name__)


@cache
def _domains(name: str) -> tuple[Dataset, ...]:
    """Two sources and the domain that is never seen, as features (n, D, 1, 1)."""
    if name == "pacs":
        seen = [
            pacs_features(domain) for domain in ("photo", "art_painting", "cartoon")
        ]
        return tuple(
            Dataset(x[:, :, None, None], y, name, "features", 7) for x, y in seen
        )
    data = load_dataset(name, "train")
    images = data.images, 1 - data.images, corrupt(data.images, "rotation")
    return tuple(
        Dataset(x.flatten(1)[:, :, None, None], data.labels, name, "features", 10)
        for x in images
    )


def _heads(setting: PairingSetting, seed: int) -> Task:
    draws = torch.Generator().manual_seed(seed)
    parts = []
    for data in _domains(setting.dataset):
        order = torch.randperm(len(data), generator=draws)
        ends = (setting.count, setting.count + 300)
        parts.append([data.subset(x) for x in torch.tensor_split(order, ends)])
    (first, held, test), (second, other, tested), unseen = parts
    size = first.images.shape[1], first.num_classes
    model = small_network(*size, hidden=0, seed=seed)

    def pairs(_: nn.Module) -> dict[str, Pair]:
        return {
            "validation": _paired(held, other, seed),
            "trained": _paired(test, tested, seed),
            "unseen": _paired(test, unseen[2], seed),
        }

    return Task(model, [first, second], OtherDomain(), pairs)


def _paired(first: Dataset, second: Dataset, seed: int) -> Pair:
    """Pictures of one class from two domains."""
    left, right = pair_by_label(first.labels, second.labels, seed=seed)
    return first.images[left], second.images[right], first.labels[left]
