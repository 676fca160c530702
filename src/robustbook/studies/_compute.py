"""How a study is run, and what its settings read: what needs torch to be known."""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from robustbook._checks.arguments import check_count
from robustbook._store.cache import earlier_work
from robustbook.datasets import dataset_spec
from robustbook.models import (
    checkpoint_entry,
    list_public_models,
    public_model,
    resolve_device,
)
from robustbook.studies._run import Run, Setting
from robustbook.studies._stored import checked_rows
from robustbook.studies._study import PROFILES, Study
from robustbook.studies.results import Results


def compute(
    study: Study, *, profile: str, seed: int, device: str, stamped: bool = False
) -> Results:
    """Measure in memory, and say on what and how long."""
    if profile not in PROFILES:
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    seed = check_count("seed", seed, minimum=0)
    place = str(resolve_device(device))
    run = Run(study.name, profile, seed, device, study.settings(profile))
    started, begin = datetime.now(UTC), time.perf_counter()
    # Before the run: what is edited meanwhile is not what measured.
    stamp = study.stamp(profile) if stamped else {}
    with earlier_work() as earlier:
        rows = importlib.import_module(study.code).rows(run, **study.options)
        table = checked_rows(rows)
    seconds = time.perf_counter() - begin + earlier.seconds
    return Results(
        name=study.name,
        profile=profile,
        rows=tuple(table),
        stamp=stamp,
        provenance={
            "device": place,
            "cpu_count": os.cpu_count(),
            "versions": _versions(),
            "seed": seed,
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "units": run.units,
            "from_cache": {
                "files": earlier.files,
                "seconds": round(earlier.seconds, 3),
                "since": earlier.ended,
            },
        },
    )


def inputs_of(settings: Iterable[Setting]) -> dict[str, str]:
    """The sha256 of every checkpoint and data file that settings name."""
    sums: dict[str, str] = {}
    for setting in settings:
        for name in setting.checkpoints():
            sums |= _checkpoint(name.partition("+")[0])
        if setting.kind in ("images", "sentences"):
            sums |= dataset_spec(setting.dataset).files
    return sums


def _checkpoint(name: str) -> dict[str, str]:
    if name in list_public_models():
        return {name: public_model(name).sha256}
    entry: dict[str, Any] = checkpoint_entry(name)
    return {entry["name"]: entry["sha256"]}


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("robustbook", "torch", "numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
