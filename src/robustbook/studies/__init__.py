"""Expensive experiments: each computes tidy rows; here they are stored.

``python -m robustbook.studies NAME`` runs one and writes
``data/results/NAME.json`` with its provenance; :func:`results_for` is what chapters
call. A new experiment is a module with a function of its own name that returns rows,
and a line in :data:`EXPERIMENTS`.
"""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from robustbook._checks.arguments import check_count
from robustbook._store import DataUnavailableError
from robustbook.models import resolve_device
from robustbook.studies._settings import settings_of
from robustbook.studies.attacked import Attack, AttackedLogits, attack_model
from robustbook.studies.results import Results, read_results, write_results

__all__ = [
    "EXPERIMENTS",
    "Attack",
    "AttackedLogits",
    "Experiment",
    "attack_model",
    "results_for",
    "run_experiment",
]


#: Modules of the attacks that the experiments run: a new one makes nothing stale.
_ATTACKS: Final = tuple(f"attacks._{name}" for name in ("apgd", "fab", "fmn", "pgd"))
#: Of the search for input margins.
_MARGINS: Final = ("margins", "attacks._apgd")


@dataclass(frozen=True)
class Experiment:
    """What is run under a name, and what its numbers depend on.

    Attributes
    ----------
    module : str
        Module of this package; its function of the same name returns the rows.
    options : dict
        Arguments that tell two experiments of one module apart.
    measures : tuple of str
        Modules of robustbook whose change, or that of what they import, makes the
        stored rows stale.
    """

    module: str
    options: dict[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = ("agreement", *_ATTACKS, "scores")

    def rows(self, **given: Any) -> list[dict[str, Any]]:
        """Compute the rows."""
        found: list[dict[str, Any]] = getattr(self._imported(), self.module)(
            **given, **self.options
        )
        return found

    def sums(self, profile: str) -> dict[str, str]:
        """sha256 of models and data: the module's own, or those of Part III."""
        own = getattr(self._imported(), "data_sums", None)
        if own is not None:
            sums: dict[str, str] = own(profile)
            return sums
        return settings_of(profile, larger=self.options.get("larger", "cifar10")).sums()

    def _imported(self) -> ModuleType:
        return importlib.import_module(f"{__name__}.{self.module}")


#: Experiments by name.
EXPERIMENTS: Final[dict[str, Experiment]] = {
    "agreement_speed": Experiment("agreement_speed", measures=("agreement",)),
    "adversarial_groups": Experiment(
        "adversarial_groups",
        measures=("agreement", *_ATTACKS, "discrepancies", "scores"),
    ),
    "adversarial_sweep": Experiment("adversarial_sweep"),
    "stronger_sweep": Experiment(
        "adversarial_sweep", {"kinds": ("fmn", "fab", "apgd-ce", "apgd-dlr")}
    ),
    "mnist_sweep": Experiment(
        "adversarial_sweep", {"kinds": ("pgd", "fmn"), "larger": "mnist"}
    ),
    "attack_convergence": Experiment("attack_convergence"),
    "attack_examples": Experiment("attack_examples", measures=_ATTACKS),
    "average_case_bias": Experiment(
        "average_case_bias", measures=("average_case", "training")
    ),
    "average_case_errors": Experiment(
        "average_case_errors", measures=("average_case", "training")
    ),
    "average_case_speed": Experiment("average_case_speed", measures=("average_case",)),
    "boundary": Experiment("boundary"),
    "margin_accuracy": Experiment("margin_accuracy", measures=_MARGINS),
    "margin_consistency": Experiment("margin_consistency", measures=_MARGINS),
    "margin_convergence": Experiment("margin_convergence", measures=_MARGINS),
    "margin_pseudo": Experiment("margin_pseudo", measures=_MARGINS),
    "margin_samples": Experiment("margin_samples", measures=_MARGINS),
    "control_variate_gain": Experiment(
        "control_variate_gain", measures=("average_case",)
    ),
    "domain_bias": Experiment(
        "domain_bias",
        measures=("agreement", "datasets.diagvib", "training", "selection"),
    ),
    "domain_learners": Experiment(
        "domain_learners",
        measures=("agreement", "datasets.diagvib", "training", "selection"),
    ),
    "domain_selection": Experiment(
        "domain_selection",
        measures=("agreement", "datasets.diagvib", "training", "selection"),
    ),
    "domain_shortcuts": Experiment(
        "domain_shortcuts",
        measures=("agreement", "datasets.diagvib", "training", "selection"),
    ),
    "noise": Experiment("noise"),
    "norm_quantiles": Experiment("norm_quantiles", measures=_ATTACKS),
    "paired_differences": Experiment("paired_differences"),
    "pseudo_agreement": Experiment(
        "pseudo_agreement", measures=("agreement", "scores")
    ),
    "rank_stability": Experiment("rank_stability"),
    "mnist_rank_stability": Experiment(
        "rank_stability", {"larger": "mnist", "bootstraps": 50}
    ),
    "text_edits": Experiment("text_edits", measures=("agreement", "scores", "text")),
    "three_lenses": Experiment(
        "three_lenses",
        measures=(
            "agreement",
            "attacks._pgd",
            "average_case",
            "corruptions",
            *_MARGINS,
        ),
    ),
}


def run_experiment(
    name: str,
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    directory: Path,
) -> Results:
    """Run an experiment and store its rows.

    Parameters
    ----------
    name : str
        A key of :data:`EXPERIMENTS`.
    profile : {"quick", "full"}, default "full"
        "quick" needs only what the package carries.
    seed : int, default 0
        Of everything random in it.
    device : str, default "auto"
        Where to run: "cpu", "cuda", or "auto" for a CUDA device if there is one.
    directory : Path
        Where to write ``NAME.json``.

    Returns
    -------
    Results
        Its rows with their provenance.

    Raises
    ------
    ValueError
        If there is no such experiment, profile or device, or the seed is negative.
    DataUnavailableError
        If it needs data or weights that are not to be had.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run_experiment(
    ...         "agreement_speed", profile="quick", directory=Path(folder)
    ...     )
    >>> found.profile
    'quick'
    """
    _check_name(name)
    if profile not in ("quick", "full"):
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    seed = check_count("seed", seed, minimum=0)
    resolve_device(device)
    experiment, started = EXPERIMENTS[name], datetime.now(UTC)
    rows = experiment.rows(profile=profile, seed=seed, device=device)
    write_results(
        name,
        rows,
        experiment=name,
        profile=profile,
        seed=seed,
        device=resolve_device(device),
        modules=[f"robustbook.{module}" for module in experiment.measures],
        started=started,
        data_sha256=experiment.sums(profile),
        directory=directory,
    )
    return read_results(name, directory=directory)


def results_for(
    name: str,
    *,
    profile: str,
    recompute: bool = False,
    seed: int = 0,
    device: str = "auto",
) -> Results:
    """Return the rows of an experiment as a chapter shows them.

    In the full profile they are read from ``data/results``, unless they are asked
    to be computed anew. In the quick profile they are computed at once, on a smaller
    problem.

    Parameters
    ----------
    name : str
        A key of :data:`EXPERIMENTS`.
    profile : {"quick", "full"}
        As the chapter's parameter.
    recompute : bool, default False
        Compute also what is stored. The stored file is left as it is.
    seed, device
        As in :func:`run_experiment`.

    Returns
    -------
    Results
        Rows with their provenance.

    Raises
    ------
    ValueError, DataUnavailableError
        As :func:`run_experiment` does; also if what is stored is not of the full
        profile.

    Examples
    --------
    >>> results_for("agreement_speed", profile="full").experiment
    'agreement_speed'
    """
    _check_name(name)
    if profile == "full" and not recompute:
        stored = read_results(name)
        if stored.profile != "full":
            raise DataUnavailableError(
                f"{name}: expected stored rows of the full profile, got "
                f"{stored.profile!r}; run `python -m robustbook.studies {name}`"
            )
        return stored
    with tempfile.TemporaryDirectory(prefix="robustbook-") as folder:
        return run_experiment(
            name, profile=profile, seed=seed, device=device, directory=Path(folder)
        )


def _check_name(name: str) -> None:
    if name not in EXPERIMENTS:
        known = ", ".join(sorted(EXPERIMENTS))
        raise ValueError(f"name: expected one of {known}; got {name!r}")
