"""Train the project's checkpoints: ``python -m robustbook.training NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from robustbook._store import DataUnavailableError
from robustbook.training import RECIPES
from robustbook.training._retrain import retrain


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(RECIPES)}.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder; data/checkpoints by default.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Train this one only, or these: --models A --models B."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Training seeds for each model.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Fewer, for a trial.")] = None,
) -> None:
    """Retrain the project's checkpoints and write their registry."""
    torch.set_num_threads(1)  # the order of sums must not depend on the cores
    try:
        retrain(name, output=output, models=models, num_seeds=seeds, epochs=epochs)
    except (ValueError, OSError, DataUnavailableError, FloatingPointError) as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    typer.run(main)
