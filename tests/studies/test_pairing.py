"""The studies of training for agreement: their rows are those of trainings by hand."""

from collections import Counter

import pytest
import torch

from robustbook.agreement import pair_by_label, posterior_agreement
from robustbook.corruptions import corrupt
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import logits_of
from robustbook.studies.pairing import METHODS, PLAIN, SETTINGS
from robustbook.studies.run import small_network
from robustbook.training import (
    OtherDomain,
    Pairing,
    add_gaussian_noise,
    train_domains,
)

from ..conftest import SEED


def test_every_method_is_tried_as_often_in_each_setting(pairing):
    tries = Counter((row["view"], row["method"]) for row in pairing.rows)
    assert {method for _, method in tries} == {PLAIN, *METHODS}
    for setting in SETTINGS["quick"]:
        each = {n for (view, _), n in tries.items() if view == setting.view}
        assert each == {setting.seeds * len(setting.weights)}


def scores_by_hand(model, validation, trained, unseen):
    """What a row says of a network, from three triples of images, views and labels."""
    row = {}
    for name, (images, shifted, labels) in {
        "validation": validation,
        "trained": trained,
        "unseen": unseen,
    }.items():
        clean, moved = logits_of(model, images), logits_of(model, shifted)
        row[name] = (moved.argmax(1) == labels).double().mean()
        if name != "validation":
            row["clean"] = (clean.argmax(1) == labels).double().mean()
            row[f"{name}_pa"] = posterior_agreement(clean, moved).pa
            row[f"{name}_same"] = (clean.argmax(1) == moved.argmax(1)).double().mean()
    return row


def test_rows_under_noise_are_those_of_a_training_by_hand(pairing):
    train, test = (load_dataset("digits", split) for split in ("train", "test"))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED))
    held = train.subset(order[200:400])
    model = small_network(64, 10, hidden=64, seed=SEED)
    learner = Pairing(weight=0.0, noise_std=0.3, share=1 / 3)
    train_domains(
        model, learner, [train.subset(order[:200])], epochs=5, lr=0.003, seed=SEED,
        batch_size=50, progress=False,
    )  # fmt: skip

    def noisy(images, seed):
        draws = torch.Generator().manual_seed(seed + SEED)
        return add_gaussian_noise(images, 0.3, generator=draws)

    (row,) = pairing.select(view="noise", method=PLAIN, weight=1 / 3, seed=SEED)
    by_hand = scores_by_hand(
        model,
        (held.images, noisy(held.images, 1000), held.labels),
        (test.images, noisy(test.images, 2000), test.labels),
        (
            test.images,
            corrupt(test.images, "elastic_transform", seed=SEED),
            test.labels,
        ),
    )
    assert by_hand == pytest.approx({k: row[k] for k in by_hand}, abs=1e-3)


def test_rows_of_heads_are_those_of_a_training_by_hand(pairing_heads):
    data, draws = load_dataset("digits", "train"), torch.Generator().manual_seed(SEED)
    kinds = data.images, 1 - data.images, data.images.mT
    parts = []
    for images in kinds:
        order = torch.randperm(len(data), generator=draws)
        one = Dataset(
            images.flatten(1)[:, :, None, None], data.labels, "by hand", "train", 10
        )
        # To train on, to choose by, and to test on.
        parts.append([one.subset(order[:100]), one.subset(order[100:400])])
        parts[-1].append(one.subset(order[400:]))
    first, second, third = parts
    model = small_network(64, 10, hidden=0, seed=SEED)
    learner = Pairing(weight=0.0, shift=OtherDomain(), share=0.5)
    train_domains(
        model, learner, [first[0], second[0]], epochs=3, lr=0.001, seed=SEED,
        batch_size=50, progress=False,
    )  # fmt: skip

    def paired(one, other):
        left, right = pair_by_label(one.labels, other.labels, seed=SEED)
        return one.images[left], other.images[right], one.labels[left]

    (row,) = pairing_heads.select(method=PLAIN, seed=SEED)
    by_hand = scores_by_hand(
        model,
        paired(first[1], second[1]),
        paired(first[2], second[2]),
        paired(first[2], third[2]),
    )
    assert by_hand == pytest.approx({k: row[k] for k in by_hand}, abs=1e-3)
