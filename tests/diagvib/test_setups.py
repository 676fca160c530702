"""The environments of the papers, against their tables as printed."""

import itertools

import pytest
import torch

from robustbook.datasets.diagvib import (
    CONFIGURED,
    DISCRIMINABILITY,
    OPPORTUNITIES,
    SELECTION_HUE,
    SELECTION_POSITION,
    Environment,
    co_occurrence,
    differences,
    draw_all,
    opportunities,
)

ABBREVIATED = {
    "CC": "center", "CR": "center right", "LC": "lower center", "LL": "lower left",
    "LR": "lower right", "UL": "upper left", "UR": "upper right",
}  # fmt: skip

#: PA thesis, Tables 4.6, 5.2 and C.3: hue, lightness, position, scale, texture.
PRINTED_TESTS = {
    "discriminability": """
        red dark CC normal blank
        blue dark CC normal blank
        blue bright CC normal blank
        blue bright LC normal blank
        blue bright LC large blank
        blue bright LC large tiles""",
    "selection-hue": """
        red dark CC large blank
        green dark CC large blank
        green bright CC large blank
        green bright CC large tiles
        green bright UL large tiles
        green bright UL small tiles""",
    "selection-position": """
        green dark UL large blank
        green dark CC large blank
        green dark CC small blank
        red dark CC small blank
        green bright CC small blank
        green bright CC small tiles""",
}
#: PA thesis, Tables 5.1 and C.5: training 0 and 1, then SD, ID, 1F-MD, 5F-MD beside
#: validation 0, then the two of OOD.
PRINTED_TRAINING = {
    "selection-hue": """
        red dark CC large blank
        blue dark CC large blank
        red dark CC large blank
        blue dark CC large blank
        magenta dark CC large blank
        green bright UL small tiles
        yellow dark CC large blank
        magenta dark CC large blank""",
    "selection-position": """
        green dark UL large blank
        green dark LR large blank
        green dark UL large blank
        green dark LR large blank
        green dark UR large blank
        red bright CC small tiles
        green dark UR large blank
        green dark LL large blank""",
}
SETUPS = {x.name: x for x in (DISCRIMINABILITY, SELECTION_HUE, SELECTION_POSITION)}


def read(table):
    rows = [line.split() for line in table.strip().splitlines()]
    return [
        Environment(hue, lightness, texture, ABBREVIATED[position], scale)
        for hue, lightness, position, scale, texture in rows
    ]


@pytest.mark.parametrize("name", SETUPS)
def test_the_environments_are_those_printed(name):
    setup = SETUPS[name]
    assert list(setup.tests) == read(PRINTED_TESTS[name])
    if name == "discriminability":  # training is on the first two
        assert setup.shapes == (4, 9)
        assert setup.training == setup.tests[:2]
        assert setup.validation == {"ID": setup.tests[:2]}
        return
    first, second, sd, id_, one, five, ood0, ood1 = read(PRINTED_TRAINING[name])
    assert setup.training == (first, second)
    assert setup.shapes == (1, 4, 7, 9)
    beside = {"SD": sd, "ID": id_, "1F-MD": one, "5F-MD": five}
    pairs = {name: (first, other) for name, other in beside.items()}
    assert setup.validation == pairs | {"OOD": (ood0, ood1)}


@pytest.mark.parametrize(
    "setup", [DISCRIMINABILITY, SELECTION_HUE, *CONFIGURED.values()]
)
def test_every_test_shifts_one_factor_more(setup):
    for number, test in enumerate(setup.tests):
        assert len(test.differs_from(setup.tests[0])) == number
    for before, after in itertools.pairwise(setup.tests):
        assert len(after.differs_from(before)) == 1


def test_the_printed_position_table_is_not_cumulative():
    first, *tests = SELECTION_POSITION.tests
    assert [len(test.differs_from(first)) for test in tests] == [1, 2, 3, 3, 4]


def found(first, second):
    changes = {}
    for one in differences(first, second):
        changes.setdefault(one.factor, {})[one.environment] = one.first, one.second
    return changes


def test_where_tables_and_configuration_disagree():
    assert found(SELECTION_HUE, CONFIGURED["selection-hue"]) == {}

    # "dark" and "bright" are drawn bright and brighter; "large" is drawn larger.
    first = found(DISCRIMINABILITY, CONFIGURED["discriminability"])
    lightness = first.pop("lightness")
    assert len(lightness) == 10  # every environment: 2 training, 2 validation, 6 tests
    assert set(lightness.values()) == {("dark", "bright"), ("bright", "brighter")}
    larger = dict.fromkeys(["test 4", "test 5"], ("large", "larger"))
    assert first == {"scale": larger}

    second = found(SELECTION_POSITION, CONFIGURED["selection-position"])
    assert second.pop("hue") == dict.fromkeys(["test 4", "test 5"], ("green", "red"))
    # The sources change places; what is called upper right is drawn lower left.
    places = second.pop("position")
    assert places["training 0"] == ("upper left", "lower right")
    assert places["validation 1F-MD 1"] == ("upper right", "lower left")
    assert places["validation OOD 0"] == ("upper right", "lower left")
    assert places["validation OOD 1"] == ("lower left", "upper right")
    assert second == {}


#: PA thesis, section C.2.2, rows 7, 4, 9.
PRINTED_OPPORTUNITIES = {
    "ZGO": ["XOO", "OXO", "OOX"],
    "1-CGO": ["XXO", "OXO", "OOX"],
    "2-CGO": ["XXO", "OXO", "XOX"],
}


def test_co_occurrence_is_that_printed_and_only_ever_grows():
    tables = {setting: co_occurrence(setting) for setting in OPPORTUNITIES}
    for setting, table in PRINTED_OPPORTUNITIES.items():
        expected = torch.tensor([[mark == "X" for mark in row] for row in table])
        assert torch.equal(tables[setting], expected)
    assert [int(table.sum()) for table in tables.values()] == [3, 4, 5, 6, 9]
    for before, after in itertools.pairwise(tables.values()):
        assert bool((after | ~before).all())
    three = tables[OPPORTUNITIES[3]]
    assert three.sum(0).tolist() == three.sum(1).tolist() == [2, 2, 2]


@pytest.mark.parametrize("factor", ["hue", "position"])
@pytest.mark.parametrize("setting", OPPORTUNITIES)
def test_the_level_gives_the_class_away_as_far_as_the_setting_says(setting, factor):
    setup = opportunities(setting, factor=factor)
    scenes = draw_all(setup.training, shapes=setup.shapes, count=900)
    levels = []
    for part in scenes:
        own = part.levels[factor]
        table = torch.bincount(9 * part.labels + own, minlength=27).view(3, 9)
        used = table[:, table.sum(0) > 0]
        assert used.shape[1] == 3
        # Digit by digit, the numbers of levels that it is seen with.
        assert (used > 0).sum(1).tolist() == co_occurrence(setting).sum(1).tolist()
        guess = used.amax(0).sum() / used.sum()
        expected = {"ZGO": 1.0, "ZSO": 1 / 3}.get(setting, float(guess))
        assert abs(float(guess) - expected) < 0.06
        levels.append(set(own.tolist()))
    assert not levels[0] & levels[1]


@pytest.mark.parametrize("factor", ["hue", "position"])
def test_novel_tests_hold_what_training_does_not(factor):
    for setting in OPPORTUNITIES[:-1]:
        setup = opportunities(setting, factor=factor)
        for digit in setup.shapes:
            seen = set().union(*(x.levels(factor, digit) for x in setup.training))
            assert set(setup.tests[0].levels(factor, digit)) == seen
            for test in setup.tests[1:]:
                assert not seen & set(test.levels(factor, digit))
                assert len(seen) + len(test.levels(factor, digit)) == 6
    everything = opportunities("ZSO", factor=factor)
    assert everything.tests[1] == everything.tests[0]


#: PA thesis, Table C.6.
PRINTED_C6 = {
    "hue": {
        "position": "CC CC CR CR CR CR",
        "scale": "large large large small small small",
    },
    "position": {
        "scale": "large large small small small small",
        "hue": "blue blue blue red red red",
    },
}
BOTH_C6 = {
    "lightness": "bright bright bright bright dark dark",
    "texture": "tiles tiles tiles tiles tiles wood",
}


@pytest.mark.parametrize("factor", ["hue", "position"])
def test_the_other_factors_are_those_of_table_c6(factor):
    tests = opportunities("1-CGO", factor=factor).tests
    for name, row in (PRINTED_C6[factor] | BOTH_C6).items():
        expected = [ABBREVIATED.get(level, level) for level in row.split()]
        assert [getattr(test, name) for test in tests] == expected


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="setting: expected one of ZGO"):
        opportunities("4-CGO")
    with pytest.raises(ValueError, match="factor: expected one of hue, position"):
        opportunities("ZGO", factor="scale")
