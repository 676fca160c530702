"""Clean and shifted inputs that are not the same inputs, however they are paired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import torch
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch.nn import functional

from robustbook.agreement import pair_by_label, pair_nearest
from robustbook.datasets import Dataset, Sentences, load_dataset
from robustbook.datasets.photographs import PACS_DOMAINS
from robustbook.models import pacs_features
from robustbook.studies._label_free_cells import LEARNERS, Pairs, cell, watched
from robustbook.studies.domains._canonical import pair_canonical
from robustbook.studies.run import Row, small_network
from robustbook.text import (
    levenshtein_edits,
    sentence_features,
    train_sentence_classifier,
)

#: Columns of a cell that are known without the clean side.
_ONE_SIDED: Final = (
    "beta", "clean_accuracy", "clean_confidence", "confidence",
    "class_wise_confidence", "difference_of_confidences", "atc_maximum",
    "atc_entropy", "optimal_transport", "nuclear_norm", "matrix_norm",
    "mutual_information", "disagreement_bound", "accuracy",
)  # fmt: skip
_Pairing = tuple[Tensor, Tensor] | None


def digit_collections(target: str) -> dict[str, Dataset]:
    """Three collections of digits at 16 x 16, whichever is the target."""
    collections = {}
    for name in ("mnist", "usps", "digits"):
        data = load_dataset(name, "train").subset(slice(1200))
        options: dict[str, Any] = {"mode": "bilinear", "antialias": True}
        images = functional.interpolate(data.images, size=16, **options)
        collections[name] = Dataset(images, data.labels, name, "train", 10)
    return collections


def photographs(target: str) -> dict[str, Dataset]:
    """Features of PACS, scaled by the domains that are not the target."""
    domains = {name: pacs_features(name) for name in PACS_DOMAINS}
    every = torch.cat([x for name, (x, _) in domains.items() if name != target])
    mean, std = every.mean(0), every.std(0) + 1e-3
    return {
        name: Dataset(((x - mean) / std)[:, :, None, None], labels, name, "all", 7)
        for name, (x, labels) in domains.items()
    }


def pairings(
    tested: Tensor, clean: Tensor, labels: Tensor, truth: Tensor, seed: int
) -> dict[str, _Pairing]:
    """Positions of target samples and of their clean partners, by each way to pair.

    Only the nearest neighbor needs no labels of the target; pairs by label and by
    canonical correlation have the same class.
    """
    classes = {"labels": labels, "shifted_labels": truth}
    return {
        "by nearest": pair_nearest(tested, clean),
        "by label": pair_by_label(labels, truth, seed=seed),
        "by canonical": pair_canonical(tested, clean, **classes, seed=seed),
        "without pairs": None,
    }


def unlike_cells(
    z: Mapping[str, Tensor],
    labels: tuple[Tensor, Tensor],
    pairs: Mapping[str, _Pairing],
) -> Iterator[Row]:
    """Return a row for each pairing; `labels` are those of the source and the target.

    Without pairs, the scores that need the clean side are missing.
    """
    for group, pair in pairs.items():
        if pair is None:
            alone = Pairs(z["source"], labels[0], z["test"], z["test"], labels[1])
            row = cell(alone)
            row = {name: v for name, v in row.items() if name in _ONE_SIDED}
        else:
            moved, before = pair
            row = cell(
                Pairs(
                    z["source"],
                    labels[0],
                    z["clean"][before],
                    z["test"][moved],
                    labels[1][moved],
                )
            )
        yield {"group": group, **row}


def heads(
    domains: Mapping[str, Dataset],
    target: str,
    seed: int,
    epochs: tuple[int, ...],
    rates: tuple[float, ...],
) -> Iterator[Row]:
    """Choose learner, rate and epoch of linear heads for a collection never seen.

    Half of the validation samples, with labels, calibrate. The other half are the clean
    sides of the pairs.
    """
    random = torch.Generator().manual_seed(seed)
    train, held = [], []
    for name, data in domains.items():
        order = torch.randperm(len(data), generator=random)
        if name == target:
            tested = data.subset(order[:500])
            continue
        train.append(data.subset(order[:600]))
        held.append(data.subset(order[600:900]))
    images = torch.cat([part.images for part in held])
    labels = torch.cat([part.labels for part in held])
    half = torch.randperm(len(labels), generator=random).chunk(2)
    clean, truth = images[half[1]], labels[half[1]]
    tested_pixels, clean_pixels = tested.images.flatten(1), clean.flatten(1)
    pairs = pairings(tested_pixels, clean_pixels, tested.labels, truth, seed)
    views = {"source": images[half[0]], "clean": clean, "test": tested.images}
    both = labels[half[0]], tested.labels
    for learner, lr in product(LEARNERS, rates):
        size = tested_pixels.shape[1], tested.num_classes
        model = small_network(*size, hidden=0, seed=seed)
        for epoch, z in watched(model, learner, train, views, epochs, lr, seed):
            for row in unlike_cells(z, both, pairs):
                yield {"candidate": f"{learner} {lr} {epoch}", **row}


def readers(
    reviews: Mapping[str, Sentences],
    sentences: Sentences,
    seed: int,
    sizes: tuple[int, ...],
    count: int,
) -> Iterator[Row]:
    """Classifiers of reviews by their n-grams, on sentences of other reviews.

    They differ by the number of reviews that they are trained on. In the group "same
    text" the reviews themselves are cut or edited: those pairs show the same input.
    """
    every = reviews["test"]
    parts = {
        "source": every.texts[:count],
        "clean": every.texts[count : 2 * count],
        "test": sentences.texts[:count],
    }
    truth = every.labels[count : 2 * count]
    cut = tuple(" ".join(text.split()[:20]) for text in parts["clean"])
    edits = {f"{n} edits": levenshtein_edits(parts["clean"], n) for n in (64, 512)}
    changed = {"first 20 words": cut, **edits}
    features = {
        name: sentence_features(texts) for name, texts in {**parts, **changed}.items()
    }
    places = TruncatedSVD(50, random_state=0).fit(features["source"])
    tested = torch.from_numpy(places.transform(features["test"]))
    clean = torch.from_numpy(places.transform(features["clean"]))
    both = every.labels[:count], sentences.labels[:count]
    pairs = pairings(tested, clean, both[1], truth, seed)
    for size in sizes:
        train = reviews["train"]
        chosen = Sentences(
            train.texts[:size], train.labels[:size], train.name, train.split
        )
        model = train_sentence_classifier(chosen, reviews["validation"], seed=seed)
        z = {name: model.logits(part) for name, part in features.items()}
        network = {"candidate": f"n-grams of {size}-s{seed}"}
        for row in unlike_cells(z, both, pairs):
            yield {**network, "shift": "sentences", **row}
        for shift in changed:
            same = Pairs(z["source"], both[0], z["clean"], z[shift], truth)
            yield {**network, "shift": shift, "group": "same text", **cell(same)}
