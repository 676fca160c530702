"""Training for agreement: is it better than plain augmentation, and on what?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.agreement import pair_by_label, posterior_agreement
from robustbook.corruptions import corrupt
from robustbook.datasets import Dataset, load_dataset
from robustbook.datasets.diagvib import SELECTION_HUE, draw_all
from robustbook.models import build_model, logits_of, pacs_features
from robustbook.scores import accuracy
from robustbook.studies.run import Row, Run, Setting, small_network
from robustbook.training import (
    AttackedView,
    OtherDomain,
    Pairing,
    add_gaussian_noise,
    train_domains,
)

#: The penalty of each method, and the share of the epochs before it begins.
METHODS: Final = {
    "squared logits": ("logits", 0.0),
    "KL": ("kl", 0.0),
    "JS": ("js", 0.0),
    "agreement": ("agreement", 0.0),
    "agreement, later": ("agreement", 0.4),
}
PLAIN: Final = "augmentation"


@dataclass(frozen=True, kw_only=True)
class PairingSetting(Setting):
    """How much is trained, and what the other view is."""

    #: A key of ``_TASKS``.
    view: str
    #: Size of the shift, in pixel units.
    size: float
    #: Training and validation images, of each domain.
    count: int
    epochs: int
    batch_size: int
    lr: float
    seeds: int
    #: λ that each penalty is tried with; plain augmentation is tried as often, with
    #: as many shares of the other view in the cross-entropy.
    weights: tuple[float, ...]


_setting: Final = partial(
    PairingSetting, dataset="digits", size=0.3, count=400, batch_size=50, epochs=25,
    lr=0.003, seeds=5, weights=(0.01, 0.1, 1.0),
)  # fmt: skip
_heads_setting: Final = partial(_setting, view="heads", size=0.0, lr=0.001)
_quick: Final = partial(_setting, count=200, epochs=5, seeds=2, weights=(0.1, 1.0))

SETTINGS: Final = {
    "full": (
        _setting(view="noise", seeds=6, weights=(0.03, 0.1, 0.3, 1.0, 3.0)),
        _setting(view="attack", size=0.1),
        _setting(view="domains", dataset="mnist", size=0.0, count=600, epochs=6),
        _setting(view="photographs", dataset="cifar10", size=0.1, count=1500, epochs=5),
    ),
    "quick": (_quick(view="noise"), _quick(view="attack", size=0.1)),
    # Linear heads on the features that a network computes from PACS.
    "full heads": (_heads_setting(dataset="pacs", epochs=12),),
    "quick heads": (_heads_setting(count=100, epochs=3, seeds=2, weights=(0.1,)),),
}

#: Images and shifted images of one network, with their labels.
Pair = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """One training to be done: all that the methods share."""

    model: nn.Module
    domains: list[Dataset]
    shift: Any
    #: Given the trained network: "validation", "trained" and "unseen".
    pairs: Callable[[nn.Module], dict[str, Pair]]


def parts(run: Run[PairingSetting]) -> Iterator[tuple[int, str]]:
    """Seeds, with each method."""
    return product(range(run.seed, run.seed + run.setting.seeds), (PLAIN, *METHODS))


def measure(run: Run[PairingSetting], seed: int, method: str) -> Iterator[Row]:
    """Train with each penalty and weight, and measure under two shifts.

    One row for each training: ``view`` (the setting), ``method``, ``weight`` (λ; of
    plain augmentation, the share of the other view in the cross-entropy), ``seed``,
    ``validation`` (accuracy on shifted validation images), ``clean`` accuracy, and
    ``trained`` and ``unseen`` accuracy, ``_pa`` and ``_same`` (same-answer rate) under
    the shift of training and under another one.

    In the study ``pairing_heads``, linear heads are trained on photographs and art and
    measured on cartoons; three kinds of digits take the place of these domains in the
    quick profile. Chapter 38.
    """
    setting = run.setting
    for place, weight in enumerate(setting.weights):
        task = _TASKS[setting.view](setting, seed)
        augmentation = Pairing(weight=0.0, shift=task.shift)
        if method == PLAIN:
            weight = (place + 1) / (len(setting.weights) + 1)
            stages = {replace(augmentation, share=weight): setting.epochs}
        else:
            penalty, late = METHODS[method]
            first = round(late * setting.epochs)
            paired = Pairing(penalty, weight=weight, shift=task.shift)
            stages = {augmentation: first, paired: setting.epochs - first}
        for stage, (learner, epochs) in enumerate(stages.items()):
            if epochs:
                train_domains(
                    task.model,
                    learner,
                    task.domains,
                    epochs=epochs,
                    lr=setting.lr,
                    seed=seed + 1000 * stage,
                    batch_size=setting.batch_size,
                    device=run.device,
                    progress=False,
                )
        keys = {"view": setting.view, "method": method, "seed": seed}
        yield {**keys, "weight": weight, **_scores(task.model, task.pairs)}


def _scores(model: nn.Module, pairs: Callable[[nn.Module], dict[str, Pair]]) -> Row:
    row: Row = {}
    for name, (images, shifted, labels) in pairs(model).items():
        clean, moved = logits_of(model, images), logits_of(model, shifted)
        row[name] = accuracy(moved, labels)
        if name != "validation":
            result = posterior_agreement(clean, moved)
            row["clean"] = accuracy(clean, labels)
            row |= {f"{name}_pa": result.pa, f"{name}_same": 1 - result.mismatch}
    return row


# ------------------------------------------------------------------------ the tasks


def _of_one_domain(setting: PairingSetting, seed: int) -> Task:
    def noisy(images: Tensor) -> Tensor:
        draws = torch.Generator().manual_seed(seed)
        return add_gaussian_noise(images, 0.3, generator=draws)

    def shift(_: nn.Module, images: Tensor, __: Tensor, draws: Any) -> Tensor:
        return add_gaussian_noise(images, setting.size, generator=draws)

    view: Any = shift
    model = small_network(64, 10, hidden=64, seed=seed)
    unseen: Any = partial(corrupt, kind="elastic_transform", seed=seed)
    if setting.view == "attack":
        view, unseen = AttackedView(eps=setting.size, steps=5), noisy
    elif setting.view == "photographs":
        options = {"width": 8, "norm": "group"}
        model = build_model("strided-cnn", seed=seed, options=options)
        unseen = partial(corrupt, kind="defocus_blur")
    split = "test1000" if "cifar" in setting.dataset else "test"
    train, test = (_loaded(setting.dataset, part) for part in ("train", split))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    train_set, held = (
        train.subset(order[k * setting.count :][: setting.count]) for k in (0, 1)
    )

    def pairs(trained: nn.Module) -> dict[str, Pair]:
        views, device = {}, next(trained.parameters()).device
        sets = {"validation": held, "trained": test}
        for place, (name, data) in enumerate(sets.items()):
            draws = torch.Generator().manual_seed(1000 * (place + 1) + seed)
            batch = (part[None].to(device) for part in (data.images, data.labels))
            moved = view(trained, *batch, draws)[0]
            views[name] = data.images, moved.detach().cpu(), data.labels
        return {**views, "unseen": (test.images, unseen(test.images), test.labels)}

    return Task(model, [train_set], view, pairs)


def _domains(setting: PairingSetting, seed: int) -> Task:
    """Two hues; another one is not seen in training."""
    setup = SELECTION_HUE
    red, blue = setup.training
    draw = partial(draw_all, shapes=setup.shapes, source=setting.dataset, seed=seed)
    train = draw((red, blue), count=setting.count)
    validation = draw(
        (red, blue), count=min(setting.count, 600), split="validation", paired=True
    )
    test = draw((red, blue, setup.tests[1]), count=1000, split="test", paired=True)
    first, second, third = (env.dataset(size=24) for env in test)
    options = {"width": 8, "num_classes": len(setup.shapes), "norm": "group"}

    def pairs(_: nn.Module) -> dict[str, Pair]:
        left, right = (env.dataset(size=24) for env in validation)
        return {
            "validation": (left.images, right.images, left.labels),
            "trained": (first.images, second.images, first.labels),
            "unseen": (first.images, third.images, first.labels),
        }

    model = build_model("strided-cnn", seed=seed, options=options)
    return Task(model, [env.dataset(size=24) for env in train], OtherDomain(), pairs)


@cache
def _feature_domains(name: str) -> tuple[Dataset, ...]:
    """Two sources and the domain that is never seen, as features (n, D, 1, 1)."""
    if name == "pacs":
        seen = [
            pacs_features(domain) for domain in ("photo", "art_painting", "cartoon")
        ]
        return tuple(
            Dataset(x[:, :, None, None], y, name, "features", 7) for x, y in seen
        )
    data = load_dataset(name, "train")
    images = data.images, 1 - data.images, data.images.mT
    return tuple(
        Dataset(x.flatten(1)[:, :, None, None], data.labels, name, "features", 10)
        for x in images
    )


def _heads(setting: PairingSetting, seed: int) -> Task:
    draws = torch.Generator().manual_seed(seed)
    parts = []
    for data in _feature_domains(setting.dataset):
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


_TASKS: Final = {
    "domains": _domains,
    "heads": _heads,
    **dict.fromkeys(("noise", "attack", "photographs"), _of_one_domain),
}


@cache
def _loaded(name: str, split: str) -> Dataset:
    return load_dataset(name, split)
