"""The experiment of chapter 16: what the picture says, and trainings that go on."""

import itertools
import math

import numpy as np
import pytest

from robustbook.studies import STUDIES
from robustbook.studies._run import Run
from robustbook.studies.domains import _training
from robustbook.studies.domains._pictures import SETUPS
from robustbook.studies.domains._watched import WATCHED_LEARNERS, watch_training
from robustbook.studies.domains.components import (
    picture_numbers,
    principal_component,
    shares_of_variance,
)
from robustbook.studies.domains.domain_bias import SETTINGS

(PLAN,) = SETTINGS["quick"]
RUN = Run("test", "quick", 0, "cpu", (PLAN,))


@pytest.fixture
def features():
    """Forty pairs in five dimensions, their classes, and a direction to read."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 2
    first = generator.normal(size=(40, 5)) @ np.diag([5.0, 2.0, 1.0, 1.0, 0.5])
    first[:, 0] += 6.0 * labels
    second = first + 0.3 * generator.normal(size=(40, 5))
    return first, second, labels, generator.normal(size=6)


def test_rows_are_complete(domain_bias):
    trainings = set(itertools.product(SETUPS, WATCHED_LEARNERS, (0, 1)))
    shown = {0: {1, 2, 5, PLAN.epochs}, 1: {5, PLAN.epochs}}
    for what in ("epoch", "picture"):
        found = [
            (row["setup"], row["learner"], row["training_seed"], row["epoch"])
            for row in domain_bias.select(what=what)
        ]
        wanted = [
            (*one, epoch)
            for one in trainings
            for epoch in range(1, PLAN.epochs + 1)
            if what == "epoch" or epoch in shown[one[2]]
        ]
        assert sorted(found) == sorted(wanted)


def test_numbers_fit_together(domain_bias):
    for row in domain_bias.select(what="epoch"):
        assert row["error"] == pytest.approx(2 * (1 - row["correlation"]), abs=1e-6)
        for what in ("features", "read"):
            shares = [v for key, v in row.items() if key.startswith(f"{what}_")]
            assert len(shares) == 5
            assert sum(shares) == pytest.approx(1, abs=1e-6)
        for name in ("first", "second"):
            assert 0 <= row[f"class_{name}"] <= 1
            assert row[f"next_{name}"] <= row[f"share_{name}"]
            assert row[f"next_{name}"] + row[f"share_{name}"] <= 1 + 1e-6
        assert 0 <= row["alignment"] <= 1 + 1e-6
        assert 0 <= row["pa"] <= row["same_answer_rate"] * math.log(2) + 1e-6


def test_pictures_are_what_the_numbers_are_of(domain_bias):
    keys = ("setup", "learner", "training_seed", "epoch")
    names = [f"{part}{end}" for part in ("", "common_", "margin_")
             for end in ("first", "second")]  # fmt: skip
    for row in domain_bias.select(what="picture"):
        epoch = domain_bias.row(what="epoch", **{key: row[key] for key in keys})
        x, y, common_x, common_y, *margins = np.array(
            [[float(number) for number in row[name].split()] for name in names]
        )
        assert len(row["labels"]) == len(x) == len(y) == 96
        assert np.corrcoef(x, y)[0, 1] == pytest.approx(epoch["correlation"], abs=0.01)
        # In quick these are all validation pairs: each pair is as it was scored.
        agree = float((np.sign(margins[0]) == np.sign(margins[1])).mean())
        assert agree == pytest.approx(epoch["same_answer_rate"], abs=0.011)
        right = (np.array(margins) > 0) == (np.array(list(row["labels"])) == "1")
        assert right.mean() == pytest.approx(epoch["accuracy"], abs=0.011)
        raw = float(((common_x - common_y) ** 2).mean())
        assert raw == pytest.approx(epoch["raw_error"], abs=0.01)


def test_component_is_that_of_scikit_learn(features):
    from sklearn.decomposition import PCA

    first, _, labels, _ = features
    mine = principal_component(first, labels)
    other = PCA(n_components=2).fit(first)
    assert abs(mine.direction @ other.components_[0]) == pytest.approx(1)
    assert (mine.share, mine.next_share) == pytest.approx(
        tuple(other.explained_variance_ratio_)
    )
    assert mine.values[labels == 1].mean() > mine.values[labels == 0].mean()
    assert principal_component(np.ones((4, 3)), np.array([0, 0, 1, 1])) is None


def test_the_picture_sees_no_rotation_step_or_scale(features):
    """The second sample may be moved far away, and the picture stays."""
    first, second, labels, head = features
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))
    moved = 3.0 * second @ turn + 100.0
    before = picture_numbers(first, second, labels, head)
    after = picture_numbers(first, moved, labels, head)
    for name in ("correlation", "error", "class_second", "share_second"):
        assert after[name] == pytest.approx(before[name])
    assert after["alignment"] < before["alignment"] - 0.1
    assert after["features_domain"] > 0.9 > before["features_domain"] + 0.8
    assert after["raw_error"] > 2 > before["raw_error"] + 1


def test_signs_matter(features):
    first, _, labels, head = features
    direction = principal_component(first, labels).direction
    assert np.abs(direction).argmax() == 0
    for signs in (-np.ones(5), np.array([-1.0, 1, 1, 1, 1])):
        # Oriented by the classes, a mirrored sample gives the same picture.
        numbers = picture_numbers(first, first * signs, labels, head)
        assert numbers["correlation"] == pytest.approx(1)
        # Its largest loading turns over, the scores stay.
        assert numbers["flipped_by_loading"] == 1
        assert numbers["flipped_by_score"] == 0


def test_shares_of_variance_find_what_was_put_in():
    generator = np.random.default_rng(2)
    labels = np.arange(60) % 2
    base = np.zeros((60, 3))
    parts = {
        "class": (labels[:, None] * [2.0, 0, 0], labels[:, None] * [2.0, 0, 0]),
        "domain": (base, base + np.array([0, 1.0, 0])),
        "domain_by_class": (
            base + (2 * labels[:, None] - 1) * [0, 0, 1.0],
            base - (2 * labels[:, None] - 1) * [0, 0, 1.0],
        ),
    }
    for name, pair in parts.items():
        assert shares_of_variance(*pair, labels)[name] == pytest.approx(1)
    found = shares_of_variance(*generator.normal(size=(2, 60, 3)), labels)
    assert sum(found.values()) == pytest.approx(1)
    assert found["digit"] > 0.3
    assert found["domain_by_digit"] > 0.3
    assert shares_of_variance(base, base, labels) == {}


def test_features_that_do_not_vary_have_no_picture(features):
    first, _, labels, head = features
    numbers = picture_numbers(first, np.ones_like(first), labels, head)
    assert "correlation" not in numbers
    assert "share_second" not in numbers
    assert numbers["share_first"] > 0
    assert picture_numbers(first * 0, first * 0, labels, head) == {}


def test_nothing_is_trained_twice(domain_bias, refuse, monkeypatch):
    monkeypatch.setattr(_training, "train_domains", refuse)
    again = STUDIES["domain_bias"].compute(profile="quick", device="cpu")
    assert again.rows == domain_bias.rows
    assert again.provenance["from_cache"]["files"] == again.provenance["units"]
    # The time is that of the trainings, not of reading them.
    assert again.provenance["seconds"] >= again.provenance["from_cache"]["seconds"] > 1


def test_a_stopped_training_goes_on(domain_bias, tmp_path, monkeypatch, stopped_at):
    """Stopped after its third epoch, it ends with the same features."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    measured = stopped_at(4)

    def run():
        return watch_training(RUN, "printed", "IRM", 1)

    with pytest.raises(KeyboardInterrupt):
        run()
    (left,) = (tmp_path / "domains").iterdir()
    assert left.suffix == ".pt"
    watched = run()
    assert len(measured) == PLAN.epochs + 1
    wanted = domain_bias.select(
        what="epoch", setup="printed", learner="IRM", training_seed=1
    )
    for row, features, head in zip(
        wanted, watched.features, watched.heads, strict=True
    ):
        numbers = picture_numbers(features[0], features[1], watched.labels, head)
        assert numbers["correlation"] == pytest.approx(row["correlation"], abs=1e-7)
