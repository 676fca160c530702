"""Store results: plain rows, the run that measured them, and their stamp."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from robustbook._store import SCHEMA, read_json
from robustbook._store.files import write_text
from robustbook._store.provenance import package_source
from robustbook.studies.results import (
    REMEDY,
    Results,
    Row,
    read_results,
    results_folder,
    rows_sum,
)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
_INFINITIES: Final = {math.inf: "inf", -math.inf: "-inf"}


def write_results(results: Results, *, directory: Path | str | None = None) -> Results:
    """Write the rows of a study with its commit and stamp."""
    if not _NAME.fullmatch(results.name):
        raise ValueError(
            "name: expected lower-case letters, digits, hyphens and underscores; "
            f"got {results.name!r}"
        )
    rows = [_encoded(row) for row in validate_rows(results.rows)]
    commit, dirty = _git_state()
    content = {
        "schema": SCHEMA,
        "profile": results.profile,
        "rows": rows,
        "provenance": {"commit": commit, "dirty": dirty, **results.provenance},
        "stamp": _known(
            {**results.stamp, "rows_sha256": rows_sum(rows)},
            how="measured",
            commit=commit,
        ),
    }
    path = results_folder(directory) / f"{results.name}.json"
    return _written(path, content)


def confirm_results(
    name: str,
    *,
    stamp: Mapping[str, Any],
    evidence: str,
    directory: Path | str | None = None,
) -> Results:
    """Stamp stored rows anew, given evidence that the present code reproduces them.

    The rows and the record of the run that measured them do not change.
    """
    if not evidence.strip():
        raise ValueError("evidence: expected why the rows are the same, got nothing")
    read_results(name, directory=directory)
    path = results_folder(directory) / f"{name}.json"
    content = read_json(path, remedy=REMEDY)
    commit, dirty = _git_state()
    # The checksum stays that of the measured rows: a confirmation cannot change it.
    rows = content.get("stamp", {}).get("rows_sha256") or rows_sum(content["rows"])
    content["stamp"] = _known(
        {**stamp, "rows_sha256": rows},
        how="confirmed",
        commit=commit,
        dirty=dirty,
        evidence=evidence.strip(),
    )
    return _written(path, content)


def _known(stamp: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """Add to a stamp the reason why the present code gives these rows."""
    return {**stamp, "known": {**how, "date": datetime.now(UTC).date().isoformat()}}


def _written(path: Path, content: Mapping[str, Any]) -> Results:
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return read_results(path.stem, directory=path.parent)


def validate_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Require flat dictionaries of plain values; floats may be infinite, not NaN."""
    table = [_validate_row(row, index) for index, row in enumerate(rows)]
    if not table:
        raise ValueError("rows: expected at least one row, got none")
    return table


def _validate_row(row: Row, index: int) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise TypeError(
            f"rows: row {index}: expected a dictionary, got {type(row).__name__}"
        )
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
    return dict(row)


def _encoded(row: Row) -> dict[str, Any]:
    return {
        key: _INFINITIES.get(value, value) if type(value) is float else value
        for key, value in row.items()
    }


def _git_state() -> tuple[str | None, bool | None]:
    """Commit, and whether tracked files differ from it; None outside a checkout."""
    project = package_source().parent
    questions = (
        ("rev-parse", "--show-toplevel"),
        ("rev-parse", "HEAD"),
        ("status", "--porcelain", "-uno"),
    )
    outputs = []
    for words in questions:
        try:
            command = ["git", "-C", str(project), *words]
            finished = subprocess.run(
                command, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None, None
        outputs.append(finished.stdout.strip())
    top, commit, changes = outputs
    if Path(top).resolve() != project:
        # The package is installed in an environment that is part of another project.
        return None, None
    return commit, bool(changes)
