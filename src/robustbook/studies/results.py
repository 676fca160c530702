"""Stored results: expensive numbers with their provenance, and reported ones.

``data/results/NAME.json`` holds the tidy rows of an experiment beside where they
come from: commit, device, versions, seed, duration, and the sha256 of the code
that measured them. When that code changes, :func:`stale_results` says so.
``data/reported/NAME.json`` holds figures that other papers print.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from robustbook._checks.arguments import check_count
from robustbook._store import SCHEMA, DataUnavailableError, data_directory, read_json
from robustbook._store.provenance import code_sha256, package_source

__all__ = [
    "Reported",
    "Results",
    "StaleResult",
    "code_sha256",
    "load_reported",
    "read_results",
    "stale_results",
    "write_results",
]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """The rows of an experiment and where they come from.

    Attributes
    ----------
    name : str
        Name of the file.
    experiment : str
        The function that computes them.
    profile : str
        "quick" or "full".
    rows : tuple of dict
        One flat dictionary for each measured thing.
    provenance : dict
        Keys commit, dirty, device, cpu_count, versions, seed, started, seconds,
        data_sha256, code, code_sha256.
    """

    name: str
    experiment: str
    profile: str
    rows: tuple[dict[str, Any], ...]
    provenance: dict[str, Any]

    def select(self, **where: Any) -> list[dict[str, Any]]:
        """Return the rows that have all the given values.

        Parameters
        ----------
        **where
            Columns and the values asked for.

        Returns
        -------
        list of dict
            Rows, in their order.

        Examples
        --------
        >>> rows = ({"model": "a", "pa": 1.0}, {"model": "b", "pa": 2.0})
        >>> Results("x", "f", "quick", rows, {}).select(model="b")
        [{'model': 'b', 'pa': 2.0}]
        """
        return _select(self.rows, where)


@dataclass(frozen=True)
class Reported:
    """Figures that a document prints.

    Attributes
    ----------
    name : str
        Name of the file.
    title : str
        What the figures are.
    document, place : str
        The document, and the table or figure in it.
    notes : str
        How to read them.
    rows : tuple of dict
        One flat dictionary for each printed row.
    """

    name: str
    title: str
    document: str
    place: str
    notes: str
    rows: tuple[dict[str, Any], ...]

    def select(self, **where: Any) -> list[dict[str, Any]]:
        """Return the rows that have all the given values.

        Parameters
        ----------
        **where
            Columns and the values asked for.

        Returns
        -------
        list of dict
            Rows, in their order.

        Examples
        --------
        >>> len(load_reported("thesis_table_4_1").select(classifier="perfect"))
        1
        """
        return _select(self.rows, where)

    def row(self, **where: Any) -> dict[str, Any]:
        """Return the one row that has all the given values.

        Parameters
        ----------
        **where
            Columns and the values asked for.

        Returns
        -------
        dict
            The row.

        Raises
        ------
        LookupError
            If no row or several rows have these values.

        Examples
        --------
        >>> load_reported("thesis_table_4_1").row(classifier="random")["log_pa"]
        -693.14
        """
        found = _select(self.rows, where)
        if len(found) != 1:
            raise LookupError(
                f"{self.name}: expected one row with {where}, got {len(found)}"
            )
        return found[0]


@dataclass(frozen=True)
class StaleResult:
    """A stored result that the present code may not reproduce.

    Attributes
    ----------
    name : str
        Name of the result.
    path : Path
        Its file.
    reason : str
        What is wrong, and what mends it.
    """

    name: str
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def _select(rows: Iterable[dict[str, Any]], where: Row) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if all(key in row and row[key] == value for key, value in where.items())
    ]


# ------------------------------------------------------------- write and read


def write_results(
    name: str,
    rows: Iterable[Row],
    *,
    experiment: str,
    profile: str,
    seed: int,
    device: object,
    modules: Sequence[str],
    started: datetime,
    data_sha256: Mapping[Any, str] | None = None,
    directory: Path | str | None = None,
) -> Path:
    """Write the rows of an experiment with their provenance.

    Parameters
    ----------
    name : str
        Name of the file: lower-case letters, digits, hyphens, underscores.
    rows : iterable of dict
        Flat dictionaries of str to bool, int, float, str or None. Infinite
        floats are kept; NaN is refused.
    experiment : str
        Full name of the function that computed them.
    profile : str
        "quick" or "full".
    seed : int
        The seed, 0 or more, that it was given.
    device : str or torch.device
        Where it ran.
    modules : sequence of str
        Modules of robustbook that it ran; what they import is added.
    started : datetime
        When it began, with its time zone; the duration runs until now.
    data_sha256 : mapping of str or Path to str, optional
        Sums of the data files and checkpoints that were used.
    directory : Path or str, optional
        Where to write; the project's ``data/results`` by default.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the name, the profile, the seed, the time or a row is not of this kind.
    TypeError
        If the seed is no integer or a row is no mapping.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "name: expected lower-case letters, digits, hyphens and underscores; "
            f"got {name!r}"
        )
    if profile not in ("quick", "full"):
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    if started.tzinfo is None:
        raise ValueError("started: expected a time with its zone, datetime.now(UTC)")
    table = [_checked_row(row, index) for index, row in enumerate(rows)]
    seconds = (datetime.now(UTC) - started).total_seconds()
    if seconds < 0:
        raise ValueError(f"started: expected a time that is past, got {started}")
    if not table:
        raise ValueError("rows: expected at least one row, got none")
    source = package_source()
    commit, dirty = _git_state(source)
    content = {
        "schema": SCHEMA,
        "experiment": experiment,
        "profile": profile,
        "rows": table,
        "provenance": {
            "commit": commit,
            "dirty": dirty,
            "device": str(device),
            "cpu_count": os.cpu_count(),
            "versions": _versions(),
            "seed": check_count("seed", seed, minimum=0),
            "started": started.astimezone(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "data_sha256": {str(k): v for k, v in (data_sha256 or {}).items()},
            "code": list(modules),
            "code_sha256": code_sha256(modules, source=source),
        },
    }
    folder = _folder(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    temporary = path.with_suffix(f".json.{os.getpid()}.tmp")
    temporary.write_text(
        json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    temporary.replace(path)
    return path


def read_results(name: str, *, directory: Path | str | None = None) -> Results:
    """Read the stored results of an experiment.

    Parameters
    ----------
    name : str
        Name of the file, without its ending.
    directory : Path or str, optional
        Where to look; the project's ``data/results`` by default.

    Returns
    -------
    Results
        Rows and provenance.

    Raises
    ------
    DataUnavailableError
        If there is no such file, or it is no stored result.
    """
    return _read_stored(_folder(directory) / f"{name}.json")


def _folder(directory: Path | str | None) -> Path:
    return data_directory() / "results" if directory is None else Path(directory)


def _read_stored(path: Path) -> Results:
    remedy = "run its experiment again"
    content = read_json(path, remedy=remedy)
    match content:
        case {
            "experiment": str(experiment),
            "profile": str(profile),
            "rows": [*rows],
            "provenance": {"code": [*code], "code_sha256": str()} as provenance,
        } if all(isinstance(row, dict) for row in rows) and all(
            isinstance(module, str) for module in code
        ):
            return Results(
                name=path.stem,
                experiment=experiment,
                profile=profile,
                rows=tuple(
                    {key: _decoded(value) for key, value in row.items()} for row in rows
                ),
                provenance=provenance,
            )
    raise DataUnavailableError(
        f"{path}: expected experiment, profile, rows (a list of objects) and "
        f"provenance with code and code_sha256; {remedy}"
    )


def stale_results(root: Path) -> list[StaleResult]:
    """Report stored results that the present code may not reproduce.

    Parameters
    ----------
    root : Path
        The repository: results are read from ``data/results`` and code from
        ``src`` below it.

    Returns
    -------
    list of StaleResult
        One for each result whose code changed, is gone, or whose file is not
        a result; empty if all are fresh.

    Examples
    --------
    >>> stale_results(Path("no-such-folder"))
    []
    """
    stale = []
    root = Path(root)
    for path in sorted((root / "data" / "results").glob("*.json")):
        reason = _staleness(path, root / "src")
        if reason is not None:
            stale.append(StaleResult(path.stem, path, reason))
    return stale


def _staleness(path: Path, source: Path) -> str | None:
    try:
        stored = _read_stored(path)
    except DataUnavailableError as error:
        return f"not a stored result: {error}"
    modules = stored.provenance["code"]
    try:
        present = code_sha256(modules, source=source)
    except ValueError as error:
        return f"its code is gone ({error}); run {stored.experiment} again"
    if present != stored.provenance["code_sha256"]:
        commit = str(stored.provenance.get("commit") or "an unknown commit")[:10]
        return (
            f"the code that measured it changed since {commit} "
            f"({', '.join(modules)}); run {stored.experiment} again"
        )
    return None


_INFINITIES: Final = {math.inf: "inf", -math.inf: "-inf"}


def _checked_row(row: Row, index: int) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise TypeError(
            f"rows: row {index}: expected a dictionary, got {type(row).__name__}"
        )
    checked: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(key, str):
            raise ValueError(f"rows: row {index}: expected str keys, got {key!r}")
        if value is not None and type(value) not in (bool, int, float, str):
            raise ValueError(
                f"rows: row {index}, {key}: expected a plain bool, int, float, str "
                f"or None, got {type(value).__name__}; convert with float() or int()"
            )
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"rows: row {index}, {key}: got NaN; leave it out")
        if isinstance(value, str) and value in _INFINITIES.values():
            raise ValueError(f"rows: row {index}, {key}: {value!r} means a number")
        checked[key] = _INFINITIES.get(value, value) if type(value) is float else value
    return checked


def _decoded(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("robustbook", "torch", "numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit, and whether tracked files differ from it; None outside git."""
    outputs = []
    for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno")):
        try:
            finished = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return None, None
        outputs.append(finished.stdout.strip())
    return outputs[0], bool(outputs[1])


# -------------------------------------------------------------------- reported


def load_reported(name: str) -> Reported:
    """Load figures that a source paper reports.

    Parameters
    ----------
    name : str
        One of the files of ``data/reported``, without its ending:
        "thesis_table_4_1", "thesis_table_4_10", "thesis_table_5_7", ...

    Returns
    -------
    Reported
        The printed rows, with document and place.

    Raises
    ------
    ValueError
        If there is no such file.

    Examples
    --------
    >>> table = load_reported("thesis_table_4_1")
    >>> table.place, table.row(classifier="perfect")["beta"]
    ('Table 4.1', 12.33)
    """
    folder = data_directory() / "reported"
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.json")))
        raise ValueError(f"name: expected one of {known}; got {name!r}")
    content = read_json(path, remedy="restore it from the repository")
    return Reported(
        name=name,
        title=content["title"],
        document=content["document"],
        place=content["place"],
        notes=content["notes"],
        rows=tuple(content["rows"]),
    )
