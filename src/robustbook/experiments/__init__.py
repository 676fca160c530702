"""Expensive experiments: each computes tidy rows and stores them with provenance.

``python -m robustbook.experiments NAME`` runs one and writes
``data/results/NAME.json``; :func:`results_for` is what chapters call. A new
experiment is a module with a function of its own name, and a line in
:data:`EXPERIMENTS`.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any, Final

from robustbook.experiments.attacked import Attack, AttackedLogits, attack_model
from robustbook.results import Results, read_results

__all__ = [
    "EXPERIMENTS",
    "Attack",
    "AttackedLogits",
    "attack_model",
    "results_for",
    "run_experiment",
]

#: Experiments by name: their module, whose function has its name, and the options
#: that tell two experiments of one module apart. Each is called with its name.
EXPERIMENTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "agreement_speed": ("agreement_speed", {}),
    "adversarial_groups": ("adversarial_groups", {}),
    "mnist_groups": ("adversarial_groups", {"larger": "mnist"}),
    "adversarial_sweep": ("adversarial_sweep", {}),
    "stronger_sweep": (
        "adversarial_sweep",
        {"kinds": ("fmn", "fab", "apgd-ce", "apgd-dlr")},
    ),
    "mnist_sweep": (
        "adversarial_sweep",
        {"kinds": ("pgd", "fmn"), "larger": "mnist"},
    ),
    "average_case_bias": ("average_case_bias", {}),
    "average_case_errors": ("average_case_errors", {}),
    "average_case_speed": ("average_case_speed", {}),
    "control_variate_gain": ("control_variate_gain", {}),
    "attack_convergence": ("attack_convergence", {}),
    "attack_examples": ("attack_examples", {}),
    "boundary": ("boundary", {}),
    "noise": ("noise", {}),
    "norm_quantiles": ("norm_quantiles", {}),
    "paired_differences": ("paired_differences", {}),
    "pseudo_agreement": ("pseudo_agreement", {}),
    "rank_stability": ("rank_stability", {}),
    "mnist_rank_stability": ("rank_stability", {"larger": "mnist"}),
    "text_edits": ("text_edits", {}),
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
        If there is no such experiment or profile.
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
    if name not in EXPERIMENTS:
        known = ", ".join(sorted(EXPERIMENTS))
        raise ValueError(f"name: expected one of {known}; got {name!r}")
    if profile not in ("quick", "full"):
        raise ValueError(f"profile: expected 'quick' or 'full', got {profile!r}")
    module, options = EXPERIMENTS[name]
    function = getattr(importlib.import_module(f"{__name__}.{module}"), module)
    given = {"seed": seed, "device": device, "directory": directory, "name": name}
    function(profile=profile, **given, **options)
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
        As :func:`run_experiment` does.

    Examples
    --------
    >>> results_for("agreement_speed", profile="full").experiment
    'agreement_speed'
    """
    if profile == "full" and not recompute:
        return read_results(name)
    with tempfile.TemporaryDirectory(prefix="robustbook-") as folder:
        return run_experiment(
            name, profile=profile, seed=seed, device=device, directory=Path(folder)
        )
