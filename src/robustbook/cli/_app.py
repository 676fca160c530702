"""The program: its messages, its exit status, and the options that commands share."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Argument as Argument
from typer import Option as Option

from robustbook import __version__
from robustbook import _defaults as defaults

app = typer.Typer(
    help="Measure the robustness of classifiers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; an error is a message, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every terminal can encode β and ∞.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app(prog_name="robustbook")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            say(f"{where}{error.strerror or error}")
        # Python writes the rest of the buffer at its end, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def say(message: object, *_: Any, **__: Any) -> None:
    """Print a message, or a warning, on one line."""
    print("robustbook:", " ".join(str(message).split()), file=sys.stderr)


def fail(message: str, *, status: int = 2) -> NoReturn:
    """Print a message and exit."""
    say(message)
    raise typer.Exit(status)


@contextmanager
def as_messages(
    sources: Mapping[str, object] | None = None, *, resumable: bool = False
) -> Iterator[None]:
    """Print warnings and errors on one line each; exit with 2 or 1 after an error.

    The status is 2 if the arguments are wrong, 1 if the work failed. A message that
    starts with the name of an argument gets its source instead, a file or an option.
    After an interruption, it says that the command is `resumable`.
    """
    with warnings.catch_warnings():
        warnings.showwarning = say
        try:
            yield
        except (TypeError, ValueError) as error:
            argument, colon, rest = str(error).partition(":")
            source = (sources or {}).get(argument)
            fail(str(error) if source is None else f"{source}{colon}{rest}")
        except typer.Exit:  # a RuntimeError
            raise
        except (ArithmeticError, ImportError, OSError, RuntimeError) as error:
            fail(str(error), status=1)
        except KeyboardInterrupt:
            if not resumable:
                raise
            fail(
                "interrupted; the same command continues with what is kept", status=130
            )


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


_Version = Option(
    "--version",
    callback=_show_version,
    is_eager=True,
    help="Show the version and exit.",
)


@app.callback()
def _common(version: Annotated[bool, _Version] = False) -> None:
    pass


Data = Annotated[
    str,
    Option(
        help="Data set with split, such as digits:test, or a file .npz or "
        ".safetensors with images (N, C, H, W) in [0, 1] and, if known, labels."
    ),
]
Images = Annotated[
    int | None,
    Option(
        min=10, help=f"Number to draw at random; {defaults.REPORT_IMAGES} if left out."
    ),
]
Skip = Annotated[
    list[str] | None,
    Option(
        help="Lenses to leave out: agreement, average-case, margins; commas in between."
    ),
]
Eps = Annotated[
    str | None,
    Option(
        help="ℓ∞ radius of the attack, for pixels in [0, 1]. If left out: that of the "
        "training for networks of the book that had one, else 8/255."
    ),
]
Sigma = Annotated[
    float | None,
    Option(
        help="Standard deviation of the noise; if left out, as --eps, else "
        f"{defaults.SIGMA}."
    ),
]
Seed = Annotated[int, Option(min=0, help="Seed of all random numbers.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")]
EngineName = Annotated[
    str,
    Option(help="Where many models run: local, local:N processes, dask://HOST:PORT."),
]


def import_from_here() -> None:
    """Let models in the current folder be imported, as with ``python -m``."""
    sys.path.insert(0, str(Path.cwd()))


def refuse_options(context: typer.Context, kind: str, *options: str) -> None:
    """Refuse options that would have no effect; they are for another `kind`."""
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            fail(f"--{option}: for {kind}; leave it out here")
