"""What all studies share: the registry, their settings, provenance, the command."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from robustbook._store.cache import cached_arrays
from robustbook._store.provenance import Code, package_source
from robustbook.datasets import DataUnavailableError
from robustbook.models import list_models, list_public_models
from robustbook.studies import STUDIES, Study, __main__, _all, results_for, run_study
from robustbook.studies._run import Run, Setting, under
from robustbook.studies._statistics import clustered_error, mean_error
from robustbook.studies.results import Results, read_results

NAMES = sorted(STUDIES)
HEX = set("0123456789abcdef")


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A study of two parts, each kept in the cache."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path / "cache"))
    study = Study("toy", "agreement_speed")

    def rows(run):
        for part in run.each(["a", "b"]):
            arrays = cached_arrays(
                {"part": part, "seed": run.seed},
                lambda: {"x": np.zeros(1)},
                code="robustbook.scores",
            )
            yield {"part": part, "x": float(arrays["x"][0])}

    monkeypatch.setattr("robustbook.studies.agreement_speed.rows", rows)
    monkeypatch.setitem(STUDIES, "toy", study)
    return study


# ------------------------------------------------------------------- the registry


@pytest.mark.parametrize("name", NAMES)
def test_settings_name_networks_that_exist_and_inputs_follow_from_them(name):
    known = {*list_models(), *list_public_models()}
    study = STUDIES[name]
    for profile in ("quick", "full"):
        sums = study.inputs(profile)
        assert all(len(one) == 64 and set(one) <= HEX for one in sums.values())
        for setting in study.settings(profile):
            networks = {one.partition("+")[0] for one in setting.checkpoints()}
            assert networks <= known & set(sums)
            if hasattr(setting, "eps") and hasattr(setting, "focus"):
                assert setting.focus in setting.eps
    # What is measured in full is downloaded, unless it is made up.
    assert study.inputs("full") or study.settings("full")[0].kind == "made up"


@pytest.mark.parametrize("name", NAMES)
def test_a_stamp_covers_the_study_and_what_it_runs_and_nothing_that_presents(name):
    study = STUDIES[name]
    modules = Code(package_source()).closure(study.code)
    assert study.code in modules
    assert not {"robustbook.style", "robustbook.studies"} & set(modules)
    attacks = {module.rpartition("._")[2] for module in modules if "attacks" in module}
    expected = {"agreement_speed": set(), "noise": {"pgd"}, "pseudo_agreement": set()}
    if name in expected:  # noise takes its noise from training, which knows PGD
        assert not attacks & {"apgd", "fab", "fmn", "pgd"} - expected[name]


def test_two_studies_of_one_module_differ_in_their_stamps():
    names = ("adversarial_sweep", "stronger_sweep", "mnist_sweep")
    assert len({STUDIES[name].code for name in names}) == 1
    assert len({STUDIES[name].described for name in names}) == 3


def test_unknown_names_profiles_seeds_and_devices_are_refused():
    for name in ("../results/noise", "nothing"):
        for run in (run_study, partial(results_for, profile="full")):
            with pytest.raises(ValueError, match="name: expected one of"):
                run(name)
    for name, how, message in (
        ("rank_stability", {"profile": "fast"}, "profile: expected 'quick' or 'full'"),
        ("agreement_speed", {"seed": -1}, "seed: expected at least 0"),
        ("agreement_speed", {"device": "quantum"}, "device: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            results_for(name, **{"profile": "quick", **how})


# ---------------------------------------------------------------------- provenance


def test_quick_rows_touch_neither_git_nor_a_folder(toy, refuse, monkeypatch):
    for name in ("_stored.subprocess.run", "_stored.write_text", "_study.fingerprint"):
        monkeypatch.setattr(f"robustbook.studies.{name}", refuse)
    results = results_for("toy", profile="quick", device="cpu")
    assert [row["part"] for row in results.rows] == ["a", "b"]
    assert results.provenance["device"] == "cpu"
    assert {"python", "torch"} <= results.provenance["versions"].keys()
    assert results.stamp == {}


def test_what_is_edited_during_a_run_is_not_in_its_stamp(toy, monkeypatch):
    module = importlib.import_module(toy.code)
    measure = module.rows

    def edited(run, **options):
        monkeypatch.setattr("robustbook.studies._study.fingerprint", lambda _: "new")
        return measure(run, **options)

    before = toy.stamp("quick")
    monkeypatch.setattr(module, "rows", edited)
    results = toy.compute(profile="quick", device="cpu", stamped=True)
    assert results.stamp == before
    assert toy.stamp("quick") != before


def test_time_is_that_of_the_run_that_measured(toy, monkeypatch):
    ticks = iter(range(0, 10_000, 100))
    for module in ("_store.cache", "studies._compute"):
        monkeypatch.setattr(
            f"robustbook.{module}.perf_counter", lambda: float(next(ticks))
        )
    first = toy.compute(profile="quick", device="cpu").provenance
    assert first["from_cache"] == {"files": 0, "seconds": 0, "since": None}
    assert first["units"] == 2
    again = toy.compute(profile="quick", device="cpu").provenance
    assert again["from_cache"]["files"] == 2
    # Each of the two parts took a tick, and so did the run that read them.
    assert again["from_cache"]["seconds"] == 200
    assert again["seconds"] == 300


def test_a_run_shows_its_parts_and_its_only_setting():
    run = Run("toy", "quick", 0, "cpu", (Setting(dataset="digits", samples=3),))
    assert len(run.data) == 3
    assert list(run.each("ab")) == ["a", "b"]
    assert run.units == 2
    step = Setting(dataset="digits", samples=9, step=4).data()
    assert torch.equal(step.images, Setting(dataset="digits").data().images[:9:4])


def test_shared_keys_stand_behind_what_a_row_is():
    (row,) = under({"model": "a"}, [{"what": "error", "pa": 1.0}])
    assert list(row) == ["what", "model", "pa"]
    assert list(under({"model": "a"}, [{"pa": 1.0}])) == [{"model": "a", "pa": 1.0}]


def test_stored_rows_of_another_profile_are_refused(monkeypatch):
    quick = Results("noise", "quick", (), {})
    monkeypatch.setattr("robustbook.studies.read_results", lambda _: quick)
    with pytest.raises(DataUnavailableError, match="expected stored rows of the full"):
        results_for("noise", profile="full")


def test_a_study_forecasts_what_it_took():
    stored = read_results("adversarial_sweep").provenance["seconds"]
    assert STUDIES["adversarial_sweep"].forecast() == stored
    assert replace(STUDIES["noise"], name="nothing").forecast() is None


# ---------------------------------------------------------------------- statistics


def test_error_of_clusters():
    values = torch.randn(50, generator=torch.Generator().manual_seed(0))
    alone = clustered_error(values, torch.arange(50))
    assert alone == pytest.approx(mean_error(values))
    # Each sample seen twice says no more than seen once.
    twice = clustered_error(values.repeat(2), torch.arange(50).repeat(2))
    assert twice == pytest.approx(alone)
    assert np.isnan(clustered_error(values, torch.zeros(50, dtype=torch.int64)))


# --------------------------------------------------------------------- the command


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with data of its own, to which the command writes."""
    (tmp_path / "data" / "results").mkdir(parents=True)
    for module in ("robustbook.studies.results", "robustbook.studies.__main__"):
        monkeypatch.setattr(f"{module}.data_directory", lambda: tmp_path / "data")
    return tmp_path


def command(*words):
    app = Typer()
    app.command()(__main__.main)
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "400", "TERM": "dumb"})
    return ended.exit_code, ended.output


def test_the_command_stores_checks_and_confirms(toy, project):
    assert command("toy", "--device", "cpu")[0] == 0
    path = project / "data" / "results" / "toy.json"
    measured = json.loads(path.read_text())
    assert measured["stamp"]["known"]["how"] == "measured"
    (project / "src").symlink_to(Path(__file__).parents[2] / "src")
    assert command("check") == (0, "")

    measured["stamp"]["code_sha256"] = "0" * 64
    path.write_text(json.dumps(measured))
    code, told = command("check")
    assert code == 1
    assert "toy: robustbook.studies.agreement_speed or what it imports" in told
    assert "robustbook.studies toy` again" in told
    (line,) = (one for one in command("--list")[1].splitlines() if "toy" in one)
    assert line.split() == ["toy", "0", "s", "stale"]

    assert command("confirm", "toy")[0] == 2
    assert command("confirm", "toy", "--evidence", "equal quick rows")[0] == 0
    assert command("check") == (0, "")
    confirmed = json.loads(path.read_text())
    assert confirmed["stamp"]["known"]["evidence"] == "equal quick rows"
    assert confirmed["rows"] == measured["rows"]
    assert confirmed["provenance"] == measured["provenance"]


def test_the_command_keeps_full_rows_and_says_what_is_wrong(toy, project):
    command("toy", "--device", "cpu")
    path = project / "data" / "results" / "toy.json"
    full = path.read_bytes()
    code, told = command("toy", "--profile", "quick")
    assert code == 2
    assert "holds rows of the full profile" in told
    assert path.read_bytes() == full
    assert command("toy", "--device", "quantum")[0] == 2
    assert "expected one of" in command("nothing")[1]


def test_all_runs_what_waits_the_cheapest_first(toy, project, monkeypatch):
    (project / "src").symlink_to(Path(__file__).parents[2] / "src")
    for name in set(STUDIES) - {"toy"}:
        monkeypatch.delitem(STUDIES, name)
    monkeypatch.setitem(STUDIES, "never", replace(toy, name="never"))
    for name, seconds in {"toy": 900, "cheap": 60}.items():
        monkeypatch.setitem(STUDIES, name, replace(toy, name=name))
        command(name, "--device", "cpu")
        path = project / "data" / "results" / f"{name}.json"
        stored = json.loads(path.read_text())
        stored["provenance"] |= {"seconds": seconds, "device": "cuda:0"}
        path.write_text(json.dumps(stored))
    ran = []

    def measure(words, seconds):
        ran.append(words[3])
        if words[3] == "toy":
            return "stopped"
        return "failed" if command(*words[3:])[0] else "measured"

    monkeypatch.setattr(_all, "_run", measure)
    monkeypatch.setattr("robustbook._engine._PATIENCE", 0.1)
    for wrong, word in (
        (("--engine", "nowhere"), "engine"), (("--minutes", "nan"), "minutes"),
        (("--engine", "dask://127.0.0.1:1"), "no scheduler answers at tcp://127"),
    ):  # fmt: skip
        code, told = command("all", *wrong)
        assert (code, ran) == (2, [])
        assert word in told
    code, told = command("all", "--device", "cpu", "--minutes", "0")
    assert (code, ran) == (3, [])
    code, told = command("all", "--device", "cpu")
    assert (code, ran) == (3, ["cheap", "toy", "never"])
    assert "3 of 3 studies wait; 2 of them took 16 minutes" in told
    assert told.splitlines()[-1] == "still to measure: toy"
    assert command("all", "--device", "cpu", "--since", "2001-01-01")[0] == 3
    assert ran[3:] == ["toy"]
    command("toy", "--device", "cpu")
    assert command("all", "--device", "cpu") == (
        0, "0 of 3 studies wait; 0 of them took 0 minutes where they were measured\n"
    )  # fmt: skip
    command("all", "--device", "cpu", "--since", "2101-01-01")
    assert set(ran[4:]) == {"cheap", "toy", "never"}


def test_an_interrupted_study_says_that_it_goes_on(toy, project, monkeypatch):
    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("robustbook.studies.agreement_speed.rows", stopped)
    code, told = command("toy", "--device", "cpu", "--engine", "local:1")
    assert code == 130
    assert told.endswith(
        "toy: interrupted; what was measured is kept, and the same command goes on "
        "from there\n"
    )


def test_a_study_is_stopped_at_the_end_of_a_slice():
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert "goes on from the cache" in _all._run(sleep, 0.2)
    assert _all._run([sys.executable, "-c", "raise SystemExit(1)"], 60) == "failed"


def test_telling_what_is_stale_takes_no_torch():
    program = (
        "import sys, robustbook.studies.__main__, robustbook.studies.results\n"
        "print({'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "set()"
