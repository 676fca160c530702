"""What README offers works after the very ``pip install`` that it names.

The wheel is built and installed, without its dependencies, into an empty environment.
Beside it lie links to what the wheel's metadata ask for, in turn, and to nothing else
of this environment: what a user has after the installation, in seconds and without a
network.
"""

import contextlib
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from .closure import link, required_by

hatchling = pytest.importorskip("hatchling.build", reason="needs the group test")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DATA = ("README.md", "checkpoints", "reported", "results")

HEAVY = {"matplotlib", "seaborn", "jinja2", "sklearn", "pandas", "torchvision"}
MISSING = {
    "from robustbook.agreement import PosteriorAgreement": ("torchmetrics", "metric"),
    "from robustbook.datasets import fetch; fetch('mnist')": ("pooch", "data"),
    "import robustbook.attacks.foolbox_runs": ("eagerpy", "attacks"),
    "from robustbook.style import use_style; use_style()": ("seaborn", "chapters"),
}


def built(project, folder):
    """Return the wheel of a folder with a pyproject.toml."""
    with contextlib.chdir(project):
        return folder / hatchling.build_wheel(str(folder))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def data_wheel(tmp_path_factory):
    return built(ROOT / "data", tmp_path_factory.mktemp("data_wheel"))


@pytest.fixture(scope="module")
def folder(wheel, tmp_path_factory):
    """An environment with the wheel alone, and arrays under the names of README."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    random = np.random.default_rng(0)
    logits = random.normal(size=(40, 3))
    for name in ("clean", "shifted", "other_clean", "other_shifted"):
        np.save(folder / f"{name}.npy", logits + 0.1 * random.normal(size=(40, 3)))
    np.save(folder / "labels.npy", logits.argmax(1))
    source = 2 * random.normal(size=(200, 3))
    np.save(folder / "source.npy", source)
    right = (source + random.gumbel(size=source.shape)).argmax(1)
    np.save(folder / "source_labels.npy", right)
    return folder


def installed(folder, *extras):
    """Return what runs a command where the wheel is installed with some extras."""
    (metadata,) = folder.rglob("robustbook-*.dist-info/METADATA")
    beside = folder / "-".join(["beside", *extras])
    beside.mkdir()
    for package in required_by(Distribution.at(metadata.parent), extras):
        link(package, beside)
    ours = ("PYTHON", "ROBUSTBOOK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["ROBUSTBOOK_CACHE"] = str(folder / "cache")
    environment["PYTHONPATH"] = str(beside)

    def run(program, *words):
        command = [str(folder / "bin" / program), *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=folder,
            check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def plain(folder):
    """``run`` where ``pip install .`` was done."""
    return installed(folder)


def answer(plain, program):
    """Return the lines that a Python program prints; neither it nor Python warns."""
    done = plain("python", "-W", "error", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def offered(command):
    """Return README's call of a command."""
    # Behind the first call of a kind stands its form for many models.
    line = re.findall(rf"^robustbook {command} .*$", README, re.MULTILINE)[0]
    return line.partition("#")[0].split()


def committed(*paths):
    """Return the files below some paths that are committed, or that could be."""
    listing = ["git", "ls-files", "-zco", "--exclude-standard", *paths]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if (ROOT / name).is_file()}


def carried(wheel):
    """Return what a wheel installs, its own description left out."""
    names = set(zipfile.ZipFile(wheel).namelist())
    return {name for name in names if ".dist-info/" not in name}


def test_the_wheel_carries_the_package_and_what_its_interface_reads(wheel):
    names = committed("src/robustbook", *(f"data/{part}" for part in DATA[:3]))
    assert carried(wheel) == {
        name.replace("src/", "").replace("data/", "robustbook/_data/", 1)
        for name in names
        if not name.endswith(".safetensors") or "/digits-" in name
    }
    assert "robustbook/py.typed" in carried(wheel)
    assert sum(one.file_size for one in zipfile.ZipFile(wheel).infolist()) < 5e6


def test_the_data_package_carries_all_data_and_its_license(data_wheel):
    names = committed(*(f"data/{part}" for part in DATA))
    assert carried(data_wheel) == {
        "robustbook_data/LICENSE",
        *(name.replace("data/", "robustbook_data/", 1) for name in names),
    }


def test_what_needs_the_data_package_says_so_in_one_line_and_uses_it(plain, data_wheel):
    with zipfile.ZipFile(data_wheel) as archive:
        archive.extractall(f"{data_wheel}-unpacked")
    *missing, network, results = answer(
        plain,
        f"""
import sys
from robustbook.models import load_model
from robustbook.studies import read_results

def report(action, name):
    try:
        print(type(action(name)).__name__)
    except RuntimeError as error:
        print(error)

for _ in range(2):
    report(load_model, "mnist-cnn")
    report(read_results, "agreement_speed")
    sys.path.append({str(data_wheel)!r} + "-unpacked")
""",
    )
    assert (network, results) == ("Sequential", "Results")
    assert len(missing) == 2
    assert all("pip install ./data" in line for line in missing)


def test_readme_on_a_package_index_has_no_relative_links(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    links = re.findall(r'\]\(([^)]+)\)|(?:src|srcset|href)="([^"]+)"', text)
    assert len(links) > 6
    assert {urlsplit(link or other).scheme for link, other in links} == {"https"}


def test_readme_names_the_installations_that_are_tried_here():
    lines = re.findall(r"^pip install (.*)$", README, re.MULTILINE)
    assert lines == [
        "torch --index-url https://download.pytorch.org/whl/cpu",
        ".",
        "'.[report]'",
    ]


def test_a_plain_installation_runs_the_lines_of_readme(plain):
    (readme,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    *numbers, loaded = answer(
        plain,
        "import numpy, sys\n"
        "logits, shifted_logits, source_logits, source_labels = map(numpy.load,"
        " ('clean.npy', 'shifted.npy', 'source.npy', 'source_labels.npy'))\n"
        f"{readme}print({HEAVY} & set(sys.modules))\n",
    )
    assert (len(numbers), loaded) == (3, "set()")


@pytest.mark.parametrize("command", ["score", "compare", "data"])
def test_a_plain_installation_has_the_commands_of_readme(plain, command):
    done = plain(*offered(command))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= 4


def test_a_plain_installation_has_every_room_and_networks_and_images(plain):
    package = ROOT / "src" / "robustbook"
    names = {path.parent.name for path in package.glob("[a-z]*/__init__.py")}
    names |= {path.stem for path in package.glob("[a-z]*.py")}
    rooms = ", ".join(f"robustbook.{name}" for name in sorted(names - {"studies"}))
    program = (
        f"import {rooms}\n"
        "test = robustbook.datasets.load_dataset('digits', 'test')\n"
        "model = robustbook.models.load_model('digits-cnn-s0')\n"
        "logits = robustbook.models.logits_of(model, test.images)\n"
        "print(robustbook.scores.accuracy(logits, test.labels) > 0.95)\n"
    )
    assert answer(plain, program) == ["True"]


def test_what_is_missing_names_its_extra(plain):
    program = (
        f"for line in {list(MISSING)}:\n"
        "    try:\n"
        "        exec(line)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error)\n"
    )
    assert answer(plain, program) == [
        f'{package} is not installed; pip install "robustbook[{extra}]"'
        for package, extra in MISSING.values()
    ]


def test_report_without_its_extra_says_so_in_one_line(plain):
    done = plain(*report_on_digits())
    assert done.returncode == 1
    assert done.stderr.endswith('is not installed; pip install "robustbook[report]"\n')
    assert len(done.stderr.splitlines()) == 1


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
