"""A study: settings and rows under a name, and the stamp of what they depend on.

Nothing here imports torch, so that telling stale results takes a second.
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
    from robustbook.studies._run import Setting

PROFILES: Final = ("quick", "full")
#: Status with which the command ends when there is more to measure.
UNFINISHED: Final = 3


@dataclass(frozen=True)
class Study:
    """What is measured under a name.

    Its module holds ``SETTINGS``, by profile one or more settings each, and the
    function ``rows``, which takes a run and yields tidy rows. What is stopped goes on
    from the cache. Where ``rows`` reads from there what takes long, ``measure`` leaves
    a part of it there, for the processes of an engine: of a run, a setting and a
    network, or of a run and what ``jobs`` yields, which takes what ``rows`` takes.
    Without, the whole study is one part.

    Attributes
    ----------
    name, module : str
        Of the study and of its stored result; below ``robustbook.studies``.
    options : dict
        Arguments of ``rows`` that tell studies of one module apart.
    keys : (str, str)
        Which settings the quick and the full profile take.
    device : str, optional
        The only kind of device that it is measured on. "cpu": what it measures is
        there, wherever it is asked to run. "cuda": `all` does not begin it elsewhere.
    """

    name: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, str] = PROFILES
    device: str | None = None

    @property
    def code(self) -> str:
        """The full name of the module, where the closure of its code begins."""
        return f"robustbook.studies.{self.module}"

    @property
    def described(self) -> str:
        """What tells it from other studies of its module, for the stamp."""
        return repr((dict(self.options), self.keys))

    def settings(self, profile: str) -> tuple[Setting, ...]:
        """What is measured in a profile: images and networks."""
        settings: Mapping[str, tuple[Setting, ...]]
        settings = importlib.import_module(self.code).SETTINGS
        return settings[self.keys[PROFILES.index(profile)]]

    def compute(
        self,
        *,
        profile: str = "full",
        seed: int = 0,
        device: str = "auto",
        stamped: bool = False,
        engine: str = "local:1",
        until: float | None = None,
    ) -> Results:
        """Measure in memory, and say on what and how long; nothing is stored.

        What the cache holds is not measured again, and counts with the seconds that
        it took where it was. With `stamped`, for rows that will be stored, the stamp
        is taken before they are measured. The engine is this process, or as in
        :func:`robustbook.studies.run_study`. After `until`, as ``time.time()`` has it,
        no part of it is begun but the first: a DeadlineError, if one is missing then.
        """
        results: Results = _named("_compute").compute(
            self, profile=profile, seed=seed, device=device, stamped=stamped,
            engine=engine, until=until,
        )  # fmt: skip
        return results

    def inputs(self, profile: str) -> dict[str, str]:
        """The sha256 of every checkpoint and data file that the settings name."""
        sums: dict[str, str] = _named("_compute").inputs_of(self.settings(profile))
        return sums

    def stamp(self, profile: str) -> dict[str, Any]:
        """What the rows depend on: code with all that it imports, options, inputs."""
        return {
            "module": self.code,
            "options": self.described,
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
    # By name, as studies are: who reads stored rows depends on none of them.
    return importlib.import_module(f"robustbook.studies.{module}")
