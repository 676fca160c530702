"""The study of the fifteen corruptions: its quick rows against direct computation."""

import numpy as np
import pytest

from robustbook.corruptions import (
    ALEXNET,
    CORRUPTIONS,
    FAMILIES,
    corrupt,
    mean_corruption_error,
)
from robustbook.models import load_model, logits_of
from robustbook.studies import STUDIES
from robustbook.studies.lenses.standard_corruptions import SETTINGS

from ..conftest import SEED

(SETTING,) = SETTINGS["quick"]
NETWORK = "digits-cnn-noise-s0"


def test_errors_are_those_of_each_corruption(standard_corruptions):
    errors = standard_corruptions.frame(what="error")
    assert not errors.duplicated(["network", "kind"]).any()
    assert len(errors) == len(SETTING.models) * (1 + len(CORRUPTIONS))
    data, model = SETTING.data(), load_model(NETWORK)
    for kind in ("contrast", "fog"):
        row = standard_corruptions.row(what="error", network=NETWORK, kind=kind)
        for severity in (1, 5):
            images = corrupt(data.images, kind, severity=severity, seed=SEED)
            wrong = logits_of(model, images).argmax(1) != data.labels
            expected = float(wrong.double().mean())
            assert row[f"error_{severity}"] == pytest.approx(expected, abs=1e-4)


def test_networks_have_the_means_of_their_errors(standard_corruptions):
    for row in standard_corruptions.select(what="network"):
        rows = standard_corruptions.select(what="error", network=row["network"])
        errors = {r["kind"]: r["error"] for r in rows}
        clean = errors.pop("clean")
        assert row["clean"] == clean
        mce = mean_corruption_error(errors)
        assert row["mce"] == pytest.approx(mce, abs=2e-4)
        for family, kinds in FAMILIES.items():
            mean = np.mean([errors[kind] for kind in kinds])
            assert row[family] == pytest.approx(mean, abs=2e-4)
            assert row[f"{family}_low"] <= row[family] <= row[f"{family}_high"]
        # A bootstrap of a mean over images: as wide as its standard error says.
        width = row["clean_high"] - row["clean_low"]
        error = np.sqrt(clean * (1 - clean) / SETTING.samples)
        assert width == pytest.approx(2 * 1.96 * error, rel=0.35, abs=0.01)


def test_only_pictures_of_imagenet_have_a_baseline():
    settings = {
        s.dataset: s.baseline for s in STUDIES["standard_corruptions"].settings("full")
    }
    assert settings == {"digits": None, "cifar10": None, "imagenet-nips2017": ALEXNET}
