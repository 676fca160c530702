"""Run an experiment by name: ``python -m robustbook.experiments NAME``."""

from __future__ import annotations

from pathlib import Path

import typer

from robustbook.experiments.agreement_speed import agreement_speed

EXPERIMENTS = {"agreement_speed": agreement_speed}
RESULTS = Path("data/results")


def main(name: str, profile: str = "full", seed: int = 0) -> None:
    """Run experiment NAME and store its rows in data/results."""
    if name not in EXPERIMENTS:
        known = ", ".join(sorted(EXPERIMENTS))
        raise typer.BadParameter(f"expected one of: {known}; got {name!r}.")
    EXPERIMENTS[name](profile=profile, seed=seed, directory=RESULTS)


if __name__ == "__main__":
    typer.run(main)
