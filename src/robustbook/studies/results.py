"""Stored results, expensive numbers with their provenance; and reported ones.

``data/results/NAME.json`` holds the tidy rows of a study beside the run that measured
them and a stamp: the sums of the code, the options and the inputs that they depend on.
``data/reported/NAME.json`` holds figures that other papers print.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from robustbook._checks.extras import extra
from robustbook._store import (
    DataUnavailableError,
    data_directory,
    note_read,
    read_json,
    sha256_of,
)
from robustbook._store.provenance import Code

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "load_reported", "read_results"]

REMEDY: Final = "run its study again"
#: The end of the names of the project's checkpoints: the seed of their training.
_RUN: Final = re.compile(r"-s\d+$")

Row = Mapping[str, Any]


class _Table:
    """Rows to choose from."""

    name: str
    rows: tuple[dict[str, Any], ...]

    def select(self, **where: Any) -> list[dict[str, Any]]:
        """Return the rows that have all the given values, by column, in their order.

        Examples
        --------
        >>> len(load_reported("thesis_table_4_1").select(classifier="perfect"))
        1
        """
        return [
            row
            for row in self.rows
            if all(key in row and row[key] == value for key, value in where.items())
        ]

    def row(self, **where: Any) -> dict[str, Any]:
        """Return the one row that has all the given values.

        Raises
        ------
        LookupError
            If no row or several rows have these values.

        Examples
        --------
        >>> load_reported("thesis_table_4_1").row(classifier="random")["log_pa"]
        -693.14
        """
        rows = self.select(**where)
        if len(rows) != 1:
            raise LookupError(
                f"{self.name}: expected one row with {where}, got {len(rows)}"
            )
        return rows[0]

    def frame(self, **where: Any) -> pd.DataFrame:
        """Return selected rows, by default all, as a pandas table: a line each.

        Columns that none of them has are left out; what a row has not is missing.

        Examples
        --------
        >>> table = load_reported("thesis_table_4_1").frame()
        >>> table.set_index("classifier").accuracy["random"]
        np.float64(0.516)
        """
        with extra("plot"):
            import pandas as pd

        return pd.DataFrame(self.select(**where))


@dataclass(frozen=True)
class Results(_Table):
    """The rows of a study and the run that measured them.

    Attributes
    ----------
    name, profile : str
        Of the study and of its file; "quick" or "full".
    rows : tuple of dict
        One flat dictionary for each measured thing.
    provenance : dict
        Of the run that measured: device, cpu_count, versions, seed, started, seconds,
        and if it is stored commit and dirty. What it read from the cache counts with
        the seconds that it had taken.
    stamp : dict
        What the rows depend on; empty if they are not stored.
    """

    name: str
    profile: str
    rows: tuple[dict[str, Any], ...]
    provenance: dict[str, Any]
    stamp: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reported(_Table):
    """Figures that a document prints.

    Attributes
    ----------
    name, title : str
        Of the file; what the figures are.
    document, place, notes : str
        The document, the table or figure in it, and how to read them.
    rows : tuple of dict
        One flat dictionary for each printed row.
    """

    name: str
    title: str
    document: str
    place: str
    notes: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class StaleResult:
    """A stored result that the present code may not reproduce.

    Attributes
    ----------
    name, reason : str
        Of the result; what is wrong, and after the last semicolon what mends it.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


# ----------------------------------------------------------------------- read


def read_results(name: str, *, directory: Path | str | None = None) -> Results:
    """Read the stored results of a study: rows and provenance.

    Parameters
    ----------
    name : str
        Name of the file, without its ending.
    directory : Path or str, optional
        Where to look; the project's ``data/results`` by default.

    Raises
    ------
    DataUnavailableError
        If there is no such file, or it is no stored result.

    Examples
    --------
    >>> read_results("agreement_speed").profile
    'full'
    """
    return _read_stored(results_folder(directory) / f"{name}.json")


def results_folder(directory: Path | str | None) -> Path:
    """Where stored results are."""
    return data_directory() / "results" if directory is None else Path(directory)


def _read_stored(path: Path) -> Results:
    # A page shows rows and the run that measured them, not the stamp.
    for part in ("rows", "provenance"):
        note_read(path, part)
    match read_json(path, remedy=REMEDY, note=False):
        case {
            "profile": str(profile),
            "rows": [*rows],
            "provenance": dict(provenance),
            **rest,
        } if all(isinstance(row, dict) for row in rows):
            stamp = rest.get("stamp", {})
            if isinstance(stamp, dict):
                return Results(
                    name=path.stem,
                    profile=profile,
                    rows=tuple(_decoded(row) for row in rows),
                    provenance=provenance,
                    stamp=stamp,
                )
    raise DataUnavailableError(
        f"{path}: expected profile, rows (a list of objects), provenance and stamp; "
        f"{REMEDY}"
    )


# ------------------------------------------------------------------ staleness


def stale_results(root: Path) -> list[StaleResult]:
    """Report stored results that the present code may not reproduce.

    Those below the repository `root` whose code, options or checkpoints changed or are
    gone, or whose file is not a result; none if all are fresh.

    Examples
    --------
    >>> stale_results(Path("no-such-folder"))
    []
    """
    stale = []
    root = Path(root)
    code = Code(root / "src")
    for path in sorted((root / "data" / "results").glob("*.json")):
        reason = _staleness(path, root, code)
        if reason is not None:
            stale.append(StaleResult(path.stem, reason))
    return stale


def _staleness(path: Path, root: Path, code: Code) -> str | None:
    # By name: rows that are read do not depend on which studies there are.
    studies = importlib.import_module("robustbook.studies").STUDIES
    again = f"run `python -m robustbook.studies {path.stem}` again"
    try:
        stored = _read_stored(path)
    except DataUnavailableError as error:
        return f"not a stored result: {error}"
    stamp = stored.stamp
    if "code_sha256" not in stamp:
        return f"it has no stamp of what its rows depend on; {again}, or confirm it"
    rows = read_json(path, remedy=REMEDY, note=False)["rows"]
    if stamp.get("rows_sha256") != rows_sum(rows):
        return f"its rows are not those that were measured; restore it, or {again}"
    study = studies.get(path.stem)
    if study is not None and (stamp["module"], stamp["options"]) != (
        study.code,
        study.variant,
    ):
        return f"it is of another module or has other options than now; {again}"
    try:
        present = code.fingerprint(stamp["module"])
    except ValueError as error:
        return f"its code is gone ({error}); {again}"
    if present != stamp["code_sha256"]:
        commit = str(stamp.get("known", {}).get("commit") or "an unknown commit")[:10]
        return (
            f"{stamp['module']} or what it imports changed since {commit}; {again}, or "
            "confirm it"
        )
    changed = _changed_checkpoints(stamp.get("inputs", {}), root)
    if changed:
        return f"other checkpoints than it was measured on: {changed}; {again}"
    return None


def _changed_checkpoints(inputs: Mapping[str, str], root: Path) -> str:
    """Those of ours whose sum, or whose file, is no longer that of the stamp."""
    folder = root / "data" / "checkpoints"
    if not (folder / "registry.json").is_file():
        return ""
    registry = read_json(folder / "registry.json", remedy="restore it from git")
    ours = registry["checkpoints"]
    changed = [
        name
        for name, known in inputs.items()
        if ours.get(name, {"sha256": known})["sha256"] != known
        or (_RUN.search(name) and name not in ours)
        or (name in ours and _sum_of_file(folder / ours[name]["file"]) != known)
    ]
    return ", ".join(changed)


def _sum_of_file(path: Path) -> str:
    """The sha256 of a checkpoint; nothing of one that is not here."""
    return _sum_once(path, path.stat().st_mtime_ns) if path.is_file() else ""


@cache
def _sum_once(path: Path, _changed: int) -> str:
    return sha256_of(path)


def rows_sum(rows: Iterable[Mapping[str, Any]]) -> str:
    """The sha256 of rows as their file has them."""
    return hashlib.sha256(json.dumps([*rows]).encode()).hexdigest()


def _decoded(row: Row) -> dict[str, Any]:
    return {
        key: float(value) if value in ("inf", "-inf") else value
        for key, value in row.items()
    }


# -------------------------------------------------------------------- reported


def load_reported(name: str) -> Reported:
    """Load figures that a source paper reports, with document and place.

    Parameters
    ----------
    name : str
        A file of ``data/reported``, without its ending: "thesis_table_4_1", ...

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
    printed = {key: content[key] for key in ("title", "document", "place", "notes")}
    return Reported(name=name, rows=tuple(content["rows"]), **printed)
