"""A study: settings and rows under a name, and the stamp of their inputs.

Nothing here imports torch, so that checking for stale results takes a second.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from robustbook._store import DataUnavailableError
from robustbook._store.provenance import fingerprint
from robustbook.studies.results import Results, read_results

if TYPE_CHECKING:
    from robustbook.studies.run import Setting

PROFILES: Final = ("quick", "full")
#: Status with which the command ends when there is more to measure.
UNFINISHED: Final = 3


@dataclass(frozen=True)
class Study:
    """A module that measures, under a name and with options.

    The module, or ``settings`` beside it, holds ``SETTINGS``, one or more for each
    profile. Its function ``measure(run, *part)`` yields the tidy rows of a part: of a
    network of the setting by default, otherwise of what ``parts(run, **options)``
    yields. These rows are kept in the cache, from which a stopped study goes on, and
    the processes of an engine share the parts. They may depend on the part, on the only
    setting of that run, its profile, seed and device, and on nothing else.
    ``summary(run, **options)``, if there is one, yields what needs several parts,
    behind these.

    Where rows are not those of one part after the other, ``rows(run, **options)``
    yields them from what ``measure`` leaves in the cache.

    Attributes
    ----------
    name, module : str
        Name of the study and its stored result; path below ``robustbook.studies``.
    options : dict
        Arguments of ``parts`` or ``rows`` that distinguish studies of one module.
    keys : (str, str)
        Keys of the settings for the quick and the full profile.
    device : str, optional
        The only kind of device that it runs on, if there is one. With "cuda", `all`
        skips it on other machines.
    """

    name: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, str] = PROFILES
    device: str | None = None

    @property
    def code(self) -> str:
        """The full name of the module, from which the closure of its code starts."""
        return f"robustbook.studies.{self.module}"

    @property
    def variant(self) -> str:
        """The options and settings that distinguish studies of one module."""
        return repr((dict(self.options), self.keys))

    def settings(self, profile: str) -> tuple[Setting, ...]:
        """The settings of a profile: images and networks."""
        module = importlib.import_module(self.code)
        if not hasattr(module, "SETTINGS"):
            module = importlib.import_module(f"{module.__package__}.settings")
        settings: Mapping[str, tuple[Setting, ...]] = module.SETTINGS
        return settings[self.keys[PROFILES.index(profile)]]

    def compute(self, **how: Any) -> Results:
        """Measure in memory, and record the device and the time; nothing is stored.

        Profile ("full" by default), seed, device and engine are those of
        :func:`robustbook.studies.run_study`. With ``stamped=True``, for rows that will
        be stored, the stamp is taken before they are measured. After ``until``, a value
        of ``time.time()``, no part but the first is begun, and a missing one is a
        DeadlineError. Parts in the cache are not measured again, but the seconds that
        they once took count.
        """
        results: Results = _named("_compute").compute(self, **how)
        return results

    def inputs(self, profile: str) -> dict[str, str]:
        """The sha256 of every checkpoint and data file that the settings name."""
        sums: dict[str, str] = _named("_compute").inputs_of(self.settings(profile))
        return sums

    def stamp(self, profile: str) -> dict[str, Any]:
        """All that the rows depend on: code with its imports, options, inputs."""
        return {
            "module": self.code,
            "options": self.variant,
            "code_sha256": fingerprint(self.code),
            "inputs": self.inputs(profile),
        }

    def forecast(self) -> float | None:
        """Seconds that the full profile took where it was measured; None if unknown."""
        try:
            seconds = read_results(self.name).provenance.get("seconds")
        except DataUnavailableError:
            return None
        return None if seconds is None else float(seconds)


def _named(module: str) -> Any:
    # Imported by name: the stamp of a reader of rows must cover no study.
    return importlib.import_module(f"robustbook.studies.{module}")
