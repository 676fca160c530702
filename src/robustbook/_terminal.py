"""How every command line of the project ends: with words, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import typer

__all__ = ["fail", "run"]


def fail(message: str, *, status: int) -> NoReturn:
    """Say what went wrong on standard error and end the command."""
    print(f"robustbook: {message}", file=sys.stderr)
    raise typer.Exit(status)


def run(app: typer.Typer, *, name: str) -> None:
    """Run a command line, also where the output cannot be encoded or written.

    Parameters
    ----------
    app : typer.Typer
        The commands.
    name : str
        The name of the program in its help.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # β and ∞ are not in every terminal's encoding.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app(prog_name=name)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            print(f"robustbook: {where}{error.strerror or error}", file=sys.stderr)
        # What is left in the buffer would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
