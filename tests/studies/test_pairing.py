"""The study of training for agreement: the same budget and tuning for all."""

from collections import Counter

import pytest

from robustbook.studies.pairing import METHODS, PLAIN, SETTINGS


def test_every_method_is_tried_as_often_in_each_setting(pairing):
    tries = Counter((row["view"], row["method"]) for row in pairing.rows)
    assert {method for _, method in tries} == {PLAIN, *METHODS}
    for setting in SETTINGS["quick"]:
        each = {n for (view, _), n in tries.items() if view == setting.view}
        assert each == {setting.seeds * len(setting.weights)}


def test_there_are_at_least_five_seeds_and_a_task_for_each_view():
    assert min(setting.seeds for setting in SETTINGS["full"]) >= 5
    views = [setting.view for setting in SETTINGS["full"]]
    assert views == ["noise", "attack", "domains", "photographs"]


def test_the_shares_of_augmentation_are_spread_evenly(pairing):
    shares = {row["weight"] for row in pairing.select(method=PLAIN)}
    assert sorted(shares) == pytest.approx([1 / 3, 2 / 3])
