"""The built site, and a browser to look at it with."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from press.pdf import find_chromium
from press.site import BUILD, is_fresh

ROOT = Path(__file__).resolve().parents[2]
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def skip_unless_ci(reason: str) -> None:
    """Skip with the reason; in CI, where nothing may be missing, fail with it."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True)
class Page:
    """One page of the site: its path from the root of the site, and its HTML."""

    address: str
    soup: Any = field(repr=False)

    @cached_property
    def anchors(self) -> set[str]:
        """Every identifier that a link may point at."""
        return {
            element[attribute]
            for attribute in ("id", "name")
            for element in self.soup.find_all(attrs={attribute: True})
        }

    @property
    def is_content(self) -> bool:
        """Whether an author wrote the page, rather than Sphinx."""
        return self.address.startswith("book/")

    @property
    def is_chapter(self) -> bool:
        """Whether the page is an executed chapter."""
        return self.address.startswith("book/chapters/")


@dataclass(frozen=True)
class Site:
    """The built site."""

    root: Path
    pages: dict[str, Page]

    @property
    def content(self) -> list[Page]:
        """The pages that an author wrote."""
        return [page for page in self.pages.values() if page.is_content]

    @property
    def chapters(self) -> list[Page]:
        """The executed chapters."""
        return [page for page in self.pages.values() if page.is_chapter]


@pytest.fixture(scope="session")
def site_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site strictly, or take a strict build of the same sources."""
    pytest.importorskip("bs4", reason="building the site needs the extra [book]")
    if importlib.util.find_spec("jupyter_book") is None:
        skip_unless_ci("building the site needs the extra [book]")
    built = ROOT / "_build" / "html"
    if is_fresh(ROOT, built):
        return built
    target = tmp_path_factory.mktemp("site")
    command = [*BUILD, "--path-output", str(target), str(ROOT)]
    environment = os.environ | {"NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        notable = [line for line in lines if "WARNING" in line or "ERROR" in line]
        pytest.fail(
            "the strict build failed:\n" + "\n".join(notable or lines[-40:]),
            pytrace=False,
        )
    return target / "_build" / "html"


@pytest.fixture(scope="session")
def site(site_root: Path) -> Site:
    """Return the site with all its pages parsed."""
    from bs4 import BeautifulSoup

    pages = {}
    for path in sorted(site_root.rglob("*.html")):
        address = path.relative_to(site_root).as_posix()
        if address.startswith(("_static/", "_sources/")):
            continue
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        pages[address] = Page(address, soup)
    return Site(site_root, pages)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a running Chromium."""
    program = find_chromium()
    if program is None:
        skip_unless_ci(
            "no Chromium found: install one, or name it in ROBUSTBOOK_CHROMIUM"
        )
    if importlib.util.find_spec("playwright") is None:
        skip_unless_ci("the browser tests need the extra [test] (playwright)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        yield running
        running.close()
