"""``python -m press``: the commands on chapters alone."""

import typer

from robustbook import _terminal

from .commands import register

app = typer.Typer(
    help="Sync, run, publish and check the chapters of the book.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
register(app)

if __name__ == "__main__":
    _terminal.run(app, name="python -m press")
