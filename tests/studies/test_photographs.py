"""Leave one domain out: what is trained on, what is paired, what is scored."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from robustbook.studies.domains import photographs as study
from robustbook.studies.domains.photographs import PAIRINGS, SETTINGS, Samples

QUICK = replace(
    SETTINGS["quick"][0], epochs=1, learners=("ERM",), heads=(("hidden", 1e-2),)
)


@pytest.fixture(scope="module")
def domains():
    return study.world_domains(QUICK)


def test_a_head_sees_nothing_of_the_domain_that_is_left_out(domains):
    changed = domains | {
        "bold": Samples(torch.rand_like(domains["bold"].features), *domains["bold"][1:])
    }
    one, other = (
        list(study._measured(QUICK, some, None, "bold", 3))
        for some in (domains, changed)
    )
    columns = ["accuracy", *(f"pa/{name}" for name in PAIRINGS)]
    first, second = ([r for r in rows if r["what"] == "epoch"] for rows in (one, other))
    assert len(first) == 1
    assert [first[0][c] for c in columns] == [second[0][c] for c in columns]
    assert first[0]["test"] != second[0]["test"]
    assert one[:4] == other[:4]  # the pairs


def test_pairs_join_two_source_domains_within_the_class(domains):
    parts = {name: samples.take(range(50)) for name, samples in domains.items()}
    pairs = study._source_pairs(parts, seed=0)
    labels = torch.cat([part.labels for part in parts.values()]).numpy()
    for name in PAIRINGS:
        one, two = pairs[name]
        assert (labels[one] == labels[two]).all()
        # Three domains: each is first once, and second once.
        assert set(zip(one // 50, two // 50, strict=True)) == {(0, 1), (1, 2), (2, 0)}
        if name != "nearest":
            assert len(np.unique(two)) == len(two)
    two = study._source_pairs(dict(list(parts.items())[:2]), seed=0)
    assert set(two["label"][0] // 50) == {0}  # not the same pair twice


def test_rows_are_whole_and_obey_what_is_proved(photographs):
    setting = SETTINGS["quick"][0]
    epochs = photographs.select(what="epoch")
    trainings = 3 * setting.seeds * len(setting.heads) * len(setting.learners)
    assert len(epochs) == trainings * setting.epochs
    assert len(photographs.select(what="shift")) == 4 * trainings
    for row in epochs:
        assert row["worst"] <= row["test"]
        for name in PAIRINGS:
            assert 0 <= row[f"pa/{name}"] <= math.log(10)
    for row in photographs.select(what="pairs"):
        assert row["partners"] <= row["pairs"]
        assert (row["pairing"] != "nearest") <= (row["most"] == 1)
        # No pairing one to one is nearer than the best, none farther than chance.
        if row["pairing"] == "assignment":
            assert row["distance"] < 1
