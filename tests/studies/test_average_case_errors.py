"""The experiments of chapter 20: their rows are complete, and say what they must."""

import pytest

from robustbook.studies import average_case_errors as of_errors
from robustbook.studies import average_case_speed as of_speed
from robustbook.studies.average_case.average_case_errors import average_case_errors
from robustbook.studies.average_case.average_case_speed import average_case_speed
from robustbook.studies.results import load_reported

ESTIMATORS = {
    "taylor",
    "taylor_mvs",
    "taylor_mvs_scaled",
    "mmse",
    "mmse_mvs",
    "mmse_pairs",
    "softmax",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def rows(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBUSTBOOK_CACHE", str(cache))
        return average_case_errors(profile="quick", device="cpu")


def of(rows, what, **where):
    return [
        row
        for row in rows
        if row["what"] == what and all(row[k] == v for k, v in where.items())
    ]


def test_rows_are_complete(rows):
    models = [row["model"] for row in of(rows, "model")]
    assert len(set(models)) == len(models) >= 4
    for model in models:
        errors = of(rows, "error", model=model)
        sigmas = {row["sigma"] for row in errors}
        keys = {(row["sigma"], row["estimator"]) for row in errors}
        assert keys == {(s, e) for s in sigmas for e in ESTIMATORS}
        assert len(keys) == len(errors)
        assert len(of(rows, "cdf", model=model)) == len(sigmas)
        assert len(of(rows, "distribution", model=model)) == 3 * len(sigmas)


def test_errors_are_errors(rows):
    for row in of(rows, "error"):
        assert 0 <= row["truth"] <= 1
        assert abs(row["bias"]) <= row["mean_abs"] + 1e-9
        assert row["mean_abs"] <= 1
        assert row["mean_abs_se"] >= 0 <= row["floor"]
        assert row["rank"] is None or -1 <= row["rank"] <= 1


def test_taylor_is_exact_for_the_linear_model(rows):
    for row in of(rows, "error", model="digits-linear-s0", estimator="taylor"):
        assert abs(row["mse"]) < 4 * row["mse_se"] + 1e-5
        assert row["mean_abs"] < 2 * row["floor"] + 1e-3


def test_pairs_are_exact_for_the_linear_model(rows):
    where = {"model": "digits-linear-s0"}
    pairs = of(rows, "error", estimator="mmse_pairs", **where)
    plain = of(rows, "error", estimator="taylor", **where)
    for pair, tangent in zip(pairs, plain, strict=True):
        assert pair["mean_abs"] == pytest.approx(tangent["mean_abs"], abs=2e-3)


def test_quantiles_rise(rows):
    for row in of(rows, "distribution"):
        values = [row[key] for key in ("q05", "q25", "q50", "q75", "q95")]
        assert values == sorted(values)


def test_rows_repeat_from_the_cache(rows, cache, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(cache))
    before = {path.stat().st_mtime_ns for path in cache.iterdir()}
    assert average_case_errors(profile="quick", device="cpu") == rows
    assert {path.stat().st_mtime_ns for path in cache.iterdir()} == before


@pytest.mark.parametrize("module", [of_errors, of_speed])
def test_sums_name_every_model_and_the_images(module):
    sums = module.data_sums("quick")
    assert "digits-cnn-s0" in sums
    assert any(name.startswith("digits test ") for name in sums)
    assert all(len(value) == 64 for value in sums.values())


def test_speed_rows():
    rows = average_case_speed(profile="quick")
    assert all(row["seconds"] > 0 and row["threads"] == 1 for row in rows)
    keys = {(r["model"], r["way"], r["estimator"], r["samples"]) for r in rows}
    assert len(keys) == len(rows)
    for way in ("serial", "batched"):
        (slow,) = (
            r for r in rows if (r["way"], r["estimator"]) == (way, "monte_carlo")
        )
        (fast,) = (r for r in rows if (r["way"], r["estimator"]) == (way, "taylor"))
        assert slow["samples"] == 10_000
        assert slow["seconds"] > 5 * fast["seconds"]


def test_the_papers_run_times():
    table = load_reported("average_case_table_3")
    slow = table.row(estimator="monte_carlo", samples=10_000)
    fast = table.row(estimator="taylor")
    assert (slow["cpu_serial"], slow["gpu_batched"]) == (6071, 35)
    assert (fast["cpu_serial"], fast["gpu_batched"]) == (8, None)
    assert table.row(estimator="mmse", samples=5)["gpu_batched"] == 2
