"""The results store: rows come back as they went in, and stale ones are told."""

import json
import math
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from robustbook._store import sha256_of
from robustbook._store.provenance import Code
from robustbook.datasets import DataUnavailableError, data_directory
from robustbook.studies import STUDIES, _stored, results
from robustbook.studies._stored import confirm_results, write_results
from robustbook.studies.results import Results, load_reported, stale_results

ROWS = [
    {"model": "a", "noise": 0.1, "pa": 1.25, "beta": math.inf, "seed": 0, "ok": True},
    {"model": "b", "noise": 0.1, "pa": 0.5, "beta": 2.5, "seed": 0, "ok": None},
]


PROVENANCE = {"device": "cpu", "seed": 7, "seconds": 3.5}
STAMP = {
    "module": "robustbook.scores",
    "options": STUDIES["noise"].variant,
    "code_sha256": "",
    "inputs": {},
}
MEASURED = Results("noise", "full", tuple(ROWS), PROVENANCE, STAMP)


def write(directory, **changes):
    stored = write_results(replace(MEASURED, **changes), directory=directory)
    return directory / f"{stored.name}.json"


def test_rows_come_back(tmp_path):
    path = write(tmp_path)
    stored = results.read_results("noise", directory=tmp_path)
    assert list(stored.rows) == ROWS
    assert stored.select(model="b") == [ROWS[1]]
    assert stored.select(model="c") == []
    assert stored.row(model="a") == ROWS[0]
    assert stored.profile == "full"
    assert PROVENANCE.items() <= stored.provenance.items()
    assert {"commit", "dirty"} <= stored.provenance.keys()
    assert STAMP.items() <= stored.stamp.items()
    assert stored.stamp["known"]["how"] == "measured"
    assert "Infinity" not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["noise.json"]


def test_rows_become_a_table(tmp_path):
    frame = MEASURED.frame()
    assert list(frame.columns) == list(ROWS[0])
    assert frame.pivot(index="noise", columns="model", values="pa").loc[0.1, "b"] == 0.5
    assert MEASURED.frame(model="b").beta.tolist() == [2.5]
    assert len(MEASURED.frame(model="c")) == 0
    assert load_reported("thesis_table_4_1").frame(classifier="random").beta[0] == 0


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": "No Name"}, ValueError, "name: expected lower-case"),
        ({"name": "../noise"}, ValueError, "name: expected lower-case"),
        ({"rows": ()}, ValueError, "at least one row"),
        ({"rows": ({"pa": math.nan},)}, ValueError, "row 0, pa: got NaN"),
        ({"rows": ({"pa": [1.0]},)}, ValueError, "row 0, pa: expected a plain .* list"),
        ({"rows": ({"pa": "inf"},)}, ValueError, "'inf' means a number"),
        ({"rows": ({1: 2.0},)}, ValueError, "expected str keys"),
        ({"rows": ({"pa": np.float64(1)},)}, ValueError, "float64; convert with float"),
        ({"rows": (("pa", 1.0),)}, TypeError, "expected a dictionary, got tuple"),
    ],
)
def test_bad_results_are_refused(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        write(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": None}, {"rows": [1, 2]}, {"rows": {}},
        {"profile": None}, {"provenance": []}, {"stamp": []},
    ],
)  # fmt: skip
def test_incomplete_results_are_no_results(tmp_path, damage):
    (tmp_path / "data" / "results").mkdir(parents=True)
    path = write(tmp_path / "data" / "results")
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(DataUnavailableError, match=r"noise\.json: expected profile"):
        results.read_results("noise", directory=path.parent)
    (stale,) = stale_results(tmp_path)
    assert "run its study again" in str(stale)


def test_missing_or_foreign_results(tmp_path):
    for text, message in (
        (None, "missing; run its study"),
        ('{"schema": 2}', "schema 1"),
        ("oops", "not JSON"),
    ):
        if text:
            (tmp_path / "noise.json").write_text(text)
        with pytest.raises(DataUnavailableError, match=message):
            results.read_results("noise", directory=tmp_path)


# ------------------------------------------------------------------- staleness


@pytest.fixture
def project(tmp_path):
    """A small package of that name, with a study, a checkpoint, and its rows."""
    package = tmp_path / "src" / "robustbook"
    folder = package / "studies" / "adversarial"
    folder.mkdir(parents=True)
    for name, content in {
        "__init__.py": "",
        "scores.py": "import math\n",
        "style.py": "COLOR = 1\n",
        "studies/__init__.py": "",
        "studies/adversarial/__init__.py": "",
        "studies/adversarial/noise.py": (
            "def rows(run):\n    from robustbook import scores\n"
        ),
    }.items():
        (package / name).write_text(content)
    for kind in ("results", "checkpoints"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    digest = checkpoints(tmp_path, b"weights")
    study = STUDIES["noise"]
    write(
        tmp_path / "data" / "results",
        stamp={
            "module": study.code,
            "options": study.variant,
            "code_sha256": Code(tmp_path / "src").fingerprint(study.code),
            "inputs": {"digits-cnn-s0": digest, "images.gz": "2" * 64},
        },
    )
    assert stale_results(tmp_path) == []
    return tmp_path


def checkpoints(project, weights):
    file = project / "data" / "checkpoints" / "digits-cnn-s0.safetensors"
    file.write_bytes(weights)
    entry = {"file": file.name, "sha256": sha256_of(file)}
    content = {"schema": 1, "checkpoints": {"digits-cnn-s0": entry}}
    (file.parent / "registry.json").write_text(json.dumps(content))
    return entry["sha256"]


def changed(path, text):
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize("file", ["scores.py", "studies/adversarial/noise.py"])
def test_a_change_of_the_code_makes_results_stale(project, file):
    changed(project / "src" / "robustbook" / file, "CHANGED = 1\n")
    (stale,) = stale_results(project)
    assert stale.name == "noise"
    assert "noise or what it imports changed since" in str(stale)
    assert "run `python -m robustbook.studies noise` again" in str(stale)


def test_what_is_not_imported_does_not_matter_nor_do_comments(project):
    package = project / "src" / "robustbook"
    changed(package / "style.py", "COLOR = 2\n")
    changed(package / "scores.py", "# a comment\n")
    assert stale_results(project) == []


def test_another_checkpoint_and_other_options_make_results_stale(project, monkeypatch):
    weights = project / "data" / "checkpoints" / "digits-cnn-s0.safetensors"
    # Bytes that the registry knows nothing of, and then a registry that does.
    for change in (weights.write_bytes, partial(checkpoints, project)):
        change(b"others")
        (stale,) = stale_results(project)
        assert "checkpoints than it was measured on: digits-cnn-s0" in str(stale)
    other = replace(STUDIES["noise"], options={"larger": True})
    monkeypatch.setitem(STUDIES, "noise", other)
    assert "has other options" in str(stale_results(project)[0])


def test_rows_without_a_stamp_are_stale_until_they_are_confirmed(project):
    path = project / "data" / "results" / "noise.json"
    content = json.loads(path.read_text())
    stamp = content.pop("stamp")
    path.write_text(json.dumps(content))
    assert "no stamp" in str(stale_results(project)[0])
    confirmed = confirm_results(
        "noise", stamp=stamp, evidence="the same quick rows", directory=path.parent
    )
    assert stale_results(project) == []
    assert list(confirmed.rows) == ROWS
    assert confirmed.provenance == content["provenance"]
    assert confirmed.stamp["known"]["how"] == "confirmed"
    assert confirmed.stamp["known"]["evidence"] == "the same quick rows"
    with pytest.raises(ValueError, match="evidence: expected why the rows"):
        confirm_results("noise", stamp=stamp, evidence=" ", directory=path.parent)


def test_vanished_code_and_broken_files_are_told(project):
    (project / "src" / "robustbook" / "studies" / "adversarial" / "noise.py").unlink()
    assert "its code is gone" in str(stale_results(project)[0])
    (project / "data" / "results" / "noise.json").write_text("oops")
    assert "not JSON" in str(stale_results(project)[0])


# -------------------------------------------------------------------- reported

REPORTED = sorted(path.stem for path in (data_directory() / "reported").glob("*.json"))


@pytest.mark.parametrize("name", REPORTED)
def test_reported_figures_are_complete(name):
    table = load_reported(name)
    assert "" not in (table.title, table.document, table.notes)
    assert table.place.startswith(("Table", "Figure"))
    assert table.rows
    keys = table.rows[0].keys()
    assert all(row.keys() == keys for row in table.rows)
    assert [row["row"] for row in table.rows] == list(range(1, len(table.rows) + 1))


@pytest.mark.parametrize(
    ("name", "where", "printed"),
    [
        ("thesis_table_4_1", {"classifier": "random"},
         {"row": 3, "beta": 0.0, "log_pa": -693.14, "accuracy": 0.516,
          "num_samples": 1000, "num_classes": 2}),
        ("thesis_table_5_7", {"factor": "position", "model": "IRM", "setting": "ZSO"},
         {"beta": 2254}),
        ("thesis_table_4_10", {"model": "Yao et al.", "experiment": "5b"},
         {"beta": 1.837}),
        ("average_case_table_2", {"dataset": "CIFAR100", "penalty": 0.001},
         {"accuracy": 69}),
        ("average_case_table_3", {"estimator": "monte_carlo", "samples": 10_000},
         {"cpu_serial": 6071, "gpu_batched": 35}),
        ("average_case_table_3", {"estimator": "taylor"},
         {"cpu_serial": 8, "gpu_batched": None}),
        ("average_case_table_3", {"estimator": "mmse", "samples": 5},
         {"gpu_batched": 2}),
    ],
)  # fmt: skip
def test_reported_values(name, where, printed):
    assert printed.items() <= load_reported(name).row(**where).items()


def test_reported_counts():
    assert len(load_reported("thesis_table_5_7").select(model="ERM", beta=0.0)) == 8
    for name, count in (("margin_table_1", 32), ("margin_table_2", 4)):
        rows = load_reported(name).rows
        assert len(rows) == count
        assert all(0 < row["tau"] < 1 < row["auroc"] <= 100 for row in rows)


def test_reported_asks_for_one_row_and_a_known_table():
    table = load_reported("thesis_table_4_1")
    for where, message in (
        ({"num_classes": 2}, r"expected one row .* got 3"),
        ({"oak": 1}, "got 0"),
    ):
        with pytest.raises(LookupError, match=message):
            table.row(**where)
    with pytest.raises(ValueError, match=r"expected one of .*thesis_table_4_1.*'oak'"):
        load_reported("oak")


def test_data_card_lists_every_reported_table():
    card = (data_directory() / "README.md").read_text(encoding="utf-8")
    for name in REPORTED:
        table = load_reported(name)
        assert f"| `{name}.json` |" in card
        assert f"| {table.place} | {table.title} |" in card


def test_only_the_commit_of_the_project_itself_is_stored(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    stored = {}
    for source in (installed, tmp_path / "src"):
        source.mkdir(exist_ok=True)
        monkeypatch.setattr(_stored, "package_source", lambda path=source: path)
        results = Results("made_up", "quick", ({"x": 1},), {})
        written = write_results(results, directory=tmp_path / "results")
        stored[source.name] = written.provenance["commit"]
    assert stored == {"site-packages": None, "src": git("rev-parse", "HEAD")}
