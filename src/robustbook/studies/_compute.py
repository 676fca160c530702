"""Run a study, and sum the files that its settings name; this part needs torch.

The processes of an engine fill the cache with the parts of a study. The rows are then
assembled from the cache, so that they do not depend on the engine.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter, time
from typing import Any

from robustbook._checks.arguments import check_count
from robustbook._engine import Engine
from robustbook._store.cache import (
    BusyError,
    DeadlineError,
    deadline,
    earlier_work,
    without_waiting,
)
from robustbook._store.provenance import fingerprint
from robustbook.datasets import dataset_spec
from robustbook.models import (
    checkpoint_entry,
    list_public_models,
    public_model,
    resolve_device,
)
from robustbook.studies._stored import validate_rows
from robustbook.studies._study import PROFILES, Study
from robustbook.studies.results import Results
from robustbook.studies.run import SEEDS_A_RUN, Row, Run, Setting


def compute(
    study: Study,
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    stamped: bool = False,
    engine: str = "local:1",
    until: float | None = None,
) -> Results:
    """As :meth:`Study.compute`, which describes the arguments."""
    if profile not in PROFILES:
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    seed = check_count("seed", seed, minimum=0)
    asked = str(resolve_device(device))
    place = "cpu" if study.device == "cpu" else asked
    chosen = Engine.named(engine, device=place)
    run = Run(study.name, profile, SEEDS_A_RUN * seed, place, study.settings(profile))
    # The stamp is taken first: code that is edited during the run did not measure.
    stamp = study.stamp(profile) if stamped else {}
    if not chosen.here:
        _compute_parts(study, run, chosen, until)
        if chosen.scheduler is not None:
            study_on_worker = partial(
                compute, study, profile=profile, seed=seed, device=place, until=until
            )
            (results,) = _on_workers(study, [study_on_worker], chosen)
            return replace(results, stamp=stamp)
    started, begin = datetime.now(UTC), perf_counter()
    # At least one part is computed, unless the engine has had time for parts.
    spare = int(chosen.here or not parts_of(study, run))
    with earlier_work() as earlier, deadline(until, spare=spare):
        table = validate_rows(rows_of(study, run))
    seconds = perf_counter() - begin + earlier.seconds
    provenance = {
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
    }
    return Results(study.name, profile, tuple(table), provenance, stamp)


def _compute_parts(
    study: Study, run: Run[Any], engine: Engine, until: float | None = None
) -> None:
    """Have the engine, or other runs, leave all parts of a study in the cache."""
    parts = parts_of(study, run)
    for wait in (False, True):
        calls = [partial(_leave_in_cache, part, until, wait) for part in parts]
        kept = _on_workers(study, calls, engine)
        parts = [part for part, done in zip(parts, kept, strict=True) if not done]


def rows_of(study: Study, run: Run[Any]) -> Iterator[Row]:
    """Yield the rows of a study, part after part, or as its module assembles them."""
    module = importlib.import_module(study.code)
    if hasattr(module, "rows"):
        yield from module.rows(run, **study.options)
        return
    for setting_run in run.by_setting():
        for part in run.progress(parts_of(study, setting_run)):
            yield from part()
        if hasattr(module, "summary"):
            yield from module.summary(setting_run, **study.options)


def parts_of(study: Study, run: Run[Any]) -> list[Callable[[], list[Row]]]:
    """List calls that leave a part in the cache each; none if there is nothing to."""
    module = importlib.import_module(study.code)
    if not hasattr(module, "measure"):
        return []
    list_parts = getattr(module, "parts", None)
    parts: Iterable[Any]
    if hasattr(module, "rows"):
        parts = list_parts(run, **study.options) if list_parts else run.models()
        return [partial(module.measure, run, *part) for part in parts]
    calls: list[Callable[[], list[Row]]] = []
    for setting_run in run.by_setting():
        measured = partial(setting_run.measured, module.measure)
        parts = ((name,) for name in setting_run.setting.models)
        if list_parts:
            parts = list_parts(setting_run, **study.options)
        calls += [partial(measured, *part, **study.options) for part in parts]
    return calls


def _leave_in_cache(part: Callable[[], Any], until: float | None, wait: bool) -> bool:
    """Compute a part before the deadline; False if another run is computing it."""
    try:
        with suppress(DeadlineError), without_waiting(not wait), deadline(until):
            if until is None or time() < until:
                part()
    except BusyError:
        return False
    return True


def _on_workers(
    study: Study, calls: Sequence[Callable[[], Any]], engine: Engine
) -> list[Any]:
    """Return the results of calls in their order; raise the first error."""
    code = fingerprint(study.code)
    checked = [partial(_with_code, study.code, code, call) for call in calls]
    return [*engine.results(checked, title=study.name)]


def _with_code(module: str, code: str, call: Callable[[], Any]) -> Any:
    """Call on a worker that has the same code as the caller."""
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
        for name in setting.datasets():
            sums |= dataset_spec(name).files
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
