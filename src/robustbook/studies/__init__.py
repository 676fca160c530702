"""The book's expensive experiments: each yields tidy rows, which are stored.

``python -m robustbook.studies NAME`` runs one and writes ``data/results/NAME.json``
with its provenance; :func:`results_for` is what chapters call. ``STUDIES`` holds all
studies by name; "Six recipes" in the book shows how to add one.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustbook._store import DataUnavailableError
from robustbook.studies._study import Study
from robustbook.studies.results import Results, read_results

__all__ = ["STUDIES", "Study", "results_for", "run_study"]


if TYPE_CHECKING:
    from robustbook.studies._registry import STUDIES


def __getattr__(name: str) -> Any:
    # By name: rows that are read do not depend on which studies there are.
    if name == "STUDIES":
        return importlib.import_module("robustbook.studies._registry").STUDIES
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_study(
    name: str,
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    engine: str = "local:1",
    minutes: float | None = None,
    directory: Path | str | None = None,
) -> Results:
    """Run a study and store its rows with their provenance.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    profile : {"quick", "full"}, default "full"
        "quick" needs only what the package carries.
    seed : int, default 0
        Random seed.
    device : str, default "auto"
        Where to run: "cpu", "cuda", or "auto" for a CUDA device if there is one.
    engine : str, default "local:1"
        The processes that run its parts: "local" for as many as there are cores (one on
        a CUDA device), "local:N" for N, "dask://HOST:PORT" for the workers of that Dask
        scheduler. The rows do not depend on it.
    minutes : float, optional
        Begin no part after so many minutes, and raise a DeadlineError if one is
        missing: finished parts are kept, and the next call goes on from there.
    directory : Path or str, optional
        Where to write ``NAME.json``; the project's ``data/results`` by default.

    Raises
    ------
    ValueError
        If there is no such study, profile, device or engine, or the seed is negative.
    DataUnavailableError
        If data or weights are not available.
    OSError
        If the engine cannot be reached, or its workers do not share the cache.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     speed = run_study("agreement_speed", profile="quick", directory=folder)
    >>> speed.profile
    'quick'
    """
    study = _named(name)
    results = study.compute(
        profile=profile,
        seed=seed,
        device=device,
        engine=engine,
        stamped=True,
        until=None if minutes is None else time.time() + 60 * minutes,
    )
    # Imported by name: the stamp of a reader of rows must not cover their writer.
    stored = importlib.import_module("robustbook.studies._stored")
    written: Results = stored.write_results(results, directory=directory)
    return written


def results_for(
    name: str,
    *,
    profile: str,
    recompute: bool = False,
    seed: int = 0,
    device: str = "auto",
) -> Results:
    """Return the rows of a study as a chapter shows them, with their provenance.

    In the full profile they are read from ``data/results``, unless `recompute` is
    true. In the quick profile they are computed at once, on a smaller problem.

    Parameters
    ----------
    name, profile, seed, device
        As in :func:`run_study`.
    recompute : bool, default False
        Compute the rows even if they are stored. The stored file is not changed.

    Raises
    ------
    ValueError, DataUnavailableError
        As :func:`run_study` does; also if the stored rows are not of the full profile.

    Examples
    --------
    >>> results_for("agreement_speed", profile="full").name
    'agreement_speed'
    """
    study = _named(name)
    if profile != "full" or recompute:
        return study.compute(profile=profile, seed=seed, device=device)
    stored = read_results(name)
    if stored.profile != "full":
        raise DataUnavailableError(
            f"{name}: expected stored rows of the full profile, got "
            f"{stored.profile!r}; run `python -m robustbook.studies {name}`"
        )
    return stored


def _named(name: str) -> Study:
    studies: dict[str, Study] = __getattr__("STUDIES")
    if name not in studies:
        known = ", ".join(sorted(studies))
        raise ValueError(f"name: expected one of {known}; got {name!r}")
    return studies[name]
