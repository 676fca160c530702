"""The studies of chapter 20: their rows are complete, and say what they must."""

import pytest

from robustbook.studies.average_case._estimates import ESTIMATORS


def test_rows_are_complete(average_case_errors):
    models = {row["model"] for row in average_case_errors.rows}
    assert len(models) >= 4
    for model in models:
        count = {
            what: len(average_case_errors.select(what=what, model=model))
            for what in ("cdf", "distribution")
        }
        rows = average_case_errors.select(what="error", model=model)
        sigmas = {row["sigma"] for row in rows}
        keys = {(row["sigma"], row["estimator"]) for row in rows}
        assert keys == {(s, e) for s in sigmas for e in ESTIMATORS}
        assert len(keys) == len(rows)
        assert count == {"cdf": len(sigmas), "distribution": 3 * len(sigmas)}


def test_errors_are_errors(average_case_errors):
    for row in average_case_errors.select(what="error"):
        assert 0 <= row["truth"] <= 1
        assert row["mean_abs"] <= 1
        assert row["mean_abs_se"] >= 0 <= row["floor"]


def test_taylor_and_pairs_are_exact_for_the_linear_model(average_case_errors):
    where = {"what": "error", "model": "digits-linear-s0"}
    pairs, plain = (
        average_case_errors.select(**where, estimator=name)
        for name in ("mmse_pairs", "taylor")
    )
    for pair, tangent in zip(pairs, plain, strict=True):
        assert abs(tangent["mse"]) < 4 * tangent["mse_se"] + 1e-5
        assert tangent["mean_abs"] < 2 * tangent["floor"] + 1e-3
        assert pair["mean_abs"] == pytest.approx(tangent["mean_abs"], abs=2e-3)


def test_speed_rows(average_case_speed):
    rows = average_case_speed.rows
    assert all(row["seconds"] > 0 and row["threads"] == 1 for row in rows)
    keys = {(r["model"], r["way"], r["estimator"], r["samples"]) for r in rows}
    assert len(keys) == len(rows)
    at = {(row["way"], row["estimator"]): row for row in rows}
    for way in ("serial", "batched"):
        slow, fast = at[way, "monte_carlo"], at[way, "taylor"]
        assert slow["samples"] == 10_000
        assert slow["seconds"] > 5 * fast["seconds"]
