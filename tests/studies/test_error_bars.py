"""What intervals cover: counted cells are those stored, drawn ones keep to them."""

from dataclasses import replace

import pytest

from robustbook.studies import error_bars
from robustbook.studies.results import read_results
from robustbook.studies.run import Run

#: No interval of these is promised to cover where nearly all are told apart.
UNMENDED = {"AUROC", "average precision"}


@pytest.fixture(scope="module")
def stored():
    keys = ["measure", "regime", "n"]
    return read_results("error_bars").frame().set_index(keys)


def test_counted_cells_are_the_stored_ones(quick, stored):
    rows = quick("error_bars").frame(error=0.0)
    rows = rows[rows.measure == "PA, hard answers"]
    assert len(rows) == 55
    for row in rows.itertuples():
        known = stored.loc[row.measure, row.regime, row.n]
        assert row.coverage == pytest.approx(known.coverage, abs=1e-9)
        assert row.before == pytest.approx(known.before, abs=1e-9)


def test_every_promise_is_kept(stored):
    promised = stored.drop(UNMENDED, level="measure")
    assert (promised.coverage + 3 * promised.error >= 0.93).all()
    assert (promised.before < 0.9).sum() > 40, "the usual ones do not"


@pytest.mark.ranges
@pytest.mark.parametrize(
    "family", ["soft answers", "comparisons", "rates", "consistency", "detection"]
)
def test_drawn_cells_cover_as_stored(family, stored):
    setting = replace(error_bars.SETTINGS["quick"][0], draws=100)
    rows = error_bars.measure(Run("error_bars", "quick", 77, "cpu", (setting,)), family)
    for row in rows:
        known = stored.loc[row["measure"], row["regime"], row["n"]]
        slack = 4 * (row["error"] + known.error)
        assert row["coverage"] >= known.coverage - slack, row
