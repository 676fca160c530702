"""Deployed classifiers: stored rows hold together, and quick ones are like them."""

import pytest

from robustbook.deployed import TEXT_SHIFTS
from robustbook.deployed._classifiers import CLASSIFIERS
from robustbook.deployed._shifts import BYTE_SHIFTS
from robustbook.label_free import ESTIMATES, SCORES
from robustbook.studies.results import read_results


def check(frame, draws):
    shifts = dict.fromkeys(CLASSIFIERS, TEXT_SHIFTS) | {"magika": BYTE_SHIFTS}
    assert set(frame.classifier) == set(shifts)
    for (name, _), rows in frame.groupby(["classifier", "draw"]):
        assert list(rows["shift"]) == list(shifts[name])
        assert rows[["beta", "labels", "samples", "version"]].nunique().eq(1).all()
    assert frame.draw.nunique() == draws
    assert (frame.low <= frame.paired_accuracy).all()
    assert (frame.paired_accuracy <= frame.high).all()
    assert not frame[[*ESTIMATES, *SCORES]].isna().any(axis=None)
    assert frame.accuracy.between(0, 1).all()
    assert (frame.zeros > 0).eq(frame.classifier.isin(["langdetect", "lingua"])).all()


def test_stored_rows_hold_together():
    frame = read_results("deployed").frame()
    check(frame, draws=5)
    known = frame.groupby("classifier").labels.min()
    assert known["magika"] >= 20
    assert known.min() >= 20


def test_quick_rows_are_like_them(quick):
    pytest.importorskip("magika", reason="needs the extra deployed")
    check(quick("deployed").frame(), draws=1)
