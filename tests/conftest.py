"""How the tests share two cores: what goes together, what goes first, one thread each.

``make test`` runs them with pytest-xdist. A file stays on one worker, so that what its
fixtures make is made once; so do all tests of the site, which share one build and one
browser. Chapters go one by one.
"""

import importlib.util
import os
from pathlib import Path

import pytest

# As many workers as cores: torch must not start as many threads in each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SITE = "tests/site/"
CHAPTERS = "tests/press/test_chapters.py"
RUNTIME = "tests/press/test_clean_runtime.py"
STUDIES = "tests/studies/"
#: Of chapters and of studies, so that both look at the same rows. The published: 0.
RUN_SEED = 1
#: What a study draws with in that run, as `robustbook.studies.run` has it.
SEED = 10_000 * RUN_SEED


def unit_of(nodeid):
    """Return the name of what stays on one worker."""
    if nodeid.startswith(SITE):
        return SITE
    return nodeid if nodeid.startswith(CHAPTERS) else nodeid.split("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out the units in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)


def pytest_collection_modifyitems(config, items):
    """On several workers, begin with what takes longest: the small fill the end.

    The last chapters come first: audits measure what several lessons show, and what a
    chapter has measured is not what the first tests of studies ask for at that moment.
    """
    if not hasattr(config, "workerinput"):
        return
    later = {id(item): -k for k, item in enumerate(items)}
    slow = {unit_of(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item):
        unit = unit_of(item.nodeid)
        first = [SITE, RUNTIME, CHAPTERS, STUDIES]
        for number, name in enumerate(first):
            if unit.startswith(name):
                return number, later[id(item)] if name == CHAPTERS else 0
        return len(first) + (unit not in slow), 0

    items.sort(key=rank)


@pytest.fixture(scope="session", autouse=True)
def rows_once(tmp_path_factory):
    """The script by which rows of studies are measured once for all workers.

    Their cache is this run's: what the user's holds may be of another processor, on
    which trainings end with other weights.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWS_ONCE", str(folder))
        patch.setenv("ROBUSTBOOK_CACHE", str(folder / "cache"))
        yield Path(__file__).parent / "studies" / "rows_once.py"


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
