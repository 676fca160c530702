"""The experiment of chapter 15: rows complete, trainings resumed, errors right."""

import json
import math

import pytest
import torch

from robustbook.studies import _domains, _trainings, domain_learners, run_experiment
from robustbook.studies.domains._data import DIGITS, LEARNERS, PLANS, SETUPS
from robustbook.studies.domains.domain_learners import RATIOS, clustered_error

PLAN = PLANS["quick"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def rows(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBUSTBOOK_CACHE", str(cache))
        return domain_learners.domain_learners(profile="quick", device="cpu")


def of(rows, what, **where):
    return [
        row
        for row in rows
        if row["what"] == what and all(row[k] == v for k, v in where.items())
    ]


def test_rows_are_complete(rows):
    trainings = {(s, name, k) for s in SETUPS for name in LEARNERS for k in range(2)}
    for what, keys in {
        "epoch": {(epoch,) for epoch in range(1, PLAN.epochs + 1)},
        "pair": {
            (digits, factors, ratio)
            for digits in DIGITS
            for factors in range(6)
            for ratio in (RATIOS if factors else (1.0,))
        },
        "selected": {()},
    }.items():
        names = {"epoch": ("epoch",), "pair": ("digits", "factors", "ratio")}
        found = [
            (
                (row["setup"], row["learner"], row["training_seed"]),
                tuple(row[name] for name in names.get(what, ())),
            )
            for row in of(rows, what)
        ]
        assert len(set(found)) == len(found)
        assert set(found) == {(one, key) for one in trainings for key in keys}


def test_the_selected_epoch_is_the_one_that_is_tested(rows):
    for row in of(rows, "selected"):
        where = {key: row[key] for key in ("setup", "learner", "training_seed")}
        epochs = of(rows, "epoch", **where)
        best = max(epoch["same/accuracy"] for epoch in epochs)
        ties = [epoch for epoch in epochs if epoch["same/accuracy"] == best]
        assert (row["epoch"], row["tied"]) == (ties[0]["epoch"], len(ties))


def test_differences_are_those_of_the_means(rows):
    found = of(rows, "difference")
    assert len(found) == len(SETUPS) * 3 * len(DIGITS) * 6
    for row in found:
        where = {key: row[key] for key in ("setup", "digits", "factors")}
        ours = of(rows, "pair", ratio=1.0, learner=row["learner"], **where)
        theirs = of(rows, "pair", ratio=1.0, learner=row["other"], **where)
        for name in ("pa", "afr_pred", "afr_true"):
            by_seed = [a[name] - b[name] for a, b in zip(ours, theirs, strict=True)]
            assert row[name] == pytest.approx(sum(by_seed) / 2, abs=1e-6)
            half = abs(by_seed[0] - by_seed[1]) / 2
            assert row[f"{name}_se_seeds"] == pytest.approx(half, abs=1e-6)
            assert row[f"{name}_se_images"] >= 0
        if (row["digits"], row["factors"]) == ("same", 0):
            assert row["pa"] == row["afr_pred"] == row["pa_se_images"] == 0


def test_scores_fit_together(rows):
    for row in of(rows, "pair"):
        most = math.log(2) - (1 - row["afr_pred"]) * math.log(2)
        assert -1e-9 <= row["pa"] <= most + 1e-9
        assert 0.5 <= row["confidence"] <= 1
        assert -1 <= row["cosine"] <= 1 + 1e-6
        if row["digits"] == "same" and row["factors"] == 0:
            assert row["first_accuracy"] == row["afr_true"]
        assert row["samples"] == PLAN.laps * row["digits_seen"]
        if row["digits"] == "same" and row["factors"] == 0:
            assert row["pa"] == pytest.approx(math.log(2))
            assert row["cosine"] == pytest.approx(1)


def test_learners_learn_the_domains_they_see(rows):
    for setup in SETUPS:
        for learner in LEARNERS:
            where = {"setup": setup, "learner": learner, "digits": "same", "ratio": 1.0}
            seen = [
                row["afr_true"]
                for k in (0, 1)
                for row in of(rows, "pair", factors=k, **where)
            ]
            assert sum(seen) / len(seen) > 0.75


def test_nothing_is_trained_twice(rows, cache, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(cache))
    monkeypatch.setattr(_trainings, "train_domains", refuse)
    again = run_experiment(
        "domain_learners", profile="quick", device="cpu", directory=tmp_path
    )
    assert list(again.rows) == rows
    text = (tmp_path / "domain_learners.json").read_text(encoding="utf-8")
    sums = json.loads(text)["provenance"]["data_sha256"]
    assert set(sums) == {"digits train", "digits test"}
    assert all(len(one) == 64 for one in sums.values())


def test_a_stopped_training_goes_on(rows, tmp_path, monkeypatch):
    """Stopped after its third epoch, it ends with the same logits."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    train, measured = _trainings.train_domains, []

    def stopped(*given, measure, **options):
        def count(*pair):
            measured.append(pair)
            if len(measured) == 3 * len(DIGITS) + 1:
                raise KeyboardInterrupt
            return measure(*pair)

        return train(*given, measure=count, **options)

    def run():
        return _domains.train_learner(
            "printed", "LISA", PLAN, training_seed=1, device="cpu"
        )

    monkeypatch.setattr(_trainings, "train_domains", stopped)
    with pytest.raises(KeyboardInterrupt):
        run()
    (left,) = (tmp_path / "domains").iterdir()
    assert left.suffix == ".pt"
    trained = run()
    assert len(measured) == (PLAN.epochs + 1) * len(DIGITS) - 1
    wanted = of(rows, "epoch", setup="printed", learner="LISA", training_seed=1)
    assert [row["same/pa"] for row in wanted] == [
        row["same/pa"] for row in trained.epochs
    ]
    (pair,) = of(
        rows, "pair", setup="printed", learner="LISA", training_seed=1,
        digits="other", factors=1, ratio=1.0,
    )  # fmt: skip
    right = trained.second["other"][1].argmax(1) == trained.labels["other"]
    assert pair["afr_true"] == float(right.double().mean())


def test_pairs_of_other_digits_share_none():
    held = _domains._held_out("printed", PLAN, 0)
    setup = SETUPS["printed"]
    environments = (setup.tests[0], *setup.tests)
    first, *others = _domains._drawn(setup, environments, "test", "other", PLAN, 0)
    digits = [
        {*zip(one.labels.tolist(), one.instances.tolist(), strict=True)}
        for one in (first, *others)
    ]
    assert not digits[0] & digits[1]
    assert all(one == digits[1] for one in digits[1:])
    assert len(held.clusters["other"].unique()) == len(digits[0])


def test_error_of_clusters():
    values = torch.randn(50, generator=torch.Generator().manual_seed(0))
    alone = clustered_error(values, torch.arange(50))
    assert alone == pytest.approx(float(values.double().std()) / math.sqrt(50))
    # Each sample seen twice says no more than seen once.
    twice = clustered_error(values.repeat(2), torch.arange(50).repeat(2))
    assert twice == pytest.approx(alone)
    assert math.isnan(clustered_error(values, torch.zeros(50, dtype=torch.int64)))
