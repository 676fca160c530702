"""What all tests share: how they are spread over workers, data, a browser.

``make test`` runs them with pytest-xdist. A file stays on one worker, so that what its
tests share is made once; chapters are shared out one by one.
"""

import importlib.util
import os
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, however slow the machine.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")

# As many workers as cores: torch must not start as many threads in each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: Of chapters and of studies, so that both look at the same rows. The published: 0.
RUN_SEED = 1
#: What a study draws with in that run, as `robustbook.studies.run` has it.
SEED = 10_000 * RUN_SEED


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file on one worker, and those of the site, built once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        # The groups of xdist 3.8 do nothing under pytest 9.2.
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if file == "tests/press/test_chapters.py":
                return nodeid
            return "site" if file.startswith("tests/site/") else file

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def run_folder(tmp_path_factory):
    """The folder of all workers, with a cache of this run.

    What the user's holds may be of another processor, on which trainings end with
    other weights.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBUSTBOOK_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """An empty cache, no data folder, and a download that fails."""
    import pooch

    from robustbook._store import files

    def refuse(**_):
        raise ConnectionError("no network")

    monkeypatch.delenv("ROBUSTBOOK_DATA", raising=False)
    monkeypatch.setattr(files, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", refuse)


#: Where public files lie, if anywhere.
FOLDER = Path(os.environ.get("ROBUSTBOOK_DATA", "") or "nowhere")


def needs_folder(name):
    """Mark a test that reads files of the data folder."""
    return pytest.mark.skipif(
        not (FOLDER / name).is_dir(),
        reason=f"{name} is not in the folder that ROBUSTBOOK_DATA names",
    )


def require(name):
    """Skip without a package of the extras; in CI, nothing may be missing."""
    if importlib.util.find_spec(name) is None:
        missing(f"{name} is not installed; `make env` installs it")


def missing(reason):
    """Skip; in CI, fail."""
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    """Return a running Chromium: one for a worker, which cannot start a second."""
    from press.pdf import find_chromium

    program = find_chromium()
    if program is None:
        missing("no Chromium found: install one, or name it in ROBUSTBOOK_CHROMIUM")
    require("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *("--disable-background-networking", "--disable-sync"),
                "--disable-component-update",
            ],
        )
        yield running
        running.close()
