"""Run all studies, cheapest first, in slices of time that continue each other."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from robustbook._checks.arguments import check_non_negative
from robustbook._engine import Engine, connect
from robustbook._store import DataUnavailableError
from robustbook.models import resolve_device
from robustbook.studies import STUDIES
from robustbook.studies._study import UNFINISHED
from robustbook.studies.results import read_results, stale_results

#: Outcomes of a study by the exit status of its process.
_OUTCOMES: Final = {0: "measured", UNFINISHED: "stopped between two parts; it goes on"}


def waiting_studies(
    root: Path, *, device: str = "auto", since: datetime | None = None
) -> list[str]:
    """Name the studies whose stored rows are not of this code and kind of device.

    With `since`, also those measured earlier. The cheapest come first; those that were
    never measured come last.
    """
    stale = {result.name for result in stale_results(root)}
    kind = resolve_device(device).type
    names = [name for name in STUDIES if _waits(name, stale, kind, since)]
    return sorted(names, key=_seconds)


def run_slice(
    root: Path,
    *,
    device: str,
    engine: str,
    minutes: float,
    since: datetime | None = None,
) -> list[str]:
    """Run the waiting studies in one slice of time; return those that still wait.

    Each study runs in its own process, which begins no part after the end of the slice;
    the next slice goes on from there. A study that fails does not stop the others.
    """
    check_non_negative("minutes", minutes)
    chosen = Engine.named(engine, device=device)
    waiting = waiting_studies(root, device=device, since=since)
    if waiting and chosen.scheduler:
        # The scheduler is asked once, not by every study.
        connect(chosen.scheduler).close()
    end = time.monotonic() + 60 * minutes
    print(_forecast(waiting))
    for name in waiting:
        left = end - time.monotonic()
        if left <= 0:
            break
        how = ["--device", device, "--engine", engine, "--minutes", str(left / 60)]
        print(f"{name}: {_OUTCOMES.get(_run(name, *how), 'failed')}", flush=True)
    still = set(waiting_studies(root, device=device, since=since))
    return [name for name in waiting if name in still]


def _run(*words: str) -> int:
    command = [sys.executable, "-m", "robustbook.studies", *words]
    return subprocess.run(command, check=False).returncode


def _waits(
    name: str, stale: Collection[str], kind: str, since: datetime | None
) -> bool:
    only = STUDIES[name].device
    if only == "cuda" != kind:
        return False
    kind = only or kind
    try:
        run = read_results(name).provenance
    except DataUnavailableError:
        return True
    if name in stale or str(run["device"]).partition(":")[0] != kind:
        return True
    return since is not None and datetime.fromisoformat(str(run["started"])) < since


def _seconds(name: str) -> float:
    seconds = STUDIES[name].forecast()
    return math.inf if seconds is None else seconds


def _forecast(names: Sequence[str]) -> str:
    known = [_seconds(name) for name in names if _seconds(name) < math.inf]
    return (
        f"{len(names)} of {len(STUDIES)} studies wait; {len(known)} of them took "
        f"{sum(known) / 60:.0f} minutes where they were measured"
    )
