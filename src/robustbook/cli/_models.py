"""The commands ``report`` and ``data``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from robustbook import _defaults as defaults
from robustbook.cli import _app
from robustbook.cli._app import Argument, Option, as_messages

data = typer.Typer(help="Data sets of the book.", no_args_is_help=True)
_app.app.add_typer(data, name="data")


@_app.app.command()
def report(
    context: typer.Context,
    model: Annotated[
        str,
        Argument(
            help="A name of load_model, robustbench:NAME, or an import path "
            "package.module:attribute; or a list of models, MODELS.txt, one a line."
        ),
    ],
    data: _app.Data,
    out: Annotated[Path, Option(help="The page to write.")],
    images: _app.Images = None,
    minutes: Annotated[
        float | None,
        Option(help="Take as many images as fit into this time, at most --images."),
    ] = None,
    calibrate: Annotated[
        str | None,
        Option(
            help="Labeled images, named as --data, that were not used for training, "
            "for an estimate of the accuracy under each shift; if left out, labeled "
            "images of --data that are not measured."
        ),
    ] = None,
    skip: _app.Skip = None,
    eps: _app.Eps = None,
    sigma: _app.Sigma = None,
    severity: Annotated[
        int, Option(min=1, max=5, help="Severity of the corruptions.")
    ] = defaults.SEVERITY,
    attack_steps: Annotated[
        int, Option(min=1, help="Steps of PGD.")
    ] = defaults.ATTACK_STEPS,
    noise_samples: Annotated[
        int, Option(min=2, help="Noisy copies of each image.")
    ] = defaults.NOISE_SAMPLES,
    margin_images: Annotated[
        int, Option(min=2, help="Images whose input margins are measured.")
    ] = defaults.MARGIN_IMAGES,
    seed: _app.Seed = 0,
    device: _app.Device = "auto",
    engine: _app.EngineName = "local",
    numbers: Annotated[
        Path | None,
        Option("--json", help="Write all numbers, also those of each image."),
    ] = None,
) -> None:
    """Write a page on one model, or on many: agreement, average case, margins.

    The exit status is 1 if a listed model could not be measured; the page says why.

    \b
    robustbook report digits-cnn-s0 --data digits:test --out page.html
    robustbook report models.txt --data digits:test --out page.html --engine local:2
    """
    # The other parameters have the names of the fields of a request.
    options = {n: value for n, value in context.params.items() if n != "engine"}
    many = model.endswith(".txt")
    with as_messages(resumable=True):
        from robustbook.report import Request, make, sweep

        if many or (":" in model and not model.startswith("robustbench:")):
            _app.import_from_here()
        if many:
            _app.refuse_options(context, "one model", "calibrate", "minutes")
            results = sweep(Request(**options), engine)
            results.write(out, numbers)
            count = len(results.rows)
            print(f"{out}: {count - len(results.failures)} of {count} models")
            for name, why in results.failures.items():
                _app.say(f"{name}: not measured: {why}")
            raise typer.Exit(bool(results.failures))
        _app.refuse_options(context, "a list of models", "engine")
        seconds = make(Request(**options))
    print(f"{out}: {seconds:.0f} s")


@data.command()
def fetch(
    name: Annotated[str, Argument(help="For example mnist; see data list.")],
) -> None:
    """Fetch a data set, or find it in ROBUSTBOOK_DATA, and verify its checksums."""
    from robustbook import datasets

    with as_messages():
        files = datasets.fetch(name)
        if not files:
            source = datasets.dataset_spec(name).source
            print(f"{name} needs no file: {source}", file=sys.stderr)
        for path in files:
            print(path)


@data.command(name="list")
def list_data() -> None:
    """List the data sets."""
    from robustbook.datasets import list_datasets, list_sentences, list_votes

    print(*list_datasets(), *list_sentences(), *list_votes(), sep="\n")
