"""The experiment of chapter 15: rows complete, trainings resumed, errors right."""

import math

import pytest

from robustbook.studies._run import Run
from robustbook.studies.domains import _pairs
from robustbook.studies.domains._pairs import DIGITS, LEARNERS, train_pair
from robustbook.studies.domains._pictures import SETUPS
from robustbook.studies.domains.domain_learners import RATIOS, SETTINGS

(PLAN,) = SETTINGS["quick"]
RUN = Run("test", "quick", 0, "cpu", (PLAN,))


def test_rows_are_complete(domain_learners):
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
            for row in domain_learners.select(what=what)
        ]
        assert len(set(found)) == len(found)
        assert set(found) == {(one, key) for one in trainings for key in keys}


def test_the_selected_epoch_is_the_one_that_is_tested(domain_learners):
    for row in domain_learners.select(what="selected"):
        where = {key: row[key] for key in ("setup", "learner", "training_seed")}
        epochs = domain_learners.select(what="epoch", **where)
        best = max(epoch["same/accuracy"] for epoch in epochs)
        ties = [epoch for epoch in epochs if epoch["same/accuracy"] == best]
        assert (row["epoch"], row["tied"]) == (ties[0]["epoch"], len(ties))


def test_differences_are_those_of_the_means(domain_learners):
    found = domain_learners.select(what="difference")
    assert len(found) == len(SETUPS) * 3 * len(DIGITS) * 6
    for row in found:
        where = {key: row[key] for key in ("setup", "digits", "factors")}
        ours = domain_learners.select(
            what="pair", ratio=1.0, learner=row["learner"], **where
        )
        theirs = domain_learners.select(
            what="pair", ratio=1.0, learner=row["other"], **where
        )
        for name in ("pa", "same_answer_rate", "shifted_accuracy"):
            by_seed = [a[name] - b[name] for a, b in zip(ours, theirs, strict=True)]
            assert row[name] == pytest.approx(sum(by_seed) / 2, abs=1e-6)
            half = abs(by_seed[0] - by_seed[1]) / 2
            assert row[f"{name}_se_seeds"] == pytest.approx(half, abs=1e-6)
            assert row[f"{name}_se_images"] >= 0
        if (row["digits"], row["factors"]) == ("same", 0):
            assert row["pa"] == row["same_answer_rate"] == row["pa_se_images"] == 0


def test_scores_fit_together(domain_learners):
    for row in domain_learners.select(what="pair"):
        most = math.log(2) - (1 - row["same_answer_rate"]) * math.log(2)
        assert -1e-9 <= row["pa"] <= most + 1e-9
        assert 0.5 <= row["confidence"] <= 1
        assert -1 <= row["cosine"] <= 1 + 1e-6
        if row["digits"] == "same" and row["factors"] == 0:
            assert row["first_accuracy"] == row["shifted_accuracy"]
        assert row["samples"] == PLAN.laps * row["digits_seen"]
        if row["digits"] == "same" and row["factors"] == 0:
            assert row["pa"] == pytest.approx(math.log(2))
            assert row["cosine"] == pytest.approx(1)


def test_learners_learn_the_domains_they_see(domain_learners):
    for setup in SETUPS:
        for learner in LEARNERS:
            where = {"setup": setup, "learner": learner, "digits": "same", "ratio": 1.0}
            seen = [
                row["shifted_accuracy"]
                for k in (0, 1)
                for row in domain_learners.select(what="pair", factors=k, **where)
            ]
            assert sum(seen) / len(seen) > 0.75


def test_a_stopped_training_goes_on(domain_learners, tmp_path, monkeypatch, stopped_at):
    """Stopped after its third epoch, it ends with the same logits."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    measured = stopped_at(3 * len(DIGITS) + 1)

    def run():
        return train_pair(RUN, "printed", "LISA", 1)

    with pytest.raises(KeyboardInterrupt):
        run()
    (left,) = (tmp_path / "domains").iterdir()
    assert left.suffix == ".pt"
    trained = run()
    assert len(measured) == (PLAN.epochs + 1) * len(DIGITS) - 1
    where = {"setup": "printed", "learner": "LISA", "training_seed": 1}
    wanted = domain_learners.select(what="epoch", **where)
    scores = [row["same/pa"] for row in trained.epochs]
    assert [row["same/pa"] for row in wanted] == scores
    where |= {"digits": "other", "factors": 1, "ratio": 1.0}
    pair = domain_learners.row(what="pair", **where)
    right = trained.second["other"][1].argmax(1) == trained.labels["other"]
    assert pair["shifted_accuracy"] == float(right.double().mean())


def test_pairs_of_other_digits_share_none():
    held = _pairs._held_out("printed", PLAN, 0)
    first, *others = _pairs._drawn("printed", "test", "other", PLAN, 0)
    digits = [
        {*zip(one.labels.tolist(), one.instances.tolist(), strict=True)}
        for one in (first, *others)
    ]
    assert not digits[0] & digits[1]
    assert all(one == digits[1] for one in digits[1:])
    assert len(held.clusters["other"].unique()) == len(digits[0])
