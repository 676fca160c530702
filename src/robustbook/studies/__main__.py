"""Run an experiment by name: ``python -m robustbook.studies NAME``."""

from __future__ import annotations

from pathlib import Path

import typer

from robustbook._store import DataUnavailableError
from robustbook.studies import run_experiment
from robustbook.studies.results import read_results

RESULTS = Path("data/results")


def main(name: str, profile: str = "full", seed: int = 0, device: str = "auto") -> None:
    """Run experiment NAME and store its rows in data/results."""
    if profile != "full" and _is_full(name):
        raise typer.BadParameter(
            f"{RESULTS / name}.json holds rows of the full profile, which those of "
            f"{profile!r} would replace; run this in another folder"
        )
    try:
        run_experiment(
            name, profile=profile, seed=seed, device=device, directory=RESULTS
        )
    except (ValueError, OSError, DataUnavailableError) as error:
        raise typer.BadParameter(str(error)) from error


def _is_full(name: str) -> bool:
    try:
        return read_results(name, directory=RESULTS).profile == "full"
    except DataUnavailableError:
        return False


if __name__ == "__main__":
    typer.run(main)
