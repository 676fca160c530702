"""``python -m robustbook.studies``: run a study, list all, or check for stale rows."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import typer

from robustbook._store import DataUnavailableError, data_directory
from robustbook._store.cache import DeadlineError
from robustbook.studies import STUDIES, run_study
from robustbook.studies._stored import confirm_results
from robustbook.studies._study import UNFINISHED
from robustbook.studies.results import read_results, stale_results


def main(
    name: Annotated[str, typer.Argument(help="a study, all, check, or confirm")] = "",
    confirmed: Annotated[str, typer.Argument(help="after confirm: a study")] = "",
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    engine: Annotated[
        str, typer.Option(help="local, local:N, or dask://HOST:PORT of a scheduler")
    ] = "local",
    minutes: Annotated[
        float | None, typer.Option(help="begin no part after so many; 9 for all")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="for all: measure again what is older")
    ] = None,
    evidence: Annotated[str, typer.Option(help="why stored rows are right")] = "",
    overview: Annotated[bool, typer.Option("--list", help="list all studies")] = False,
) -> None:
    """Run study NAME and store its rows in the project's data/results.

    A study that --minutes stops ends with status 3, and the same command goes on.
    `all` runs the studies whose rows are of other code or another kind of device, the
    cheapest first. `check` lists stored results that the present
    code may not reproduce. `confirm NAME --evidence TEXT` stamps stored rows that are
    known to be those of the present code.
    """
    try:
        if overview:
            _list()
        elif name == "check":
            _check()
        elif name == "all":
            _all(device, engine, 9.0 if minutes is None else minutes, since)
        elif name == "confirm":
            _confirm(confirmed, evidence)
        else:
            _run(name, profile, seed, device, engine, minutes)
    except typer.Exit:  # a RuntimeError
        raise
    except (KeyboardInterrupt, DeadlineError) as stop:
        print(
            f"{name}: interrupted; what was measured is kept, and the same command "
            "goes on from there",
            file=sys.stderr,
        )
        late = isinstance(stop, DeadlineError)
        raise typer.Exit(UNFINISHED if late else 130) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


def _list() -> None:
    stale = {result.name for result in stale_results(data_directory().parent)}
    for name, study in STUDIES.items():
        seconds = study.forecast()
        took = "unknown" if seconds is None else _duration(seconds)
        print(f"{name:22} {took:>9}  {'stale' if name in stale else ''}".rstrip())


def _check() -> None:
    stale = stale_results(data_directory().parent)
    for result in stale:
        print(result)
    if stale:
        raise typer.Exit(1)


def _all(device: str, engine: str, minutes: float, since: datetime | None) -> None:
    from robustbook.studies._all import run_slice

    if since is not None:
        since = since.astimezone()
    root = data_directory().parent
    waiting = run_slice(
        root, device=device, engine=engine, minutes=minutes, since=since
    )
    if waiting:
        print(f"still to measure: {', '.join(waiting)}")
        raise typer.Exit(UNFINISHED)


def _confirm(name: str, evidence: str) -> None:
    if name not in STUDIES:
        raise ValueError(f"confirm: expected a study after it, got {name!r}")
    stored = read_results(name)
    stamp = STUDIES[name].stamp(stored.profile)
    confirm_results(name, stamp=stamp, evidence=evidence)
    print(f"{name}: stamped with the present code, options and inputs")


def _run(
    name: str, profile: str, seed: int, device: str, engine: str, minutes: float | None
) -> None:
    if profile != "full" and _is_full(name):
        raise ValueError(
            f"{data_directory() / 'results' / name}.json holds rows of the full "
            f"profile, which those of {profile!r} would replace; "
            "results_for computes them without storing them"
        )
    seconds = STUDIES[name].forecast() if name in STUDIES else None
    if profile == "full" and seconds is not None:
        print(f"{name} took {_duration(seconds)} when its rows were measured")
    run_study(
        name, profile=profile, seed=seed, device=device, engine=engine, minutes=minutes
    )


def _is_full(name: str) -> bool:
    try:
        return read_results(name).profile == "full"
    except DataUnavailableError:
        return False


def _duration(seconds: float) -> str:
    """Format a duration with at most two numbers: 3 s, 12 min, 2 h 05."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"


if __name__ == "__main__":
    typer.run(main)
