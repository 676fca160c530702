"""A study: settings and rows under a name, and the stamp of what they depend on."""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from robustbook._store import DataUnavailableError
from robustbook.studies.results import Results, checked_rows, read_results

if TYPE_CHECKING:
    from robustbook.studies._run import Setting

__all__ = ["PROFILES", "Study"]

PROFILES: Final = ("quick", "full")


@dataclass(frozen=True)
class Study:
    """What is measured under a name.

    Its module holds ``SETTINGS``, by profile one or more settings each, and the
    function ``rows``, which takes a run and yields tidy rows.

    Attributes
    ----------
    name : str
        Of the study and of its stored result.
    module : str
        Below ``robustbook.studies``.
    options : dict
        Arguments of ``rows`` that tell studies of one module apart.
    full : str
        Which settings the full profile takes.
    """

    name: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    full: str = "full"

    @property
    def code(self) -> str:
        """The full name of the module, where the closure of its code begins."""
        return f"robustbook.studies.{self.module}"

    @property
    def described(self) -> str:
        """What tells it from other studies of its module, for the stamp."""
        return repr((dict(self.options), self.full))

    def settings(self, profile: str) -> tuple[Setting, ...]:
        """What is measured in a profile: images and networks."""
        settings: Mapping[str, tuple[Setting, ...]] = self._imported().SETTINGS
        return settings["quick" if profile == "quick" else self.full]

    def inputs(self, profile: str) -> dict[str, str]:
        """The sha256 of every checkpoint and data file that the settings name."""
        from robustbook.datasets import dataset_spec, sentences_spec

        sums: dict[str, str] = {}
        for setting in self.settings(profile):
            for name in setting.checkpoints():
                sums |= _checkpoint(name.partition("+")[0])
            if setting.kind == "images":
                sums |= dataset_spec(setting.dataset).files
            elif setting.kind == "sentences":
                sums |= sentences_spec(setting.dataset).files
        return sums

    def compute(
        self, *, profile: str = "full", seed: int = 0, device: str = "auto"
    ) -> Results:
        """Measure, and say on what and how long; nothing is written.

        What the cache holds is not measured again, and counts with the seconds that
        it took where it was.
        """
        from robustbook._checks.arguments import check_count
        from robustbook.models import resolve_device
        from robustbook.studies._run import Run
        from robustbook.studies._units import counted_reading

        if profile not in PROFILES:
            raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
        seed = check_count("seed", seed, minimum=0)
        place = str(resolve_device(device))
        run = Run(self.name, profile, seed, device, self.settings(profile))
        started, begin = datetime.now(UTC), time.perf_counter()
        with counted_reading() as reading:
            rows = checked_rows(self._imported().rows(run, **self.options))
        seconds = time.perf_counter() - begin + reading.seconds
        return Results(
            name=self.name,
            profile=profile,
            rows=tuple(rows),
            provenance={
                "device": place,
                "cpu_count": os.cpu_count(),
                "versions": _versions(),
                "seed": seed,
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(seconds, 3),
                "units": run.units,
                "read_from_cache": {
                    "files": reading.files,
                    "seconds": round(reading.seconds, 3),
                },
            },
        )

    def rows(self, **how: Any) -> list[dict[str, Any]]:
        """The rows alone, of a profile, a seed and a device."""
        return list(self.compute(**how).rows)

    def forecast(self) -> float | None:
        """Seconds that the full profile took where it was measured; None if never."""
        try:
            stored = read_results(self.name)
        except DataUnavailableError:
            return None
        return float(stored.provenance["seconds"])

    def stamp(self, profile: str) -> dict[str, Any]:
        """What the rows depend on: code with all that it imports, options, inputs."""
        from robustbook._store.provenance import fingerprint

        return {
            "module": self.code,
            "options": self.described,
            "code_sha256": fingerprint(self.code),
            "inputs": self.inputs(profile),
        }

    def _imported(self) -> ModuleType:
        return importlib.import_module(self.code)


def _checkpoint(name: str) -> dict[str, str]:
    from robustbook.models import checkpoint_entry, list_public_models, public_model

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
