"""Build on all cores, do once what libraries repeat, and stamp what built cleanly.

Sphinx reads again only the pages that changed: one that was read with a warning passes
the next strict build without a word. So a build with warnings makes it forget what it
remembers, and the next one starts afresh.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import pybtex.plugin
from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx_proof.domain import ProofDomain

from press.site import remove_stamp, stamp_of, write_stamp


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


def begin(app: Sphinx) -> None:
    """Remove the stamp of an earlier build; note the sources as they are now."""
    remove_stamp(Path(app.outdir))
    app.book_stamp = stamp_of(Path(app.srcdir))
    app.book_shown = deepcopy(shown_elsewhere(app.env))


def pages_that_show_others(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Return all pages if what they may show of others changed."""
    return env.found_docs if shown_elsewhere(env) != app.book_shown else ()


def end(app: Sphinx, exception: Exception | None) -> None:
    """Stamp the build, or make the next one start afresh."""
    if app._warncount or exception is not None:
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)
    elif app.builder.format == "html" and app.config.nitpicky:
        write_stamp(Path(app.outdir), app.book_stamp)


def setup(app: Sphinx) -> None:
    """Read and write pages side by side, on up to four cores."""
    app.parallel = max(app.parallel, min(os.cpu_count() or 1, 4))
    app.connect("env-before-read-docs", allow_parallel_reading)
    load_pages_once()
    app.connect("builder-inited", begin)
    app.connect("env-get-updated", pages_that_show_others)
    app.connect("build-finished", end, priority=950)
    # Asked for at each citation, it looks through all that is installed.
    pybtex.plugin.find_plugin = cache(pybtex.plugin.find_plugin)
