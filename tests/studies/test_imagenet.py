"""Many classes under attack: what is attacked, and what the rows say of it."""

import math

import pytest
import torch
from torch import nn

from robustbook.models import load_model, logits_of
from robustbook.studies._run import Run
from robustbook.studies.adversarial import imagenet as study
from robustbook.studies.adversarial.imagenet import SETTINGS


def test_a_defended_network_is_attacked_through_its_surrogate(monkeypatch):
    run = Run("imagenet", "quick", 0, "cpu", SETTINGS["quick"])
    part, eps = run.data.subset(range(10)), run.setting.eps[0]
    aimed, found, attack = [], [], study.apgd

    def spy(aim, *given, **options):
        aimed.append(aim)
        found.append(attack(aim, *given, **options))
        return found[-1]

    monkeypatch.setattr(study, "apgd", spy)
    for name in run.setting.models:
        logits = torch.from_numpy(study._attacked(run, name, eps, part)["logits"])
        # What is measured is the network itself, on what the attack gave.
        images = found[-1].adversarial
        assert (images - part.images).abs().max() <= eps + 1e-6
        torch.testing.assert_close(logits, logits_of(load_model(name), images))
    assert type(aimed[0]) is type(load_model("digits-cnn-s0"))
    assert isinstance(aimed[1], nn.Sequential)
    assert type(aimed[1][0]).__name__ == "_JPEG"


def test_rows_begin_with_the_clean_pictures_and_attacks_take_away(imagenet):
    (setting,) = SETTINGS["quick"]
    for name in setting.models:
        rows = imagenet.select(what="attack", model=name)
        assert [row["eps"] for row in rows] == [0.0, *setting.eps]
        assert rows[0]["pa"] == pytest.approx(math.log(10))
        assert rows[0]["same"] == 1.0
        accuracies = [row["accuracy"] for row in rows]
        assert accuracies == sorted(accuracies, reverse=True)
        speed = imagenet.row(what="speed", model=name)
        assert speed["adam_beta"] == pytest.approx(speed["beta"], rel=0.01)
