"""What README offers works after the very ``pip install`` that it names.

The wheel is built and installed, without its dependencies, into an empty environment.
Beside it lie links to what the wheel's metadata ask for, in turn, and to nothing else
of this environment: what a user has after the installation, in seconds and without a
network.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path

import numpy as np
import pytest

from .closure import link, needed

hatchling = pytest.importorskip("hatchling.build", reason="needs the extra [test]")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
CARRIED = ("checkpoints", "reported", "results")
SCRIPTS = "Scripts" if os.name == "nt" else "bin"

Run = Callable[..., subprocess.CompletedProcess[str]]


#: What is asked of one Python, one after the other: the start of torch takes seconds.
ASK = """
import contextlib, io, json, sys
from importlib.metadata import entry_points

(command,) = entry_points(group="console_scripts", name="robustbook")
answers = {}
for name, code, argv in json.load(sys.stdin):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            sys.argv = argv
            exec(code, {}) if code else command.load()()
        except SystemExit as end:
            status = end.code or 0
    answers[name] = status, out.getvalue(), err.getvalue()
print(json.dumps(answers))
"""
HEAVY = {"matplotlib", "seaborn", "jinja2", "sklearn", "pandas", "torchvision"}
MISSING = {
    "from robustbook.agreement import PosteriorAgreement": ("torchmetrics", "metric"),
    "from robustbook.datasets import fetch; fetch('mnist')": ("pooch", "data"),
    "import robustbook.attacks.foolbox_runs": ("eagerpy", "attacks"),
    "from robustbook.style import use_style; use_style()": ("matplotlib", "chapters"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with contextlib.chdir(ROOT):
        return folder / hatchling.build_wheel(str(folder))


@pytest.fixture(scope="module")
def folder(wheel, tmp_path_factory):
    """An environment with the wheel alone, and arrays under the names of README."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / SCRIPTS / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    random = np.random.default_rng(0)
    logits = random.normal(size=(40, 3))
    for name in ("clean", "shifted", "other_clean", "other_shifted"):
        np.save(folder / f"{name}.npy", logits + 0.1 * random.normal(size=(40, 3)))
    np.save(folder / "labels.npy", logits.argmax(1))
    return folder


def installed(folder, *extras):
    """Return what runs a command where the wheel is installed with some extras."""
    (metadata,) = folder.rglob("robustbook-*.dist-info/METADATA")
    beside = folder / "-".join(["beside", *extras])
    beside.mkdir()
    for found in needed(Distribution.at(metadata.parent), extras):
        link(found, beside)
    ours = ("PYTHON", "ROBUSTBOOK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["ROBUSTBOOK_CACHE"] = str(folder / "cache")
    environment["PYTHONPATH"] = str(beside)

    def run(program, *words, said=""):
        return subprocess.run(
            [str(folder / SCRIPTS / program), *words], input=said, capture_output=True,
            text=True, env=environment, cwd=folder, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def plain(folder):
    """``run`` where ``pip install .`` was done."""
    return installed(folder)


@pytest.fixture(scope="module")
def answers(plain):
    """Status, output and errors of all that is asked of a plain installation."""
    (readme,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    lines = (
        "import numpy, sys\n"
        "logits, shifted_logits = map(numpy.load, ('clean.npy', 'shifted.npy'))\n"
        f"{readme}print({HEAVY} & set(sys.modules))\n"
    )
    missing = (
        f"for line in {list(MISSING)}:\n"
        "    try:\n"
        "        exec(line)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error)\n"
    )
    package = ROOT / "src" / "robustbook"
    names = {path.parent.name for path in package.glob("[a-z]*/__init__.py")}
    names |= {path.stem for path in package.glob("[a-z]*.py")}
    rooms = ", ".join(f"robustbook.{name}" for name in sorted(names - {"studies"}))
    images = (
        f"import {rooms}\n"
        "test = robustbook.datasets.load_dataset('digits', 'test')\n"
        "model = robustbook.models.load_model('digits-cnn-s0')\n"
        "logits = robustbook.models.logits_of(model, test.images)\n"
        "print(robustbook.scores.accuracy(logits, test.labels) > 0.95)\n"
    )
    # The lines first: they see what is loaded.
    asked = [("lines", lines, []), ("missing", missing, []), ("images", images, [])]
    asked += [(name, "", offered(name)) for name in ("score", "compare")]
    asked += [("report", "", report_on_digits())]
    done = plain("python", "-W", "error", "-c", ASK, said=json.dumps(asked))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def offered(command):
    """Return README's call of a command."""
    # Behind the first call of a kind stands its form for many models.
    line = re.findall(rf"^robustbook {command} .*$", README, re.MULTILINE)[0]
    return line.partition("#")[0].split()


def test_the_wheel_carries_the_package_and_its_data_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    carried = {name for name in names if ".dist-info/" not in name}
    listing = ["git", "ls-files", "-zco", "--exclude-standard", "src/robustbook"]
    listing += [f"data/{folder}" for folder in CARRIED]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {
        re.sub("^src/", "", re.sub("^data/", "robustbook/_data/", name))
        for name in done.stdout.split("\0")
        if (ROOT / name).is_file()
    }
    assert carried == expected
    assert "robustbook/py.typed" in carried
    assert not [name for name in names if "/." in name]


def test_readme_names_the_installations_that_are_tried_here():
    lines = re.findall(r"^pip install (.*)$", README, re.MULTILINE)
    assert lines == [
        "torch --index-url https://download.pytorch.org/whl/cpu",
        ".",
        "'.[report]'",
    ]


def test_a_plain_installation_runs_the_lines_of_readme(answers):
    status, out, err = answers["lines"]
    *numbers, loaded = out.splitlines()
    assert (status, err, len(numbers), loaded) == (0, "", 2, "set()")


@pytest.mark.parametrize("command", ["score", "compare"])
def test_a_plain_installation_has_the_commands_of_readme(answers, command):
    status, out, err = answers[command]
    assert (status, err) == (0, "")
    assert len(out.splitlines()) >= 4


def test_a_plain_installation_has_a_program(plain):
    done = plain(*offered("data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= 4


def test_a_plain_installation_has_every_room_and_networks_and_images(answers):
    assert answers["images"] == [0, "True\n", ""]


def test_what_is_missing_names_its_extra(answers):
    assert answers["missing"][1].splitlines() == [
        f'{package} is not installed; pip install "robustbook[{extra}]"'
        for package, extra in MISSING.values()
    ]


def test_report_without_its_extra_says_so_in_one_line(answers):
    status, _, err = answers["report"]
    assert status == 1
    assert 'are not installed; pip install "robustbook[report]"' in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_report_works_with_the_extra_that_readme_names(folder):
    few = ["--images", "10", "--attack-steps", "2", "--noise-samples", "4"]
    command = [*report_on_digits(), *few, "--margin-images", "4"]
    done = installed(folder, "report")(*command)
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").stat().st_size > 10_000


def report_on_digits():
    """Return README's call of ``robustbook report`` with the names that it gives."""
    (names,) = re.findall(r"^robustbook report .*# (\S+), (\S+)$", README, re.MULTILINE)
    model, data = names
    return [{"MODEL": model, "DATA": data}.get(x, x) for x in offered("report")]


def test_an_editable_installation_has_the_press_too(tmp_path):
    with contextlib.chdir(ROOT):
        built = tmp_path / hatchling.build_editable(str(tmp_path))
    with zipfile.ZipFile(built) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".pth"))
        folders = archive.read(path).decode().split()
    assert folders == [str(ROOT / "src")]
    assert (Path(folders[0]) / "press" / "__main__.py").is_file()
