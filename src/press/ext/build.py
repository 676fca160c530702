"""Build on all cores, do once what libraries repeat, and never build on what is stale.

Sphinx reads again only the pages that changed: after a change of what all pages are
made by, others would keep their old links and looks, so that is a value of the
configuration here, whose change makes Sphinx read everything. A page that was read with
a warning would pass the next strict build without a word, so no build keeps what one
with a warning has read.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import pybtex.plugin
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx_proof.domain import ProofDomain

# The inputs of every page, beside the modules of the press that run here.
_EVERY_PAGE = (
    "_config.yml",
    "_toc.yml",
    "book/_static/**/*",
    "constraints.txt",
    "src/robustbook/__init__.py",
)


def makers_of(root: Path) -> str:
    """Return the sha256 of all that every page of the book in ``root`` is made by."""
    press = [m for name, m in sys.modules.items() if name.startswith("press.")]
    files = {Path(str(module.__file__)) for module in press}
    files |= set(Path(__file__).parent.glob("*.*"))
    files |= {path for pattern in _EVERY_PAGE for path in root.glob(pattern)}
    digest = hashlib.sha256()
    for path in sorted(filter(Path.is_file, files)):
        digest.update(f"{path}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def allow_parallel_reading(app: Sphinx, *_: Any) -> None:
    """Say for two extensions that pages can be read side by side."""
    # It keeps its proofs in the environment, which it merges, and nothing here.
    ProofDomain.merge_domaindata = lambda *_: None
    # It numbers once everything is read.
    if numbering := app.extensions.get("sphinx_multitoc_numbering"):
        numbering.parallel_read_safe = True


def load_pages_once() -> None:
    """Keep the pages that references by number load, one each time."""
    resolve = StandardDomain._resolve_numref_xref
    load = cache(BuildEnvironment.get_doctree)

    def resolve_remembering(
        self: StandardDomain, env: BuildEnvironment, *args: Any
    ) -> Any:
        env.get_doctree = partial(load, env)
        try:
            return resolve(self, env, *args)
        finally:
            del env.get_doctree

    StandardDomain._resolve_numref_xref = resolve_remembering


def shown_elsewhere(env: BuildEnvironment) -> dict[str, Any]:
    """Return what pages show of others: titles, numbers, labels, names and works."""
    domains = env.domaindata
    return {
        "titles": {name: title.astext() for name, title in env.titles.items()},
        "numbers": (env.toc_secnumbers, env.toc_fignumbers, domains["math"]["objects"]),
        "labels": [domains["std"].get(x) for x in ("labels", "anonlabels", "terms")],
        "names": domains["py"]["objects"],
        "works": {c.key: repr(c.entry) for c in domains["cite"]["citations"]},
    }


def remember_what_is_shown(app: Sphinx) -> None:
    """Keep what pages showed of others before this build."""
    app.book_shown = deepcopy(shown_elsewhere(app.env))


def pages_that_show_others(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Return all pages if what they may show of others changed."""
    return env.found_docs if shown_elsewhere(env) != app.book_shown else ()


def end(app: Sphinx, exception: Exception | None) -> None:
    """Remove the pages of documents that are gone; forget pages with warnings."""
    if app._warncount or exception is not None:
        Path(app.doctreedir, ENV_PICKLE_FILENAME).unlink(missing_ok=True)
        return
    kept = {*app.env.found_docs, *app.config.redirects}
    for page in Path(app.outdir).glob("book/**/*.html"):
        if page.relative_to(app.outdir).with_suffix("").as_posix() not in kept:
            page.unlink()


def setup(app: Sphinx) -> None:
    """Read and write pages side by side, on up to four cores."""
    app.parallel = max(app.parallel, min(os.cpu_count() or 1, 4))
    app.add_config_value("book_makers", makers_of(Path(app.srcdir)), "env")
    app.connect("env-before-read-docs", allow_parallel_reading)
    load_pages_once()
    app.connect("builder-inited", remember_what_is_shown)
    app.connect("env-get-updated", pages_that_show_others)
    app.connect("build-finished", end, priority=950)
    # Asked for at each citation, it looks through all that is installed.
    pybtex.plugin.find_plugin = cache(pybtex.plugin.find_plugin)
