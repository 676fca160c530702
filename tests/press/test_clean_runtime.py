"""The notebooks run where nothing but their install cell has prepared the ground.

A clean runtime, such as Colab's, has Jupyter, torch and torchvision. So has the
environment that is made here; it takes them from this one. Then the text of the
install cell is run in it, with one change: the release comes from an archive of this
checkout, made as the repository's host makes it. After that, each notebook is executed
in an empty folder, as it is committed, with no network and no data but what the release
brought.

That takes minutes for all chapters, so only one is executed here, and the packages
that the release requires, by its metadata, are taken from this environment, too. To
execute all chapters with what pip fetches: ``make clean-runtime``, which sets
ROBUSTBOOK_CLEAN_RUNTIME to ``all``. Set to ``published``, the cell is run without the
change, which needs the release.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tarfile
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import nbformat
import pytest

from press.layout import find_chapter, list_chapters
from robustbook import __version__

from ..closure import link, required_by

hatchling = pytest.importorskip("hatchling.build", reason="needs the group test")

ROOT = Path(__file__).resolve().parents[2]
WANTED = os.environ.get("ROBUSTBOOK_CLEAN_RUNTIME", "")
ALL = WANTED in ("all", "published")

pytestmark = pytest.mark.slow


#: The sample is what everybody begins with; it loads a model and attacks it.
CHAPTERS = list_chapters(ROOT) if ALL else [find_chapter(ROOT, "1")]


@dataclass(frozen=True)
class Runtime:
    """An environment as a reader finds it, and the archive of a release."""

    folder: Path
    release: Path

    def run(self, *arguments, network):
        """Run its interpreter with nothing of this checkout in sight."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROBUSTBOOK_", "PYTHON", "JUPYTER", "MPL", "XDG_"))
            and name not in ("IPYTHONDIR", "PYTEST_CURRENT_TEST")
        }
        # What is not imported need not be compiled.
        environment["PIP_NO_COMPILE"] = "1"
        if not network:
            environment["HOME"] = str(home)
            # Port 9 of this machine discards what it is sent.
            environment |= dict.fromkeys(
                ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
                "http://127.0.0.1:9",
            )
        return subprocess.run(
            [str(self.folder / "venv/bin/python"), *map(str, arguments)],
            capture_output=True, text=True, env=environment, cwd=home, check=False,
        )  # fmt: skip

    def execute(self, notebook, *, network):
        """Execute a notebook where it lies; return what its install cell said."""
        code = "from nbclient.cli import main; main()"
        words = ("--inplace", "--timeout=600", "--kernel_name=python3", notebook)
        done = self.run("-c", code, *words, network=network)
        assert done.returncode == 0, done.stderr
        cells = nbformat.read(notebook, as_version=4).cells
        (install,) = (c for c in cells if "install" in c.metadata.get("tags", []))
        return "".join(output.get("text", "") for output in install.outputs)

    def version(self, package):
        """Return the version of a package that it has."""
        code = f"from importlib.metadata import version; print(version({package!r}))"
        done = self.run("-c", code, network=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def tracked():
    """Return the files that a release of this checkout has."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    return [name for name in names.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Return an environment with Jupyter and torch, as Colab is one."""
    folder = tmp_path_factory.mktemp("runtime")
    release = folder / f"v{__version__}.tar.gz"
    with tarfile.open(release, "w:gz", compresslevel=1) as archive:
        for name in tracked():
            archive.add(ROOT / name, f"robustness-measured-{__version__}/{name}")
    made = Runtime(folder, release)
    venv.create(folder / "venv")
    # Beside the environment, so that pip leaves it alone whatever it is asked for.
    beside = folder / "beside"
    beside.mkdir()
    (packages,) = folder.glob("venv/lib/*/site-packages")
    (packages / "beside.pth").write_text(str(beside))
    names = ("pip", "torch", "torchvision", "ipykernel", "nbclient")
    there = [metadata.distribution(name) for name in names]
    brought = [*there, *(package for outer in there for package in required_by(outer))]
    if not ALL:  # What pip would fetch for a minute: what the release asks for.
        with contextlib.chdir(ROOT):
            about = hatchling.prepare_metadata_for_build_wheel(str(folder))
        brought += required_by(metadata.Distribution.at(folder / about), ["chapters"])
    for package in brought:
        link(package, beside)
    return made


@pytest.fixture(scope="module")
def prepared(runtime):
    """Return that environment after the install cell was run in it."""
    torch = runtime.version("torch")
    notebook = nbformat.read(list_chapters(ROOT)[0].pair, as_version=4)
    (cell,) = (c for c in notebook.cells if "install" in c.metadata.get("tags", []))
    if WANTED != "published":
        (address,) = set(re.findall(r"@ (https://[^\s\"#]+)", cell.source))
        cell.source = cell.source.replace(address, runtime.release.as_uri())
    notebook.cells = [cell]
    path = runtime.folder / "install.ipynb"
    nbformat.write(notebook, path)
    assert "ERROR" not in runtime.execute(path, network=True)
    assert runtime.version("robustbook") == __version__
    # Some hundred megabytes that a runtime has are left as they are.
    assert runtime.version("torch") == torch
    return runtime


def test_what_is_installed_fits_together(prepared):
    done = prepared.run("-m", "pip", "check", network=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_a_notebook_runs_with_what_its_install_cell_brought(
    prepared, chapter, tmp_path
):
    notebook = Path(shutil.copy(chapter.pair, tmp_path))
    # The second time, the cell does nothing, and needs no network for it.
    assert prepared.execute(notebook, network=False) == ""
    assert list(tmp_path.iterdir()) == [notebook]
