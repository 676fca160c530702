"""``python -m press``: run, publish and check the chapters, build the site.

What needs the group ``book`` is imported when a command runs: ``--help`` does without.
"""

from __future__ import annotations

import ast
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from press.layout import BookError, Chapter, book_root, find_chapter, list_chapters


def _fail(message: str, *, status: int) -> NoReturn:
    """Say what went wrong on standard error and end the command."""
    print(f"press: {message}", file=sys.stderr)
    raise typer.Exit(status)


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Turn what a person can mend into a message and an exit status."""
        try:
            return super().invoke(ctx)
        except BookError as error:
            _fail(str(error), status=error.status)
        except ModuleNotFoundError as error:
            _fail(f"{error.name} is not installed; run `make env`", status=1)


app = typer.Typer(
    cls=_Commands,
    help="Run, publish and check the chapters; build and print the site.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Profile(StrEnum):
    """How much a chapter computes."""

    quick = "quick"
    full = "full"


Chapters = Annotated[
    list[str] | None, typer.Argument(help="Names or numbers; all if left out.")
]
ProfileOption = Annotated[
    Profile, typer.Option(help="quick computes all; full loads what is expensive.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def _chosen(named: list[str] | None) -> list[Chapter]:
    """The chapters that are named, else all of them."""
    folder = book_root()
    chosen = [find_chapter(folder, name) for name in named or ()]
    return chosen or list_chapters(folder)


def _parse(given: list[str] | None, **common: Any) -> dict[str, Any]:
    """Read NAME=VALUE, where a value is a Python literal or else text."""
    values = {name: value for name, value in common.items() if value is not None}
    for item in given or []:
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier():
            raise BookError(f"--parameter {item}: expected NAME=VALUE")
        try:
            values[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            values[name] = text
    return values


@app.command()
def run(
    chapter: Annotated[str, typer.Argument(help="Name or number, such as 08.")],
    profile: ProfileOption = Profile.quick,
    seed: Annotated[
        int | None, typer.Option(help="Seed; else the chapter's own.")
    ] = None,
    device: Device = "auto",
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Any other one."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Else _build/rerun/CHAPTER_PROFILE.ipynb.")
    ] = None,
) -> None:
    """Run a chapter for yourself; the published one stays as it is."""
    from press.publish import rerun

    values = _parse(parameter, profile=profile.value, seed=seed, device=device)
    (chosen,) = _chosen([chapter])
    print(rerun(chosen, parameters=values, output=output))


@app.command()
def slides(chapters: Chapters = None) -> None:
    """Make slides of published chapters, for an instructor: _build/slides."""
    from press.slides import write_slides

    for chapter in _chosen(chapters):
        print(write_slides(chapter))


@app.command()
def publish(
    chapters: Chapters = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only those whose outputs may have changed.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; else the cores.")
    ] = None,
) -> None:
    """Execute chapters for the site, all or nothing each."""
    from press.stamps import publish_new_words, staleness

    chosen = _chosen(chapters)
    if stale:
        for chapter in filter(publish_new_words, chosen):
            print(f"{chapter.name}: new text, the same outputs")
        chosen = [chapter for chapter in chosen if staleness(chapter)]
        if not chosen:
            print("no chapter has to be executed")
            return
    from press.publish import publish as publish_chapters

    if failures := publish_chapters(chosen, jobs=jobs):
        _fail("\n\npress: ".join(map(str, failures)), status=1)


@app.command()
def check() -> None:
    """Check that the book is in step, complete and readable."""
    from press.checks import check as check_book

    folder = book_root()
    problems = check_book(folder)
    for problem in problems:
        print(problem)
    if problems:
        _fail(f"{len(problems)} problems", status=1)
    print(f"{len(list_chapters(folder))} chapters: all in step, nothing stale")


@app.command()
def site() -> None:
    """Build the site strictly into _build/html, and from it the notebooks."""
    from press.pairs import sync
    from press.site import build_site
    from press.status import write_status

    folder = book_root()
    write_status(folder)
    print(build_site(folder))
    for path in sync(folder):
        print(f"wrote {path.relative_to(folder)}")


@app.command()
def pdf() -> None:
    """Print the built site into one PDF, _build/robustness-measured.pdf."""
    from press.pdf import print_book

    print(print_book(book_root()))
