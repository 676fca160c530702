"""The commands on chapters, for ``robustbook`` and ``python -m press``.

What they need to run is imported when they run: a plain ``robustbook --help``
answers at once, and works without the extra ``book``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustbook._terminal import fail

if TYPE_CHECKING:
    from .layout import Chapter

__all__ = ["register"]


class Profile(StrEnum):
    """How much a chapter computes."""

    quick = "quick"
    full = "full"


class Purpose(StrEnum):
    """What a set-up is for."""

    scoring = "scoring"
    workshop = "workshop"
    full = "full"
    developing = "developing"


Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the book; else the nearest at or above this one."),
]
ProfileOption = Annotated[
    Profile, typer.Option(help="quick computes all; full loads what is expensive.")
]
Seed = Annotated[int | None, typer.Option(help="Seed; else the chapter's own.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Any other one."),
]


_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|mps")


def register(app: typer.Typer) -> None:
    """Add the commands on chapters to a command line."""
    for command in (run, publish, time, sync, check, doctor):
        app.command()(command)


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Turn what a person can mend into a message and an exit status."""
    try:
        from .layout import BookError
        from .source import Source  # noqa: F401  (needs the extra)
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; pip install "robustbook[book]"', status=1)
    try:
        yield
    except BookError as error:
        fail(str(error), status=error.status)


def _chosen(root: Path | None, named: list[str] | None) -> list[Chapter]:
    """The chapters that are named, else all of them."""
    from .layout import book_root, find_chapter, list_chapters

    folder = book_root(root)
    if not named:
        return list_chapters(folder)
    return [find_chapter(folder, name) for name in named]


def _parse(given: list[str] | None, **common: Any) -> dict[str, Any]:
    """Read NAME=VALUE, where a value is a Python literal or else text."""
    from .layout import BookError

    values = {name: value for name, value in common.items() if value is not None}
    for item in given or []:
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier():
            raise BookError(f"--parameter {item}: expected NAME=VALUE")
        try:
            values[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            values[name] = text
    device = str(values.get("device", "auto"))
    if not _DEVICE.fullmatch(device):
        raise BookError(
            f"--device {device}: expected auto, cpu, cuda, cuda:N (a number) or mps"
        )
    return values


def run(
    chapter: Annotated[str, typer.Argument(help="Name or number, such as 08.")],
    profile: ProfileOption = Profile.quick,
    seed: Seed = None,
    device: Device = "auto",
    parameter: Parameters = None,
    output: Annotated[
        Path | None, typer.Option(help="Else _build/rerun/CHAPTER_PROFILE.ipynb.")
    ] = None,
    root: Root = None,
) -> None:
    """Run a chapter for yourself; the published one stays as it is."""
    with _readable_errors():
        from .layout import book_root, find_chapter
        from .publish import rerun

        values = _parse(parameter, profile=profile.value, seed=seed, device=device)
        found = find_chapter(book_root(root), chapter)
        print(rerun(found, parameters=values, output=output))


def publish(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Names or numbers; all if left out.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only those whose inputs changed.")
    ] = False,
    profile: ProfileOption = Profile.full,
    device: Device = "cpu",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; else the cores.")
    ] = None,
    root: Root = None,
) -> None:
    """Execute chapters for the site, all or nothing each."""
    with _readable_errors():
        from .publish import publish as publish_chapters
        from .stamps import staleness

        chosen = _chosen(root, chapters)
        if stale:
            chosen = [chapter for chapter in chosen if staleness(chapter)]
        if not chosen:
            print("no chapter is stale")
            return
        failures = publish_chapters(
            chosen,
            parameters=_parse(None, profile=profile.value, device=device),
            jobs=jobs,
        )
        if failures:
            fail("\n\nrobustbook: ".join(map(str, failures)), status=1)


def time(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Names or numbers; all if left out.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only those that were never timed.")
    ] = False,
    root: Root = None,
) -> None:
    """Time chapters in profile quick, and their solutions, for the workshop guide."""
    with _readable_errors():
        from .timings import read_timings, time_quick

        chosen = _chosen(root, chapters)
        if missing and chosen:
            timed = read_timings(chosen[0].root)
            chosen = [c for c in chosen if "quick" not in timed.get(c.name, {})]
        if not chosen:
            print("every chapter is timed")
        for chapter, seconds in time_quick(chosen):
            print(f"{chapter.name}: {seconds:.1f} s", flush=True)


def sync(root: Root = None) -> None:
    """Write the notebooks, the status page and the pictures from their sources."""
    with _readable_errors():
        from .layout import book_root, list_chapters
        from .picture import write_pictures
        from .source import sync as sync_chapter
        from .status import status_page, write_status

        folder = book_root(root)
        written = [c.pair for c in list_chapters(folder) if sync_chapter(c)]
        if write_status(folder):
            written.append(status_page(folder))
        written += write_pictures(folder)
        for path in written:
            print(f"wrote {path.relative_to(folder)}")
        if not written:
            print("all in step")


def check(root: Root = None) -> None:
    """Check that the book is in step, complete and readable."""
    with _readable_errors():
        from .checks import check as check_book
        from .layout import book_root, list_chapters

        folder = book_root(root)
        problems = check_book(folder)
        for problem in problems:
            print(problem)
        if problems:
            fail(f"{len(problems)} problems", status=1)
        print(f"{len(list_chapters(folder))} chapters: all in step, nothing stale")


def doctor(
    purpose: Annotated[
        Purpose,
        typer.Option(
            "--for",
            help="scoring logits; a workshop: any chapter; full: recomputing with real "
            "data; developing: tests and site. Reading needs a browser only.",
        ),
    ] = Purpose.workshop,
    run: Annotated[
        bool, typer.Option("--run", help="Run chapter 08 in profile quick too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    root: Root = None,
) -> None:
    """Say what is missing on this machine, and the command that gets it."""
    from . import doctor as checks
    from .layout import BookError

    try:
        setting = checks.Setting(checks.find_clone(root))
    except BookError as error:
        fail(str(error), status=error.status)
    status = checks.report(setting, purpose.value, run=run, as_json=as_json)
    if status:
        raise typer.Exit(status)
