"""Leave one domain out: photographs and their like, and three collections of digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook.agreement import (
    pair_by_label,
    pair_nearest,
    pair_optimal,
    posterior_agreement,
)
from robustbook.datasets import Dataset, load_dataset
from robustbook.datasets.photographs import PACS_DOMAINS
from robustbook.models import pacs_features
from robustbook.scores import accuracy, same_answer_rate
from robustbook.studies.domains._canonical import pair_canonical
from robustbook.studies.run import Row, Run, Setting, decimals, small_network, with_keys
from robustbook.training import ERM, IRM, LISA, Learner, train_domains

PAIRINGS: Final = ("label", "nearest", "assignment", "canonical")
LEARNERS: Final[Mapping[str, Learner]] = {
    "ERM": ERM(),
    "IRM": IRM(weight=100.0, warmup_epochs=2),
    "LISA": LISA(),
    "IRM-1": IRM(),
    "CutMix": LISA(mix="cutmix"),
}
#: The domains of each world, and the worlds of which pictures are placed.
_DOMAINS: Final = {
    "PACS": PACS_DOMAINS,
    "digits": ("mnist", "usps", "digits"),
    "rehearsal": ("plain", "bold", "blurred"),
}
_FIRST: Final = ("PACS", "rehearsal")
#: Probabilities with which LISA mixes a batch across domains, instead of one half.
ACROSS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
#: The columns of their rows, of epochs and of pairs by label alone.
_MIXED: Final = (
    *("target", "training_seed", "head", "lr", "learner", "epoch"),
    *("accuracy", "test", "worst", "pa/label", "same/label"),
)
#: Units between the features and the logits: none, or a hidden layer.
_HIDDEN: Final = {"linear": 0, "hidden": 128}


@dataclass(frozen=True, kw_only=True)
class WorldSetting(Setting):
    """Domains of which one at a time is left out, and what is trained on the others."""

    world: str
    #: Samples of each source domain to train on, to validate on, and to test on.
    trained: int
    validated: int
    tested: int
    epochs: int
    seeds: int
    precision: str = "auto"
    #: Keys of `LEARNERS`, or probabilities of mixing across domains.
    learners: tuple[str | float, ...] = ("ERM", "IRM", "IRM-1", "LISA")
    #: Heads, each with rates of Adam.
    heads: tuple[tuple[str, float], ...] = (
        ("linear", 1e-2),
        ("linear", 1e-3),
        ("hidden", 1e-3),
    )

    def source(self, samples: Samples) -> Dataset:
        """Return the training set of a domain."""
        images, labels = samples.features[:, :, None, None], samples.labels
        return Dataset(images, labels, "features", "train", 1 + int(labels.max()))

    def network(self, head: str, source: Dataset, seed: int) -> nn.Module:
        """Return the network to train, with its initial weights."""
        size = source.images.shape[1], source.num_classes
        return small_network(*size, hidden=_HIDDEN[head], seed=seed)


_QUICK: Final = WorldSetting(
    world="rehearsal", dataset="digits", trained=200, validated=60, tested=200,
    epochs=3, seeds=2, learners=("ERM", "LISA"),
    heads=(("linear", 3e-2), ("linear", 1e-2)),
)  # fmt: skip
_PACS: Final = WorldSetting(
    world="PACS",
    dataset="pacs",
    trained=1200,
    validated=300,
    tested=1000,
    epochs=10,
    seeds=5,
)


def _mixed(setting: WorldSetting) -> tuple[Setting]:
    """Without the first head, which validation never chose."""
    return (replace(setting, learners=ACROSS, heads=setting.heads[1:]),)


SETTINGS: Final[dict[str, tuple[Setting, ...]]] = {
    "full": (
        _PACS,
        replace(_PACS, world="digits", dataset="usps", trained=1000),
        Setting(dataset="mnist"),
    ),
    "quick": (_QUICK,),
    "full mixing": _mixed(_PACS),
    "quick mixing": _mixed(_QUICK),
}


def parts(
    run: Run[Setting], *, mixing: bool = False
) -> Iterator[tuple[str, int, bool]]:
    """The domains of a world, unless for mixing; then each as target with each seed."""
    if isinstance(run.setting, WorldSetting):
        every = [*targets(run)] if mixing else [("", run.seed), *targets(run)]
        yield from ((target, seed, mixing) for target, seed in every)


def targets(run: Run[Any]) -> Iterator[tuple[str, int]]:
    """Each domain as target, with each seed."""
    setting = run.setting
    for seed, target in product(run.seeds(setting.seeds), _DOMAINS[setting.world]):
        yield target, seed


def measure(
    run: Run[WorldSetting], target: str, seed: int, mixing: bool
) -> Iterator[Row]:
    """Train heads on all domains but one, score every epoch, and test on that one.

    Worlds: "PACS", photographs, paintings, cartoons and sketches, as EfficientNet-Lite0
    sees them, which was trained on ImageNet (``pacs_features``); "digits", the
    pixels of MNIST, USPS and scikit-learn's digits at 16 x 16; in the quick profile
    "rehearsal", scikit-learn's digits in three inks.

    Rows of a ``world`` with ``what`` = "domain", how many ``samples`` there
    are and how many are ``tested`` if it is left out; "place", in the first
    world: ``x`` and ``y`` are two principal components, with ``domain`` and ``label``;
    "pairs", for each ``target`` left out, ``training_seed`` and ``pairing`` of
    :data:`PAIRINGS`: how many pairs of validation samples of different source domains
    there are, how many ``partners`` are different, how often the ``most`` used one is
    taken, and the mean ``distance`` in a pair over that of pairs by label; "epoch",
    for each ``learner``, ``head``, ``lr`` and ``epoch``: validation ``accuracy`` in the
    source domains and on the ``test`` samples of the target, ``worst`` class there, and
    for each pairing the posterior agreement ``pa/NAME``, and the same-answer rate
    ``same/label``; "shift", at the last epoch, ``pa`` with its standard error over
    pairs and ``same`` of pairs of a validation and a target sample.

    A seed draws the samples, the weights and the order. PA thesis, sections 3.6.3 and
    5.3; Li et al., ICCV 2017. Chapter 17.

    The study ``photographs_mixing`` trains heads by LISA with mixup, for several
    probabilities ``across`` of mixing across domains within the classes (else across
    classes within the domains; the thesis's p is that of the latter), and has the
    scores of each epoch alone. Its rows of ``across`` one half are those of "LISA"
    here. PA thesis, sections 3.5 and 4.3. The book's audit of domain shift.
    """
    setting = run.setting
    domains = world_domains(setting.world)
    if target:
        for row in left_out(setting, domains, domains, target, seed):
            if not mixing:
                yield row
            elif row["what"] == "epoch":
                yield {"across" if k == "learner" else k: row[k] for k in _MIXED}
        return
    world = {"world": setting.world}
    for name, samples in domains.items():
        size = len(samples.labels)
        tested = {"samples": size, "tested": min(size, setting.tested)}
        yield {"what": "domain", **world, "domain": name, **tested}
    if setting.world in _FIRST:
        yield from with_keys(world, _places(domains))


class Samples(NamedTuple):
    """Features (n, d) and classes (n,)."""

    features: Tensor
    labels: Tensor

    def take(self, index: Any) -> Samples:
        return Samples(self.features[index], self.labels[index])


@lru_cache(maxsize=1)
def world_domains(world: str) -> dict[str, Samples]:
    """Features and classes of each domain."""
    if world == "PACS":
        return {name: Samples(*pacs_features(name)) for name in PACS_DOMAINS}
    if world == "digits":
        parts = {"mnist": 5000, "usps": 5000, "digits": 1201}
        return {
            name: _pixels(load_dataset(name, "train").subset(slice(count)), 16)
            for name, count in parts.items()
        }
    data = load_dataset("digits", "train")
    inks = {
        "plain": data.images,
        "bold": F.max_pool2d(data.images, 3, stride=1, padding=1),
        "blurred": F.avg_pool2d(data.images, 3, stride=1, padding=1),
    }
    return {
        name: Samples(images.flatten(1), data.labels) for name, images in inks.items()
    }


def _pixels(data: Dataset, size: int) -> Samples:
    images = F.interpolate(data.images, size=size, mode="bilinear", antialias=True)
    return Samples(images.flatten(1), data.labels)


def _places(domains: Mapping[str, Samples]) -> Iterator[Row]:
    """The first two principal components of a few pictures of each class."""
    random = np.random.default_rng(0)
    shown = {}
    for name, samples in domains.items():
        chosen = [
            random.permutation(np.flatnonzero(samples.labels == label))[:15]
            for label in range(1 + int(samples.labels.max()))
        ]
        shown[name] = samples.take(np.concatenate(chosen))
    model = PCA(2, random_state=0).fit(torch.cat([s.features for s in shown.values()]))
    for name, samples in shown.items():
        for place, label in zip(
            model.transform(samples.features), samples.labels, strict=True
        ):
            x, y = (decimals(value, 3) for value in place)
            yield {"what": "place", "domain": name, "label": int(label), "x": x, "y": y}


def left_out(
    setting: WorldSetting,
    domains: Mapping[str, Samples],
    seen: Mapping[str, Samples],
    target: str,
    seed: int,
) -> Iterator[Row]:
    """Train each learner of a setting for a target and a seed, and score it.

    Pairs are found in the features of the domains, and networks see the others.
    """
    shared = {"world": setting.world, "target": target, "training_seed": seed}
    random = np.random.default_rng([seed, list(domains).index(target)])
    orders = {
        name: random.permutation(len(samples.labels))
        for name, samples in domains.items()
    }
    tested = orders.pop(target)[: setting.tested]
    held, train = {}, {}
    for name, order in orders.items():
        held[name], rest = order[: setting.validated], order[setting.validated :]
        train[name] = rest[: setting.trained]
    every = torch.cat([domains[name].features[k] for name, k in train.items()])
    mean, std = every.mean(0), every.std(0) + 1e-3
    scaled = {
        name: Samples((samples.features - mean) / std, samples.labels)
        for name, samples in domains.items()
    }
    validation = _taken(scaled, held)
    paired = _joined(validation)
    pairs = source_pairs(validation, seed)
    across = _paired(paired, scaled[target].take(tested), seed)
    for name, pair in pairs.items():
        partners, times = np.unique(pair[1], return_counts=True)
        yield {
            "what": "pairs",
            **shared,
            "pairing": name,
            "pairs": len(pair[0]),
            "partners": len(partners),
            "most": int(times.max()),
            "distance": decimals(
                _distance(paired, pair) / _distance(paired, pairs["label"]), 4
            ),
        }
    seen = scaled if seen is domains else seen
    validated, test = _joined(_taken(seen, held)), seen[target].take(tested)
    sources = [setting.source(samples) for samples in _taken(seen, train).values()]
    for (head, lr), learner in product(setting.heads, setting.learners):
        model = setting.network(head, sources[0], seed)
        history = train_domains(
            model,
            _learner(learner),
            sources,
            epochs=setting.epochs,
            lr=lr,
            seed=seed,
            precision=setting.precision,
            progress=False,
            watch={
                "own": lambda model: model(validated.features),
                "test": lambda model: model(test.features),
            },
        )
        keys = {**shared, "learner": learner, "head": head, "lr": lr}
        logits = (*zip(history.watched["own"], history.watched["test"], strict=True),)
        for epoch, (near, far) in enumerate(logits, start=1):
            scores = _scores(near, validated.labels, far, test.labels, pairs)
            yield {"what": "epoch", **keys, "epoch": epoch, **scores}
        for row in _shift(*logits[-1], across):
            yield {**row, **keys}


def _learner(named: str | float) -> Learner:
    return LEARNERS[named] if isinstance(named, str) else LISA(across_domains=named)


def _taken(
    domains: Mapping[str, Samples], index: Mapping[str, Any]
) -> dict[str, Samples]:
    return {name: domains[name].take(positions) for name, positions in index.items()}


def _scores(
    near: Tensor, labels: Tensor, far: Tensor, truth: Tensor, pairs: Mapping[str, Any]
) -> Row:
    """Scores of a model on its source domains, on the target, and by pairs."""
    classes = [
        accuracy(far[truth == k], truth[truth == k])
        for k in range(1 + int(truth.max()))
    ]
    row = {"accuracy": accuracy(near, labels), "test": accuracy(far, truth)}
    row["worst"] = min(classes)
    for name, (a, b) in pairs.items():
        row[f"pa/{name}"] = posterior_agreement(near[a], near[b], tol=1e-6).pa
    a, b = pairs["label"]
    row["same/label"] = same_answer_rate(near[a], near[b])
    return {name: decimals(value, 4) for name, value in row.items()}


def _shift(near: Tensor, far: Tensor, across: Mapping[str, Any]) -> Iterator[Row]:
    for name, (a, b) in across.items():
        result = posterior_agreement(near[a], far[b], tol=1e-6)
        yield {
            "what": "shift",
            "pairing": name,
            "pa": decimals(result.pa, 4),
            "pa_se": decimals(result.standard_error, 4),
            "same": decimals(same_answer_rate(near[a], far[b]), 4),
        }


def _paired(first: Samples, second: Samples, seed: int) -> dict[str, Any]:
    """Pairs within the classes of two collections, by each of `PAIRINGS`."""
    both = first.features, second.features
    labels = {"labels": first.labels, "shifted_labels": second.labels}
    pairs = {
        "label": pair_by_label(*labels.values(), seed=seed),
        "nearest": pair_nearest(*both, **labels),
        "assignment": pair_optimal(*both, **labels),
        "canonical": pair_canonical(*both, **labels, seed=seed),
    }
    return {name: [index.numpy() for index in pair] for name, pair in pairs.items()}


def source_pairs(validation: dict[str, Samples], seed: int) -> dict[str, Any]:
    """Positions in all validation samples: each domain is paired with the next one."""
    names = list(validation)
    sizes = [len(validation[name].labels) for name in names]
    starts = dict(zip(names, np.cumsum([0, *sizes[:-1]]), strict=True))
    # Two domains have one pair, not the same pair twice.
    rounds = list(zip(names, names[1:] + names[:1], strict=True))
    rounds = rounds[: 1 if len(names) == 2 else None]
    parts = [
        {
            name: [pair[0] + starts[a], pair[1] + starts[b]]
            for name, pair in _paired(validation[a], validation[b], seed).items()
        }
        for a, b in rounds
    ]
    return {
        name: [np.concatenate([part[name][side] for part in parts]) for side in (0, 1)]
        for name in PAIRINGS
    }


def _distance(samples: Samples, pair: Any) -> float:
    a, b = (samples.features[index] for index in pair)
    return float((a - b).norm(dim=1).mean())


def _joined(parts: Mapping[str, Samples]) -> Samples:
    """All samples, one domain after the other."""
    columns = zip(*parts.values(), strict=True)
    return Samples(*(torch.cat(column) for column in columns))
