"""Run an experiment by name: ``python -m robustbook.experiments NAME``."""

from __future__ import annotations

from pathlib import Path

import typer

from robustbook._store import DataUnavailableError
from robustbook.experiments import run_experiment

RESULTS = Path("data/results")


def main(name: str, profile: str = "full", seed: int = 0, device: str = "auto") -> None:
    """Run experiment NAME and store its rows in data/results."""
    try:
        run_experiment(
            name, profile=profile, seed=seed, device=device, directory=RESULTS
        )
    except (ValueError, DataUnavailableError) as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    typer.run(main)
