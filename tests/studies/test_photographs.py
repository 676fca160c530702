"""Leave one domain out: what is trained on, what is paired, what is scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from robustbook.agreement import pair_by_label, pair_optimal, posterior_agreement
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model
from robustbook.studies import STUDIES
from robustbook.studies.domains import photographs as study
from robustbook.studies.domains._canonical import pair_canonical
from robustbook.studies.domains.photographs import PAIRINGS, SETTINGS, Samples
from robustbook.training import ERM, LISA, train_domains

from ..conftest import SEED

QUICK = replace(
    SETTINGS["quick"][0], epochs=1, learners=("ERM",), heads=(("hidden", 1e-2),)
)


@pytest.fixture(scope="module")
def domains():
    return study.world_domains(QUICK.world)


def test_a_head_sees_nothing_of_the_domain_that_is_left_out(domains):
    changed = domains | {
        "bold": Samples(torch.rand_like(domains["bold"].features), *domains["bold"][1:])
    }
    one, other = (
        list(study.left_out(QUICK, some, some, "bold", 3))
        for some in (domains, changed)
    )
    columns = ["accuracy", *(f"pa/{name}" for name in PAIRINGS)]
    first, second = ([r for r in rows if r["what"] == "epoch"] for rows in (one, other))
    assert len(first) == 1
    assert [first[0][c] for c in columns] == [second[0][c] for c in columns]
    assert first[0]["test"] != second[0]["test"]
    assert one[:4] == other[:4]  # the pairs
    # Nor of the samples that it is validated on.
    random, changed = np.random.default_rng([3, 1]), dict(domains)
    for name, (features, labels) in domains.items():
        validated = random.permutation(len(labels))[: QUICK.validated]
        if name != "bold":
            changed[name] = Samples(features.clone(), labels)
            changed[name].features[validated] = torch.rand(features[validated].shape)
    row = list(study.left_out(QUICK, changed, changed, "bold", 3))[4]
    assert row["test"] == first[0]["test"]
    assert row["accuracy"] != first[0]["accuracy"]


def test_pairs_join_two_source_domains_within_the_class(domains):
    parts = {name: samples.take(range(50)) for name, samples in domains.items()}
    pairs = study.source_pairs(parts, seed=0)
    labels = torch.cat([part.labels for part in parts.values()]).numpy()
    for name in PAIRINGS:
        one, two = pairs[name]
        assert (labels[one] == labels[two]).all()
        # Three domains: each is first once, and second once.
        assert set(zip(one // 50, two // 50, strict=True)) == {(0, 1), (1, 2), (2, 0)}
        if name != "nearest":
            assert len(np.unique(two)) == len(two)
    two = study.source_pairs(dict(list(parts.items())[:2]), seed=0)
    assert set(two["label"][0] // 50) == {0}  # not the same pair twice


def test_rows_are_whole_and_obey_what_is_proved(photographs):
    setting = SETTINGS["quick"][0]
    epochs = photographs.select(what="epoch")
    trainings = 3 * setting.seeds * len(setting.heads) * len(setting.learners)
    assert len(epochs) == trainings * setting.epochs
    assert len(photographs.select(what="shift")) == 4 * trainings
    assert all(row["worst"] <= row["test"] for row in epochs)
    for row in photographs.select(what="pairs"):
        assert (row["pairing"] != "nearest") <= (row["most"] == 1)
        # No pairing one to one is nearer than the best, none farther than chance.
        if row["pairing"] == "assignment":
            assert row["distance"] < 1


@pytest.mark.processor
def test_pixel_rows_are_those_of_trainings_by_hand(photographs_pixels):
    (setting,) = STUDIES["photographs_pixels"].settings("quick")
    data = load_dataset("digits", "train")
    images = F.interpolate(data.images, size=16, mode="bilinear", antialias=True)
    bold = F.max_pool2d(data.images, 3, stride=1, padding=1)
    bold = F.interpolate(bold, size=16, mode="bilinear", antialias=True)
    blurred = F.avg_pool2d(data.images, 3, stride=1, padding=1)
    blurred = F.interpolate(blurred, size=16, mode="bilinear", antialias=True)
    # The domain in the middle is left out; every domain has an order of its own.
    random = np.random.default_rng([SEED, 1])
    first, middle, last = (random.permutation(len(data)) for _ in range(3))
    sources = [
        Dataset(some[k], data.labels[k], "by hand", "train", 10)
        for some, k in ((images, first[60:660]), (blurred, last[60:660]))
    ]
    seen = torch.cat([images[first[:60]], blurred[last[:60]], bold[middle[:200]]])
    labels = data.labels[np.concatenate([first[:60], last[:60], middle[:200]])]
    one, two = pair_by_label(labels[:60], labels[60:120], seed=SEED)
    for name, learner in (("ERM", ERM()), ("CutMix", LISA(mix="cutmix"))):
        model = build_model(
            "strided-cnn",
            seed=SEED,
            options={"width": 8, "channels": 1, "num_classes": 10},
        )
        train_domains(model, learner, sources, epochs=3, lr=0.03, seed=SEED)
        with torch.no_grad():
            logits = model(seen)
        right = logits.argmax(1) == labels
        keys = {"target": "bold", "training_seed": SEED, "learner": name, "lr": 0.03}
        row = photographs_pixels.row(what="epoch", epoch=setting.epochs, **keys)
        there = [right[120:][labels[120:] == k].double().mean() for k in range(10)]
        by_hand = {
            "accuracy": right[:120].double().mean(),
            "test": right[120:].double().mean(),
            "worst": min(there),
            "pa/label": posterior_agreement(logits[one], logits[two + 60]).pa,
        }
        # Pictures that stand in other batches differ in the last bits of their logits.
        assert by_hand == pytest.approx({k: row[k] for k in by_hand}, abs=2e-4)
        # What is trained does learn: chance is a tenth.
        assert row["accuracy"] > 0.4


def test_each_picture_is_trained_on_as_it_is_and_mirrored():
    (setting,) = STUDIES["photographs_pixels"].settings("full")
    images, labels = torch.rand(4, 3, 2, 2), torch.tensor([0, 6, 2, 1])
    source = setting.source(Samples(images, labels))
    assert torch.equal(source.images[:4], images)
    assert torch.equal(source.images[4:, :, :, 0], images[:, :, :, 1])
    assert torch.equal(source.labels, labels.repeat(2))
    assert source.num_classes == 7


def test_lisa_mixes_as_often_as_its_rows_say(
    domains, photographs, photographs_mixing, monkeypatch
):
    # With one half it is the study of the heads, digit by digit.
    half = photographs_mixing.select(across=0.5)
    heads = photographs.select(what="epoch", learner="LISA", lr=1e-2)
    assert len(half) == len(heads) == len(photographs_mixing.rows) / 5
    for one, other in zip(half, heads, strict=True):
        shared = one.keys() - {"across"}
        assert {k: one[k] for k in shared} == {k: other[k] for k in shared}
    learners = []
    monkeypatch.setattr(study, "train_domains", lambda model, *given, **how: (
        learners.append(given[0]) or train_domains(model, *given, **how)
    ))  # fmt: skip
    mixed = replace(QUICK, learners=study.ACROSS)
    rows = [*study.left_out(mixed, domains, domains, "bold", 0)]
    across = [row["learner"] for row in rows if row["what"] == "epoch"]
    assert learners == [LISA(across_domains=share) for share in across]
    assert across == [0, 0.25, 0.5, 0.75, 1]


def test_canonical_pairs_look_past_what_only_one_domain_has():
    """A hidden position, told by rotated features beside a loud one of each domain."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 40)
    hidden = np.eye(4)[labels] + 0.1 * rng.normal(size=(160, 4))
    order = rng.permutation(160)
    mixing = rng.normal(size=(2, 4, 4))
    loud = 20 * rng.normal(size=(2, 160, 1))
    clean = np.hstack([hidden @ mixing[0], loud[0]])
    shifted = np.hstack([(hidden @ mixing[1])[order], loud[1]])
    given = {"labels": labels, "shifted_labels": labels[order]}
    index, partner = pair_canonical(*map(torch.tensor, (clean, shifted)), **given)
    assert (labels[index] == labels[order][partner]).all()
    assert len(set(partner.tolist())) == len(index) == 160

    def apart(pairs):
        return np.abs(hidden[pairs[0]] - hidden[order][pairs[1]]).mean()

    by_label = pair_by_label(labels, labels[order])
    assert apart((index, partner)) < 0.8 * apart(by_label)
    assert apart(pair_optimal(clean, shifted, **given)) > 0.9 * apart(by_label)
    classes = {"labels": labels[:150], "shifted_labels": labels[order]}
    fewer = pair_canonical(*map(torch.tensor, (clean[:150], shifted)), **classes)
    assert len(fewer[0]) == 150
