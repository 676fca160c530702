"""Training on domains: every epoch measured, all that it takes checked."""

import math
from dataclasses import replace

import pytest
import torch

from robustbook.agreement import posterior_agreement
from robustbook.datasets import diagvib
from robustbook.models import features_of, logits_of
from robustbook.scores import accuracy, same_answer_rate
from robustbook.selection import pair_scores
from robustbook.training import (
    ERM,
    IRM,
    LISA,
    History,
    adversarial_loss,
    cross_entropy_loss,
)

#: Nothing is measured.
BARE = {"pairs": None, "tests": None, "measure": None}


def test_every_epoch_has_every_criterion(learn, data):
    model, history = learn(keep=["ID/pa", "ID/accuracy"])
    assert not model.training
    assert [row["epoch"] for row in history.rows] == [1, 2, 3, 4]
    first, second = data["pairs"]["ID"]
    logits, shifted = logits_of(model, first.images), logits_of(model, second.images)
    last = history.rows[-1]
    agreement = posterior_agreement(logits, shifted)
    assert last["ID/pa"] == pytest.approx(agreement.pa, abs=2e-6)
    assert last["ID/same_answer_rate"] == same_answer_rate(logits, shifted)
    sure = shifted.double().softmax(1).amax(1).mean()
    assert last["ID/confidence"] == pytest.approx(float(sure))
    mean = (accuracy(logits, first.labels) + accuracy(shifted, first.labels)) / 2
    assert last["ID/accuracy"] == pytest.approx(mean)
    test = data["tests"]["5"]
    assert last["test/5"] == accuracy(logits_of(model, test.images), test.labels)
    # A sample agrees with itself: all of log K, at infinite inverse temperature.
    assert last["SD/pa"] == pytest.approx(math.log(2))
    assert last["SD/beta"] == math.inf


def test_the_kept_weights_are_those_of_the_best_epoch(learn, data, network):
    _, history = learn(epochs=5, keep=["ID/pa", "test/5"])
    for criterion in ("ID/pa", "test/5"):
        best = history.best(criterion)
        kept = network()
        kept.load_state_dict(history.weights[criterion])
        pair = [logits_of(kept, part.images) for part in data["pairs"]["ID"]]
        scores = pair_scores(*pair, data["pairs"]["ID"][0].labels)
        assert scores["pa"] == pytest.approx(best["ID/pa"], abs=2e-6)
        test = data["tests"]["5"]
        found = accuracy(logits_of(kept, test.images), test.labels)
        assert found == pytest.approx(best["test/5"])


def test_what_is_watched_is_seen_after_each_epoch(learn, data):
    images = data["tests"]["5"].images[:4]
    watch = {"features": lambda model: features_of(model, images)}
    model, history = learn(watch=watch, epochs=3)
    seen = history.watched["features"]
    assert [tuple(features.shape) for features in seen] == [(4, 16)] * 3
    assert torch.equal(seen[-1], features_of(model, images))
    assert not torch.equal(seen[0], seen[1])


@pytest.mark.processor
@pytest.mark.parametrize("learner", [ERM(), IRM(), LISA(), LISA(mix="cutmix")])
def test_learners_learn_and_repeat_to_the_last_bit(learn, same_weights, learner):
    model, history = learn(learner=learner, epochs=6)
    again, repeated = learn(learner=learner, epochs=6)
    assert history.rows == repeated.rows
    assert same_weights(model, again)
    other, _ = learn(learner=learner, epochs=6, seed=1)
    assert not same_weights(model, other)
    assert history.rows[-1]["risk"] < history.rows[0]["risk"]


def test_learners_are_different_things(learn, same_weights, samples):
    model, _ = learn()
    for learner in (IRM(weight=10.0), LISA(), adversarial_loss(eps=0.1, steps=1)):
        assert not same_weights(model, learn(learner=learner)[0])
    # What is measured does not change what is learned, nor do bytes for floats.
    bare, history = learn(**BARE)
    assert set(history.rows[0]) == {"epoch", "loss", "risk"}
    of_bytes, _ = learn(domains=samples(dtype=torch.uint8), **BARE)
    pooled, _ = learn(learner=cross_entropy_loss, **BARE)
    assert all(same_weights(model, other) for other in (bare, of_bytes, pooled))


def test_a_small_domain_is_seen_as_often_as_a_large_one(learn, samples):
    large, other = samples()
    seen = []

    class Counting(type(ERM())):
        def loss(self, model, images, labels, **options):
            seen.append(images.shape[:2])
            return super().loss(model, images, labels, **options)

    domains = [large, other.subset(range(20))]
    learn(learner=Counting(), domains=domains, epochs=2, **BARE)
    assert seen == [(2, 16)] * 6


def test_scenes_instead_of_pictures_are_told(learn):
    scenes = diagvib.draw(diagvib.Environment(), shapes=(4, 9), count=8)
    with pytest.raises(TypeError, match=r"dataset\(\)"):
        learn(domains=[scenes, scenes])


def test_the_best_epoch_is_the_first_of_the_best():
    rows = [{"epoch": k, "x": v} for k, v in enumerate([0.2, 0.9, 0.9, 0.1], start=1)]
    history = History(rows=rows)
    assert history.best("x")["epoch"] == 2
    rows[1]["x"] = math.nan
    assert history.best("x")["epoch"] == 3
    rows.append({"epoch": 5, "x": math.inf})
    assert history.best("x")["epoch"] == 5
    with pytest.raises(ValueError, match="criterion: expected one of epoch, x"):
        history.best("y")
    with pytest.raises(ValueError, match="none: no epoch yet"):
        History().best("x")


# -------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": []}, "domains: expected at least one"),
        ({"optimizer": "lion"}, "optimizer: expected one of adam, sgd"),
        ({"precision": "half"}, "precision: expected one of auto, float32, bfl"),
        ({"epochs": 0}, "epochs: expected at least 1"),
        ({"lr": 0.0}, "lr: expected a positive"),
        ({"device": "tpu9"}, "device: expected 'auto'"),
        ({"keep": ["ID/beauty"]}, "criterion: expected one of epoch"),
    ],
)
def test_bad_arguments_are_named(learn, options, message):
    with pytest.raises(ValueError, match=message):
        learn(**options)


def test_pairs_must_be_pairs(learn, data):
    first, second = data["pairs"]["ID"]
    turned = replace(second, labels=second.labels.flip(0))
    with pytest.raises(ValueError, match="pairs: expected two samples of the same cl"):
        learn(pairs={"ID": (first, turned)})


def test_a_loss_that_explodes_is_reported(learn):
    with pytest.raises(FloatingPointError, match=r"in epoch \d of 4"):
        learn(lr=1e30, optimizer="sgd")


def test_sgd_and_mixed_precision_train_too(learn, same_weights):
    plain, _ = learn(optimizer="sgd")
    mixed, history = learn(precision="bfloat16")
    assert math.isfinite(history.rows[-1]["risk"])
    adam, _ = learn()
    assert not same_weights(plain, adam)
    assert not same_weights(mixed, adam)
    for value in mixed.state_dict().values():
        assert value.dtype in (torch.float32, torch.int64)
