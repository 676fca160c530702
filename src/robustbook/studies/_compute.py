"""How a study is run, and what its settings read: what needs torch to be known.

With an engine, processes fill the cache with the parts that the study measures, of
which its rows are then assembled: they are the same with every engine.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter, sleep
from typing import Any, Final

from robustbook._checks.arguments import check_count
from robustbook._engine import Engine
from robustbook._store.cache import BusyError, earlier_work, passing_by
from robustbook._store.provenance import fingerprint
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

#: Seconds after which one looks again whether what others compute is done.
_AGAIN: Final = 2.0


def compute(
    study: Study,
    *,
    profile: str,
    seed: int,
    device: str,
    stamped: bool = False,
    engine: str = "local:1",
) -> Results:
    """Measure in memory, and say on what and how long."""
    if profile not in PROFILES:
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    seed = check_count("seed", seed, minimum=0)
    place = str(resolve_device(device))
    chosen = Engine.named(engine, device=place)
    run = Run(study.name, profile, seed, device, study.settings(profile))
    # Before the run: what is edited meanwhile is not what measured.
    stamp = study.stamp(profile) if stamped else {}
    if not chosen.here:
        _fill(study, run, chosen)
        if chosen.scheduler is not None:
            whole = partial(compute, study, profile=profile, seed=seed, device=device)
            (results,) = _on_workers(study, [whole], chosen)
            return replace(results, stamp=stamp)
    started, begin = datetime.now(UTC), perf_counter()
    with earlier_work() as earlier:
        rows = importlib.import_module(study.code).rows(run, **study.options)
        table = checked_rows(rows)
    seconds = perf_counter() - begin + earlier.seconds
    provenance = {
        "device": place, "cpu_count": os.cpu_count(), "versions": _versions(),
        "seed": seed, "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3), "units": run.units,
        "from_cache": {
            "files": earlier.files, "seconds": round(earlier.seconds, 3),
            "since": earlier.ended,
        },
    }  # fmt: skip
    return Results(study.name, profile, tuple(table), provenance, stamp)


def _fill(study: Study, run: Run[Any], engine: Engine) -> None:
    """Have every part of a study in the cache, computed by the engine or by others."""
    module = importlib.import_module(study.code)
    waiting = []
    if hasattr(module, "measure"):
        has_jobs = hasattr(module, "jobs")
        jobs = module.jobs(run, **study.options) if has_jobs else run.models()
        waiting = [partial(module.measure, run, *job) for job in jobs]
    while waiting:
        calls = [partial(_left_in_cache, part) for part in waiting]
        kept = [*_on_workers(study, calls, engine)]
        waiting = [part for part, done in zip(waiting, kept, strict=True) if not done]
        if waiting:
            sleep(_AGAIN)


def _left_in_cache(part: Callable[[], Any]) -> bool:
    """Compute a part, unless another run is at it."""
    try:
        with passing_by():
            part()
    except BusyError:
        return False
    return True


def _on_workers(
    study: Study, calls: Sequence[Callable[[], Any]], engine: Engine
) -> Iterator[Any]:
    """Yield what calls return, in their order; raise what one of them raised."""
    code = fingerprint(study.code)
    checked = [partial(_with_code, study.code, code, call) for call in calls]
    results = {}
    for number, result in engine.results(checked, title=study.name):
        if isinstance(result, BaseException):
            raise result
        results[number] = result
    yield from (results[number] for number in range(len(calls)))


def _with_code(module: str, code: str, call: Callable[[], Any]) -> Any:
    """Call on a worker, if it has the code of who asks."""
    if fingerprint(module) != code:
        raise RuntimeError(
            f"engine: a worker has another {module}, or another of what it imports; "
            "start the workers anew, with the package that is installed here"
        )
    return call()


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
    entry = checkpoint_entry(name)
    return {entry["name"]: entry["sha256"]}


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("robustbook", "torch", "numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
