"""The command line on files as people have them."""

import errno
import json
import math
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustbook import __version__
from robustbook._comparison import paired_rates
from robustbook.agreement import (
    compare_agreement,
    compare_paired_accuracy,
    paired_accuracy,
    posterior_agreement,
)
from robustbook.cli import app


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    clean = 3 * rng.normal(size=(200, 4))
    shifted = clean + rng.normal(size=clean.shape)
    return {"clean": clean, "shifted": shifted, "labels": clean.argmax(axis=1)}


@pytest.fixture
def score(tmp_path, monkeypatch):
    """Return ``robustbook score`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["score", *words])


@pytest.fixture
def files(arrays, tmp_path):
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def strict_json(text):
    """Read JSON as strict parsers do, without NaN and Infinity."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def failure(result, status=2):
    """Return the one line on standard error."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("robustbook: ")
    return line.removeprefix("robustbook: ")


@pytest.mark.usefixtures("files")
def test_json_is_the_measure(score, arrays):
    result = score("clean.npy", "shifted.npy", "--json")
    assert result.exit_code == 0
    got = strict_json(result.stdout)
    exact = posterior_agreement(arrays["clean"], arrays["shifted"])
    for name in ("pa", "beta", "gap", "standard_error", "log_pa", "hard_part"):
        assert got[name] == getattr(exact, name), name
    assert (got["evaluations"], got["passes"]) == (exact.evaluations, exact.passes)
    assert got["num_samples"] == 200
    assert got["num_classes"] == 4
    same = arrays["clean"].argmax(1) == arrays["shifted"].argmax(1)
    assert got["same_answer_rate"] == same.mean()
    assert "accuracy" not in got
    result = score("clean.npy", "shifted.npy", "--labels", "labels.npy", "--json")
    got = strict_json(result.stdout)
    correct = (arrays["shifted"].argmax(1) == arrays["labels"]).mean()
    assert (got["accuracy"], got["shifted_accuracy"]) == (1.0, correct)


@pytest.mark.usefixtures("files")
def test_the_table_is_readable(score, arrays):
    result = score("clean.npy", "shifted.npy", "--labels", "labels.npy")
    assert result.exit_code == 0
    exact = posterior_agreement(arrays["clean"], arrays["shifted"])
    assert f"{exact.pa:.6f} nats per sample" in result.stdout
    said = "pairs, classes|standard error|β*|accuracy, shifted|same-answer"
    assert all(words in result.stdout for words in said.split("|"))
    assert max(map(len, result.stdout.splitlines())) < 80


def test_probabilities_get_a_remark(score, tmp_path):
    rng = np.random.default_rng(1)
    likely = rng.dirichlet(np.ones(3), size=20)
    np.save(tmp_path / "likely.npy", likely)
    np.save(tmp_path / "logarithms.npy", np.log(likely))
    result = score("likely.npy", "logarithms.npy")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("robustbook: likely.npy: rows are not negative")
    assert "logits or log-probabilities" in line
    np.save(tmp_path / "hard.npy", np.eye(3)[likely.argmax(1)])
    assert score("hard.npy", "logarithms.npy").stderr == ""


def test_infinite_and_undefined_numbers_are_strict_json(score, files):
    got = strict_json(score("clean.npy", "clean.npy", "--json").stdout)
    assert math.isinf(float(got["beta"]))
    assert got["beta"] == "inf"
    assert got["pa"] == pytest.approx(math.log(4))
    assert "infinite" in score("clean.npy", "clean.npy").stdout
    np.save(files / "one.npy", np.array([[1.0, 0.0]]))
    got = strict_json(score("one.npy", "one.npy", "--json").stdout)
    assert got["standard_error"] is None
    assert "undefined" in score("one.npy", "one.npy").stdout


def test_prior_and_tol(score, files, arrays):
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    np.savetxt(files / "prior.csv", prior[None], delimiter=",")
    result = score("clean.npy", "shifted.npy", "--prior", "prior.csv", "--json")
    exact = posterior_agreement(arrays["clean"], arrays["shifted"], prior=prior)
    assert strict_json(result.stdout)["pa"] == pytest.approx(exact.pa, abs=1e-9)
    np.save(files / "prior.npy", np.array([0.5, 0.5]))
    line = failure(score("clean.npy", "shifted.npy", "--prior", "prior.npy"))
    assert line.startswith("prior.npy: ")
    words = ([], ["--tol", "0.1"])
    shown = (
        score("clean.npy", "shifted.npy", *more, "--json").stdout for more in words
    )
    many, few = (strict_json(one)["evaluations"] for one in shown)
    assert few < many
    assert "tol" in failure(score("clean.npy", "shifted.npy", "--tol", "0"))


@pytest.mark.filterwarnings("default:.*its first line")
@pytest.mark.parametrize(
    "header", ["", "a,b,c,d\n", "0,1,2,3\n", "1,2,3,4\n", "\ufeffa,b,c,d\n"]
)
def test_csv(score, files, arrays, header):
    for name in ("clean", "shifted"):
        rows = "".join(",".join(map(repr, x)) + "\n" for x in arrays[name].tolist())
        (files / f"{name}.csv").write_text(header + rows, "utf-8")
    labels = "\n".join(["label", *map(str, arrays["labels"])])
    (files / "labels.csv").write_text(labels, "utf-8")
    from_csv = score("clean.csv", "shifted.csv", "--labels", "labels.csv", "--json")
    from_npy = score("clean.npy", "shifted.npy", "--labels", "labels.npy", "--json")
    assert from_csv.exit_code == 0, from_csv.stderr
    assert from_csv.stdout == from_npy.stdout
    # A first line of numbers that is left out is said to be.
    numbered = header[:1].isdigit()
    assert from_csv.stderr.count("is taken for the numbers") == 2 * numbered
    assert not numbered or "put a line of names above it" in from_csv.stderr
    for first in ("0,1", "1,2"):  # Integers throughout are no header.
        (files / "a.csv").write_text(f"{first}\n1,0\n2,5\n")
        assert strict_json(score("a.csv", "a.csv", "--json").stdout)["num_samples"] == 3


def test_npz(score, files, arrays):
    np.savez(files / "clean.npz", logits=arrays["clean"], labels=arrays["labels"])
    other_end = arrays["shifted"].astype(">f8")
    np.savez_compressed(files / "shifted.npz", scores=other_end)
    expected = score("clean.npy", "shifted.npy", "--labels", "labels.npy", "--json")
    words = ("clean.npz", "shifted.npz", "--labels", "clean.npz", "--json")
    assert score(*words).stdout == expected.stdout
    keyed = score("clean.npz", "clean.npz", "--key", "labels")
    assert "clean.npz: expected" in failure(keyed)


def test_a_key_names_one_of_several_arrays_of_an_npz_file(score, files, arrays):
    np.savez(files / "two.npz", a=arrays["clean"], b=arrays["shifted"])
    assert failure(score("two.npz", "shifted.npy")) == (
        "two.npz: expected an array named 'logits', got 'a', 'b'; name one with --key"
    )
    for other in ("two.npz", "shifted.npy"):
        assert score("two.npz", other, "--key", "b").exit_code == 0
    np.savez(files / "many.npz", **{f"a{i}": np.zeros(1) for i in range(5000)})
    line = failure(score("many.npz", "shifted.npy"))
    assert line.endswith("'a8', 'a9' and 4990 more; name one with --key")


def test_a_bomb_is_refused_before_it_unpacks(score, files, monkeypatch):
    monkeypatch.setattr("robustbook._array_files.LARGEST", 0.001)
    np.savez_compressed(files / "bomb.npz", logits=np.zeros((2**10, 2**10)))
    assert (files / "bomb.npz").stat().st_size < 2**14
    line = failure(score("bomb.npz", "shifted.npy"))
    expected = "bomb.npz: expected at most 0.001 GiB, got 0.0078 GiB; save larger"
    assert line.startswith(expected)
    # A .npy file stays on disk, whatever its size.
    monkeypatch.setattr("robustbook._array_files.LARGEST", 1e-9)
    assert score("clean.npy", "shifted.npy").exit_code == 0


def bad_npy(array):
    return lambda path: np.save(path, array, allow_pickle=True)


def bad_bytes(content):
    return lambda path: path.write_bytes(content)


def bad_text(text):
    return bad_bytes(text.encode())


def truncated(path):
    np.save(path, np.zeros((200, 4)))
    path.write_bytes(path.read_bytes()[:500])


def npy_header(header):
    """Return what writes a .npy file of this header and of no data."""
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    return bad_bytes(start + header)


HUGE = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }\n"


def damaged_npz(place):
    """Return what writes a .npz file with one wrong field, or with noise as data."""

    def write(path):
        np.savez_compressed(path, logits=np.zeros((200, 4)))
        content = bytearray(path.read_bytes())
        entry = content.index(b"PK\x01\x02")
        if place == "data":
            content[60:64] = b"\xff\xff\xff\xff"
        elif place == "method":
            content[8:10] = content[entry + 10 : entry + 12] = b"\x63\x00"
        else:
            content[6] |= 1
            content[entry + 8] |= 1
        path.write_bytes(content)

    return write


HOLE = np.zeros((200, 4))
HOLE[3, 2] = np.nan
OBJECTS = np.array([{}, []], dtype=object)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("missing.npy", lambda path: None, "no such file"),
        ("folder.npy", Path.mkdir, "not a file"),
        ("bad.pt", bad_bytes(b"PK"), "expected a file that ends in .npy, .npz or"),
        ("bad.npy", bad_bytes(b""), "cannot be read"),
        ("bad.npz", bad_bytes(b""), "cannot be read"),
        ("bad.csv", bad_bytes(b""), "the file is empty"),
        ("bad.csv", bad_text("\n \n"), "the file is empty"),
        ("bad.csv", bad_text("a,b\n"), "expected rows of numbers"),
        ("bad.npy", bad_text("1,2\n3,4\n"), "magic string"),
        ("bad.npz", bad_text("1,2\n3,4\n"), "not a zip file"),
        ("bad.npy", truncated, "greater than file size); save the"),
        ("bad.npy", npy_header(b"{'descr': '<f8', ((("), "cannot be read"),
        ("bad.npy", npy_header(b"\xff\xfe\n"), "cannot be read"),
        ("bad.npy", npy_header(b"[1]\n"), "cannot be read"),
        ("bad.npy", npy_header(HUGE), "cannot be read"),
        ("bad.npz", damaged_npz("data"), "cannot be read"),
        ("bad.npz", damaged_npz("method"), "cannot be read (That compression"),
        ("bad.npz", damaged_npz("flag"), "is encrypted"),
        ("bad.csv", bad_text("1,2\n3," + 140_000 * "x" + "\n"), "row 2, column 2"),
        ("bad.npy", bad_npy(OBJECTS), "Python objects in dtype"),
        ("bad.npz", partial(np.savez, logits=OBJECTS), "Object arrays cannot be"),
        ("bad.npy", bad_npy(np.array([["a", "b"]])), "expected numbers, got dtype"),
        ("bad.npy", bad_npy(np.zeros(200)), "(200,)"),
        ("bad.npy", bad_npy(np.array(3.0)), "got ()"),
        ("bad.npy", bad_npy(np.zeros((199, 4))), "(199, 4)"),
        ("bad.npy", bad_npy(np.zeros((200, 4), dtype=complex)), "complex128"),
        ("bad.npy", bad_npy(HOLE), "(3, 2)"),
        ("bad.csv", bad_text("1,2\n3,x\n"), "'x' to float64 at row 2, column 2"),
        ("bad.csv", bad_text("1,2\n\n3,\n"), "at row 2, column 2"),
        ("bad.csv", bad_text("a,b\n1,2\n1,2,3\n"), "changed from 2 to 3 at row 2"),
        ("bad.csv", bad_text("1,x\n1,2\n"), "at row 1, column 2"),
        ("bad.csv", bad_text(",a,b\n0,1,2\n"), "row numbers"),
        ("bad.csv", bad_text("1;2\n3;4\n"), "'3;4' to float64"),
        ("bad.csv", bad_bytes(b"\xff\xfe\x00"), "'utf-8' codec"),
        ("bad.csv", bad_text('1,"2\n3,4\n'), "at row 1, column 2"),
        ("bad.csv", bad_text('1,2\n3,4\n5,"6\n7,8\n'), "at row 3, column 2"),
        ("bad.csv", bad_text("1_0,2\n3,4\n"), "at row 1, column 1"),
    ],
)
@pytest.mark.usefixtures("files")
def test_bad_logits(score, tmp_path, name, write, message):
    write(tmp_path / name)
    for words in ((name, "shifted.npy"), ("clean.npy", name)):
        line = failure(score(*words))
        # Two shapes that differ are the fault of either file.
        if "(199, 4)" not in message:
            assert line.startswith(f"{name}: ")
        assert message in line


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("bad.npy", bad_npy(np.zeros(7, dtype=int)), "(7,)"),
        ("bad.npy", bad_npy(np.full(200, 4)), "4"),
        ("bad.npy", bad_npy(np.full(200, -1)), "-1"),
        *(
            ("bad.csv", bad_text(f"{x}\n" * 200), f"integer labels, got {x} among")
            for x in ("0.5", "inf", "1e+30", "nan")
        ),
        ("bad.csv", bad_text("1,2\n3,4\n"), "one column of labels, got 2"),
    ],
)
@pytest.mark.usefixtures("files")
def test_bad_labels(score, tmp_path, name, write, message):
    write(tmp_path / name)
    line = failure(score("clean.npy", "shifted.npy", "--labels", name))
    assert line.startswith(f"{name}: ")
    assert message in line


@pytest.fixture
def compare(files, arrays, monkeypatch):
    """Return ``robustbook compare`` beside the files of two models."""
    monkeypatch.chdir(files)
    noise = np.random.default_rng(1).normal(size=arrays["clean"].shape)
    np.save(files / "clean_b.npy", arrays["clean"] + 0.3 * noise)
    np.save(files / "shifted_b.npy", arrays["shifted"] + 2 * noise)
    return lambda *words: CliRunner().invoke(app, ["compare", *words])


TWO = ("clean.npy", "shifted.npy", "clean_b.npy", "shifted_b.npy")


def test_a_comparison_is_that_of_paired_contributions(compare):
    got = strict_json(compare(*TWO, "--labels", "labels.npy", "--json").stdout)
    logits = [np.load(name) for name in TWO]
    exact = compare_agreement(*logits)
    first, second = got["models"]
    (difference,) = got["differences"]
    assert (first["clean"], second["shifted"]) == ("clean.npy", "shifted_b.npy")
    assert (first["pa"], second["pa"]) == (exact.first.pa, exact.second.pa)
    assert difference["pa"]["value"] == exact.value
    assert difference["pa"]["interval"] == list(exact.interval)
    c, s, d, t = (one.argmax(1) for one in logits)
    labels = np.load("labels.npy")
    for name, a, b in (
        ("same_answer_rate", c == s, d == t),
        ("accuracy", c == labels, d == labels),
        ("shifted_accuracy", s == labels, t == labels),
    ):
        gap = a.astype(float) - b
        assert [first[name], second[name]] == pytest.approx([a.mean(), b.mean()])
        assert difference[name]["value"] == pytest.approx(gap.mean())
        error = gap.std(ddof=1) / math.sqrt(len(gap))
        assert difference[name]["standard_error"] == pytest.approx(error)
        low, high = difference[name]["interval"]
        assert low < gap.mean() < high
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_a_comparison_is_readable_without_labels(compare):
    result = compare(*TWO)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[3].split() == ["A", "B", "A", "-", "B", "s.e.", "95", "%", "interval"]
    assert lines[4].startswith("posterior agreement")
    assert lines[5].startswith("same-answer rate")
    assert max(map(len, lines)) < 80


def test_intervals_of_differences_of_rates_hold():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        shared, hard = random.random(60), random.random(60) < 0.5
        one = torch.from_numpy(shared < 0.9 - 0.3 * hard)
        other = torch.from_numpy(shared < 0.95 - 0.3 * hard)
        low, high = paired_rates(one, other).interval
        covered += low <= -0.05 <= high
    assert 930 <= covered <= 985
    low, high = paired_rates(one, one).interval
    assert low < 0 < high


@pytest.mark.parametrize("option", ["--seed=0", "--device=cpu", "--engine=local:2"])
def test_options_of_many_models_are_refused_with_four_files(compare, option):
    said = f"{option.partition('=')[0]}: for a list of models; leave it out here"
    assert failure(compare(*TWO, option)) == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clean_b.npy": np.zeros((9, 4))}, "shifted_b.npy: expected the shape of"),
        *(
            (
                dict.fromkeys(("clean_b.npy", "shifted_b.npy"), np.zeros(shape)),
                "clean_b.npy: expected the shape of logits_a, (200, 4)",
            )
            for shape in ((9, 4), (200, 3))
        ),
        ({"shifted_b.npy": HOLE}, "shifted_b.npy: expected finite"),
        ({"labels.npy": np.full(200, 9)}, "labels.npy: "),
        ({"labels.npy": np.zeros(3, int)}, "labels.npy: "),
    ],
)
def test_files_that_do_not_match_are_refused(compare, change, said):
    for name, array in change.items():
        np.save(name, array)
    assert failure(compare(*TWO, "--labels", "labels.npy")).startswith(said)


def program(*words, stdout=subprocess.PIPE, **setting):
    return subprocess.run(
        [sys.executable, "-m", "robustbook", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **setting},
    )


def test_version():
    assert program("--version").stdout == f"{__version__}\n"


def test_score_as_a_program_in_an_encoding_without_greek(files):
    clean = str(files / "clean.npy")
    done = program("score", clean, clean, PYTHONIOENCODING="cp1252")
    assert (done.returncode, done.stderr) == (0, "")
    assert "inverse temperature ?*      infinite" in done.stdout
    missing = program("score", clean, str(files / "gone.npy"))
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "list"]])
def test_a_full_disk_is_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = program(*words, stdout=full)
    assert done.returncode == 1
    assert done.stderr == f"robustbook: {os.strerror(errno.ENOSPC)}\n"


def test_a_closed_pipe_is_no_error(files):
    reading, writing = os.pipe()
    os.close(reading)
    done = program("--version", stdout=writing)
    os.close(writing)
    assert done.stderr == ""


def test_help_imports_no_torch():
    code = (
        "import sys, robustbook.cli\n"
        "heavy = {'torch', 'numpy', 'press'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    words = program("--help").stdout
    words = words[words.index("Commands") :]
    listed = re.findall(r"^\W*(\w+)  ", words, flags=re.MULTILINE)
    assert listed == ["score", "compare", "report", "data"]


@pytest.mark.parametrize(
    ("name", "source"),
    [("digits", "scikit-learn"), ("template-reviews", "generated")],
)
def test_data_commands(name, source):
    names = CliRunner().invoke(app, ["data", "list"]).stdout.split()
    assert {name, "sentence-polarity"} <= set(names)
    embedded = CliRunner().invoke(app, ["data", "fetch", name])
    assert (embedded.exit_code, embedded.stdout) == (0, "")
    assert f"{name} needs no file: {source}" in embedded.stderr
    unknown = CliRunner().invoke(app, ["data", "fetch", "no-such-set"])
    assert "no-such-set" in failure(unknown)


@pytest.fixture
def calibrated(files):
    """Files of a labeled source beside the pairs."""
    rng = np.random.default_rng(1)
    source = 3 * rng.normal(size=(150, 4))
    labels = (source + 2 * rng.normal(size=source.shape)).argmax(1)
    np.save(files / "source.npy", source)
    np.save(files / "known.npy", labels)
    return source, labels


def test_calibrated_on_a_source_it_estimates_the_accuracy(score, arrays, calibrated):
    words = "clean.npy", "shifted.npy", "--calibrate", "source.npy", "known.npy"
    pair = arrays["clean"], arrays["shifted"]
    expected = paired_accuracy(*pair, calibrated_on=calibrated)
    low, high = expected.interval
    line = f"accuracy, estimated +{expected.value:.4f}, {low:.4f} to {high:.4f} at 95%"
    shown = score(*words)
    assert re.search(line, shown.stdout), shown.output
    numbers = strict_json(score(*words, "--json").stdout)["paired_accuracy"]
    assert numbers["value"] == expected.value
    assert numbers["interval"] == [low, high]
    assert numbers["calibration"]["beta"] == expected.calibration.beta
    np.save("other.npy", calibrated[1] + 1)
    message = failure(score(*words[:-1], "other.npy"))
    assert message.endswith("other.npy: expected labels from 0 to 3, got 4")
    assert "none.npy: no such file" in failure(score(*words[:-1], "none.npy"))


@pytest.mark.usefixtures("score")
def test_two_models_are_compared_by_their_estimated_accuracy(arrays, calibrated):
    pairs = "clean.npy", "shifted.npy", "clean.npy", "clean.npy"
    words = "--calibrate", "source.npy", "source.npy", "known.npy", "--json"
    shown = CliRunner().invoke(app, ["compare", *pairs, *words])
    result = strict_json(shown.stdout)
    (difference,) = result["differences"]
    clean, shifted = arrays["clean"], arrays["shifted"]
    source, known = calibrated
    expected = compare_paired_accuracy(
        *(clean, shifted, clean, clean), calibrated_on=(source, source, known)
    )
    assert difference["paired_accuracy"]["value"] == expected.value
    assert difference["paired_accuracy"]["interval"] == list(expected.interval)
    assert result["models"][1]["paired_accuracy"] == expected.second.value


def test_probabilities_are_scored_as_their_logarithms(score, files, calibrated):
    for name in ("clean", "shifted", "source"):
        logits = torch.from_numpy(np.load(files / f"{name}.npy"))
        np.save(files / f"p_{name}.npy", logits.softmax(1).numpy())
    words = "--calibrate", "source.npy", "known.npy", "--json"
    logits = strict_json(score("clean.npy", "shifted.npy", *words).stdout)
    words = "--calibrate", "p_source.npy", "known.npy", "--json", "--probabilities"
    given = strict_json(score("p_clean.npy", "p_shifted.npy", *words).stdout)
    assert given["pa"] == pytest.approx(logits["pa"], abs=1e-8)
    estimates = (x["paired_accuracy"]["value"] for x in (given, logits))
    assert next(estimates) == pytest.approx(next(estimates), abs=1e-8)
    message = failure(score("clean.npy", "shifted.npy", "--probabilities"))
    assert re.search(r"clean\.npy: expected probabilities, got -", message)
