"""The results store: rows come back as they went in, and stale ones are told."""

import json
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch

from robustbook.datasets import DataUnavailableError, data_directory
from robustbook.studies import results
from robustbook.studies.results import code_sha256, load_reported, stale_results

ROWS = [
    {"model": "a", "noise": 0.1, "pa": 1.25, "beta": math.inf, "seed": 0, "ok": True},
    {"model": "b", "noise": 0.1, "pa": 0.5, "beta": 2.5, "seed": 0, "ok": None},
]


def write(directory, **changes):
    options = {
        "experiment": "robustbook.studies.adversarial.noise",
        "profile": "quick",
        "seed": 7,
        "device": "CPU",
        "modules": ["robustbook.scores"],
        "started": datetime.now(UTC) - timedelta(seconds=3),
        "directory": directory,
    }
    name, rows = changes.pop("name", "noise"), changes.pop("rows", ROWS)
    return results.write_results(name, rows, **{**options, **changes})


def test_rows_come_back(tmp_path):
    path = write(tmp_path, data_sha256={"digits-cnn-s0": "0" * 64})
    stored = results.read_results("noise", directory=tmp_path)
    assert list(stored.rows) == ROWS
    assert stored.select(model="b") == [ROWS[1]]
    assert stored.select(model="c") == []
    assert stored.experiment == "robustbook.studies.adversarial.noise"
    assert stored.profile == "quick"
    provenance = stored.provenance
    assert set(provenance) == {
        "commit",
        "dirty",
        "device",
        "cpu_count",
        "versions",
        "seed",
        "started",
        "seconds",
        "data_sha256",
        "code",
        "code_sha256",
    }
    assert provenance["seconds"] == pytest.approx(3, abs=2)
    assert provenance["seed"] == 7
    assert {"python", "torch", "numpy"} <= provenance["versions"].keys()
    assert "Infinity" not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["noise.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "No Name"}, "name: expected lower-case"),
        ({"name": "../noise"}, "name: expected lower-case"),
        ({"profile": "fast"}, "profile: expected 'quick' or 'full'"),
        ({"started": datetime(2024, 1, 1)}, "started: expected a time with its zone"),
        ({"rows": []}, "at least one row"),
        ({"rows": [{"pa": math.nan}]}, "row 0, pa: got NaN"),
        ({"rows": [{"pa": [1.0]}]}, "row 0, pa: expected a plain .* list"),
        ({"rows": [{"pa": "inf"}]}, "'inf' means a number"),
        ({"rows": [{1: 2.0}]}, "expected str keys"),
        ({"modules": ["robustbook.oak"]}, "modules: expected .* 'robustbook.oak'"),
        ({"modules": ["numpy"]}, "modules: expected"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"started": datetime.now(UTC) + timedelta(hours=1)}, "started: .* past"),
    ],
)
def test_bad_results_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_numpy_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="float64; convert with float"):
        write(tmp_path, rows=[{"pa": np.float64(1.0)}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [("pa", 1.0)]}, "row 0: expected a dictionary, got tuple"),
        ({"seed": 1.0}, "seed: expected an integer"),
    ],
)
def test_other_types_are_refused(tmp_path, changes, message):
    with pytest.raises(TypeError, match=message):
        write(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_what_experiments_have_at_hand_is_taken(tmp_path):
    write(
        str(tmp_path),
        seed=np.int64(3),
        device=torch.device("cpu"),
        data_sha256={tmp_path / "a.npy": "0" * 64},
    )
    provenance = results.read_results("noise", directory=str(tmp_path)).provenance
    assert provenance["seed"] == 3
    assert provenance["device"] == "cpu"
    assert provenance["data_sha256"] == {str(tmp_path / "a.npy"): "0" * 64}


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": None},
        {"rows": [1, 2]},
        {"rows": {}},
        {"experiment": None},
        {"provenance": []},
        {"provenance": {"code": None, "code_sha256": ""}},
        {"provenance": {"code": [1], "code_sha256": ""}},
        {"provenance": {"code": [], "code_sha256": None}},
    ],
)
def test_incomplete_results_are_no_results(tmp_path, damage):
    (tmp_path / "data" / "results").mkdir(parents=True)
    path = write(tmp_path / "data" / "results")
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(DataUnavailableError, match=r"noise\.json: expected experiment"):
        results.read_results("noise", directory=path.parent)
    (stale,) = stale_results(tmp_path)
    assert "run its experiment again" in str(stale)


def test_missing_or_foreign_results(tmp_path):
    with pytest.raises(DataUnavailableError, match="missing; run its experiment"):
        results.read_results("noise", directory=tmp_path)
    (tmp_path / "noise.json").write_text('{"schema": 2}')
    with pytest.raises(DataUnavailableError, match="schema 1"):
        results.read_results("noise", directory=tmp_path)
    (tmp_path / "noise.json").write_text("oops")
    with pytest.raises(DataUnavailableError, match="not JSON"):
        results.read_results("noise", directory=tmp_path)


# ------------------------------------------------------------------- staleness


@pytest.fixture
def project(tmp_path):
    """A small package of that name, with imports of every form."""
    package = tmp_path / "src" / "robustbook"
    (package / "agreement").mkdir(parents=True)
    for name, content in {
        "__init__.py": "",
        "_validation.py": "LIMIT = 1\n",
        "agreement/__init__.py": "from ._kernel import kernel\n",
        "agreement/_kernel.py": "from .._validation import LIMIT\nkernel = LIMIT\n",
        "scores.py": "import math\n",
        "figures.py": "COLOR = 1\n",
        "training.py": (
            "def f():\n    from robustbook import scores, figures\n"
            "    import robustbook.agreement\n"
        ),
    }.items():
        (package / name).write_text(content)
    (tmp_path / "data" / "results").mkdir(parents=True)
    return tmp_path


def store(project, modules):
    content = {
        "schema": 1,
        "experiment": "robustbook.studies.adversarial.noise",
        "profile": "full",
        "rows": [],
        "provenance": {
            "commit": "0123456789abcdef",
            "code": modules,
            "code_sha256": code_sha256(modules, source=project / "src"),
        },
    }
    path = project / "data" / "results" / "noise.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "file", ["_validation.py", "agreement/_kernel.py", "scores.py", "training.py"]
)
def test_a_change_of_the_code_makes_results_stale(project, file):
    store(project, ["robustbook.training"])
    assert stale_results(project) == []
    path = project / "src" / "robustbook" / file
    path.write_text(path.read_text() + "CHANGED = 1\n")
    (stale,) = stale_results(project)
    assert stale.name == "noise"
    assert "changed since 0123456789" in str(stale)
    assert "run robustbook.studies.adversarial.noise again" in str(stale)


def test_vanished_code_and_broken_files_are_told(project):
    path = store(project, ["robustbook.scores"])
    (project / "src" / "robustbook" / "scores.py").unlink()
    assert "its code is gone" in str(stale_results(project)[0])
    path.write_text('{"schema": 1}')
    assert "not a stored result" in str(stale_results(project)[0])
    path.write_text("oops")
    assert "not JSON" in str(stale_results(project)[0])


# -------------------------------------------------------------------- reported

REPORTED = sorted(path.stem for path in (data_directory() / "reported").glob("*.json"))


@pytest.mark.parametrize("name", REPORTED)
def test_reported_figures_are_complete(name):
    table = load_reported(name)
    assert table.title
    assert table.document
    assert table.place.startswith(("Table", "Figure"))
    assert table.notes
    assert table.rows
    keys = table.rows[0].keys()
    assert all(row.keys() == keys for row in table.rows)
    assert [row["row"] for row in table.rows] == list(range(1, len(table.rows) + 1))


def test_reported_values():
    table = load_reported("thesis_table_4_1")
    assert table.row(classifier="random") == {
        "row": 3,
        "classifier": "random",
        "beta": 0.0,
        "log_pa": -693.14,
        "accuracy": 0.516,
        "num_samples": 1000,
        "num_classes": 2,
    }
    table = load_reported("thesis_table_5_7")
    assert table.row(factor="position", model="IRM", setting="ZSO")["beta"] == 2254
    assert len(table.select(model="ERM", beta=0.0)) == 8
    table = load_reported("thesis_table_4_10")
    assert table.row(model="Yao et al.", experiment="5b")["beta"] == 1.837


def test_reported_asks_for_one_row():
    table = load_reported("thesis_table_4_1")
    with pytest.raises(LookupError, match=r"expected one row .* got 3"):
        table.row(num_classes=2)
    with pytest.raises(LookupError, match="got 0"):
        table.row(oak=1)


def test_unknown_reported_table():
    with pytest.raises(ValueError, match=r"expected one of .*thesis_table_4_1.*'oak'"):
        load_reported("oak")


def test_data_card_lists_every_reported_table():
    card = (data_directory() / "README.md").read_text(encoding="utf-8")
    for name in REPORTED:
        table = load_reported(name)
        assert f"| `{name}.json` |" in card
        assert f"| {table.place} | {table.title} |" in card
