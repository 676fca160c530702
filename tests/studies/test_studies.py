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
from robustbook.studies import (
    STUDIES,
    Study,
    __main__,
    _all,
    _compute,
    results_for,
    run_study,
)
from robustbook.studies._statistics import clustered_error, mean_error
from robustbook.studies.results import Results, read_results
from robustbook.studies.run import Run, Setting

from ..conftest import RUN_SEED

NAMES = sorted(STUDIES)
#: Studies of some minutes at most: times of this machine.
KEEP_NOTHING = {"agreement_speed", "average_case_speed", "cost_model"}


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A study of two parts, each kept in the cache."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path / "cache"))
    study = Study("toy", "agreement_speed")

    def rows(run):
        for part in run.progress(["a", "b"]):
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
        for setting in study.settings(profile):
            networks = {one.partition("+")[0] for one in setting.checkpoints()}
            assert networks <= known & set(sums)
    # What is measured in full is downloaded, unless it is made up.
    assert sums or study.settings("full")[0].kind == "made up"
    # What presents the rows does not make them stale.
    modules = Code(package_source()).closure(study.code)
    assert not {"robustbook.style", "robustbook.studies"} & set(modules)


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


def test_runs_with_two_seeds_share_no_seed(toy, monkeypatch):
    """A run uses its seed and the next ones: of draws, trainings and starts."""
    module = importlib.import_module(toy.code)
    seeds = lambda run: [{"used": run.seed + k} for k in range(2000)]  # noqa: E731
    monkeypatch.setattr(module, "rows", seeds)
    first, second = (toy.compute(profile="quick", seed=k, device="cpu") for k in (0, 1))
    assert first.rows[0]["used"] == 0
    assert not {row["used"] for row in first.rows} & {
        row["used"] for row in second.rows
    }
    assert second.provenance["seed"] == 1


def test_a_run_shows_its_parts_and_its_only_setting():
    run = Run("toy", "quick", 0, "cpu", (Setting(dataset="digits", samples=3),))
    assert len(run.data) == 3
    assert list(run.progress("ab")) == ["a", "b"]
    assert run.units == 2
    step = Setting(dataset="digits", samples=9, step=4).data()
    assert torch.equal(step.images, Setting(dataset="digits").data().images[:9:4])


def test_a_key_holds_weights_data_settings_seed_and_kind_of_device():
    run = Run("toy", "quick", 3, "auto", ())
    network, data = torch.nn.Linear(2, 2), Setting(dataset="digits", samples=5).data()

    def key(run=run, part="logits", networks=network, data=data, **settings):
        return run.key(part, networks=networks, data=data, **settings)

    first = key(sizes=(1, 2), setting=Setting(dataset="digits"))
    assert first == key(sizes=(1, 2), setting=Setting(dataset="digits"))
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    assert (first["seed"], first["device"]) == (3, kind)
    others = [
        first, key(replace(run, seed=4)), key(part="rows"), key(sizes=(1, 2)),
        key(sizes=(1, 2), setting=Setting(dataset="digits", step=2)),
        key(sizes=(1, 3)), key(sizes=(1, 2.0)), key(sizes=("1, 2",)),
        key(data=data.subset(slice(4))), key(data=data.images), key(data="mnist"),
        key(networks="digits-cnn-s0"), key(networks=["digits-cnn-s0", network]),
    ]  # fmt: skip
    with torch.no_grad():
        network.weight += 1e-6
    others.append(key(sizes=(1, 2), setting=Setting(dataset="digits")))
    texts = [json.dumps(other, sort_keys=True) for other in others]
    assert len({*texts}) == len(texts)
    assert not any("digits-cnn" in text for text in texts)
    with pytest.raises(TypeError, match="expected networks, data, or plain values"):
        key(size=key)


def test_a_part_is_computed_once_for_its_arguments_and_network(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    run, calls = Run("toy", "quick", 0, "cpu", ()), []

    def measure(*arguments):
        calls.append(arguments)
        yield {"sum": float(sum(arguments[-1]))}

    def rows(*arguments, run=run, network=None):
        options = {"code": "robustbook.scores", "network": network}
        return run.rows("sums", measure, *arguments, **options)

    assert rows((1, 2)) == rows((1, 2)) == [{"sum": 3.0}]
    assert len(calls) == 1
    assert rows((1, 3)) == rows((1, 3), run=replace(run, seed=1)) == [{"sum": 4.0}]
    network = torch.nn.Linear(2, 2)
    rows((1, 2), network=network)
    assert len(calls) == 4
    assert calls[-1] == (network, (1, 2))


def test_rows_of_a_part_depend_on_what_its_key_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    names = ("digits-cnn-s0", "digits-linear-s0")
    run = Run("toy", "quick", 0, "cpu", (Setting(dataset="digits", models=names),))
    calls = []

    def measure(run, *part):
        calls.append((part, run.setting.models))
        yield {"seed": run.seed}

    measure.__module__ = "robustbook.scores"
    for _ in range(2):
        assert run.measured(measure, names[0], 0.5) == [{"seed": 0}]
    # The networks that a part does not name are not there.
    assert calls == [((names[0], 0.5), names[:1])]
    other = {
        "part": (run, names[1], 0.5), "all": (run, 0.5), "number": (run, names[0], 0.1),
        "seed": (replace(run, seed=1), names[0], 0.5),
        "profile": (replace(run, profile="full"), names[0], 0.5),
        "data": (
            replace(run, settings=(replace(run.setting, samples=9),)), names[0], 0.5
        ),
    }  # fmt: skip
    for one, *part in other.values():
        one.measured(measure, *part)
    assert len(calls) == 1 + len(other)
    run.measured(measure, names[0], 0.5, option=1)
    monkeypatch.setattr("robustbook.studies.run.model_sum", lambda _: "other weights")
    replace(run, _sums={}).measured(measure, names[0], 0.5)
    assert len(calls) == 3 + len(other)


@pytest.mark.parametrize("name", NAMES)
def test_quick_rows_have_the_kinds_and_columns_of_the_stored_ones(name, quick):
    """So no kind of row and no column is lost, in either profile."""
    if name == "domain_regime_large":
        return  # which only a CUDA device measures
    if name == "deployed":
        pytest.importorskip("magika", reason="needs the extra deployed")

    def columns(rows):
        kinds = {}
        for row in rows:
            kind = row.get("what", row.get("table"))
            kinds.setdefault(kind, set()).update(row)
        return kinds

    assert columns(quick(name).rows) == columns(read_results(name).rows)


class Asked(Exception):  # noqa: N818 - no error
    """A part of a study was asked for."""


@pytest.mark.parametrize("name", NAMES)
def test_other_weights_and_seeds_are_other_keys_of_a_study(name, monkeypatch):
    """By the first part that it asks for: for the others, see conftest.py."""
    if name in KEEP_NOTHING:
        return
    study = STUDIES[name]
    settings = study.settings("quick")
    if name == "domain_regime":
        settings = settings[-1:]  # The first have no network that is loaded.

    def ask(key, *_, **__):
        raise Asked(key)

    def first(seed=RUN_SEED):
        run = Run(name, "quick", seed, "cpu", settings)
        with pytest.raises(Asked) as asked:
            list(_compute.rows_of(study, run))
        return asked.value.args[0]

    monkeypatch.setattr("robustbook.studies.run.cached_arrays", ask)
    before = first()
    assert before == first() != first(RUN_SEED + 100)
    load = torch.nn.Module.load_state_dict

    def perturbed(module, weights, **options):
        moved = {
            name: value + 1e-3 if value.is_floating_point() else value
            for name, value in weights.items()
        }
        return load(module, moved, **options)

    monkeypatch.setattr("torch.nn.Module.load_state_dict", perturbed)
    networks = [one for setting in settings for one in setting.checkpoints()]
    assert (first() != before) == bool(networks)


def test_stored_rows_of_another_profile_are_refused(monkeypatch):
    quick = Results("noise", "quick", (), {})
    monkeypatch.setattr("robustbook.studies.read_results", lambda _: quick)
    with pytest.raises(DataUnavailableError, match="expected stored rows of the full"):
        results_for("noise", profile="full")


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

    confirmed["rows"][0]["edited"] = 1.0
    path.write_text(json.dumps(confirmed))
    command("confirm", "toy", "--evidence", "the rows that somebody edited")
    code, told = command("check")
    assert code == 1
    assert "toy: its rows are not those that were measured; restore it" in told


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

    def measure(name, *how):
        ran.append(name)
        return 3 if name == "toy" else command(name, *how)[0]

    monkeypatch.setattr(_all, "_run", measure)
    monkeypatch.setattr("robustbook._engine._PATIENCE", 0.1)
    for wrong, word in (
        (("--engine", "nowhere"), "engine"),
        (("--minutes", "nan"), "minutes"),
        (("--engine", "dask://127.0.0.1:1"), "no scheduler with a worker answers"),
    ):
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
        0,
        "0 of 3 studies wait; 0 of them took 0 minutes where they were measured\n",
    )
    command("all", "--device", "cpu", "--since", "2101-01-01")
    assert set(ran[4:]) == {"cheap", "toy", "never"}


def test_an_interrupted_study_says_that_it_goes_on(toy, project, monkeypatch):
    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("robustbook.studies.agreement_speed.rows", stopped)
    code, told = command("toy", "--device", "cpu", "--engine", "local:1")
    assert code == 130
    assert "the same command goes on" in told


def test_a_study_stops_between_two_parts_and_goes_on(toy, project):
    path = project / "data" / "results" / "toy.json"
    how = ("toy", "--device", "cpu", "--minutes", "0")
    # Some of it is done each time, so that it ends.
    code, told = command(*how)
    assert (code, path.is_file()) == (3, False)
    assert told.endswith("the same command goes on from there\n")
    assert len([*(project / "cache").glob("*.npz")]) == 1
    assert command(*how)[0] == 0
    assert read_results("toy").provenance["from_cache"]["files"] == 1
    assert [row["part"] for row in read_results("toy").rows] == ["a", "b"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.ranges] * (name != "people"))
        for name in NAMES
        if name not in KEEP_NOTHING
    ],
)
def test_rows_measured_in_two_slices_are_those_of_one(
    name, quick, tmp_path, monkeypatch
):
    if name == "deployed":
        pytest.importorskip("magika", reason="needs the extra deployed")
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    alone = STUDIES[name].compute(profile="quick", seed=RUN_SEED, device="cpu")

    def timeless(rows):
        return [
            {key: value for key, value in row.items() if "seconds" not in key}
            for row in rows
        ]

    assert timeless(alone.rows) == timeless(quick(name).rows)


def test_a_slice_tells_a_study_that_failed_from_one_that_goes_on():
    assert _all._run("nothing") not in _all._OUTCOMES


def test_studies_wait_for_the_device_that_they_are_measured_on(
    toy, project, monkeypatch
):
    (project / "src").symlink_to(Path(__file__).parents[2] / "src")
    for name in set(STUDIES) - {"toy"}:
        monkeypatch.delitem(STUDIES, name)
    command("toy", "--device", "cpu")
    waiting = partial(_all.waiting_studies, project)
    for only, here, there in ((None, [], ["toy"]), ("cpu", [], []), ("cuda", [], [])):
        monkeypatch.setitem(STUDIES, "toy", replace(toy, device=only))
        assert waiting(device="cpu") == here
        with monkeypatch.context() as patch:
            patch.setattr(_all, "resolve_device", torch.device)
            if only != "cuda":
                assert waiting(device="cuda") == there
    (project / "data" / "results" / "toy.json").unlink()
    assert waiting(device="cpu") == []
    with monkeypatch.context() as patch:
        patch.setattr(_all, "resolve_device", torch.device)
        assert waiting(device="cuda") == ["toy"]


def test_the_device_that_is_stored_is_the_one_that_computed(toy, monkeypatch):
    monkeypatch.setattr(_compute, "resolve_device", torch.device)
    seen = []

    def rows(run):
        seen.append(run.device)
        yield {"x": 0}

    monkeypatch.setattr("robustbook.studies.agreement_speed.rows", rows)
    for study in (toy, replace(toy, device="cpu")):
        results = study.compute(profile="quick", device="cuda")
        assert results.provenance["device"] == seen[-1]
    assert seen == ["cuda", "cpu"]


def test_telling_what_is_stale_takes_no_torch():
    program = (
        "import sys, robustbook.studies.__main__, robustbook.studies.results\n"
        "print({'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "set()"
