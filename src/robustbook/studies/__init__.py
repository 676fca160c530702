"""The book's expensive experiments: each yields tidy rows, which are stored.

``python -m robustbook.studies NAME`` runs one and writes ``data/results/NAME.json``
with its provenance; :func:`results_for` is what chapters call. A new study is a module
with ``SETTINGS`` and ``rows``, and a name in :data:`STUDIES`.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Final

from robustbook._store import DataUnavailableError
from robustbook.studies._study import Study
from robustbook.studies.results import Results, read_results

__all__ = ["STUDIES", "Study", "results_for", "run_study"]


def _in(folder: str, *names: str, device: str | None = None) -> list[Study]:
    return [Study(name, f"{folder}{name}", device=device) for name in names]


_ALL: Final = (
    *_in("", "agreement_speed", "cost_model", "choosing", device="cpu"),
    *_in(
        "adversarial.", "pseudo_agreement", "adversarial_groups", "adversarial_sweep",
        "attack_convergence", "attack_examples", "attack_steps", "boundary",
        "growing_shares", "noise", "imagenet", "norm_quantiles", "paired_differences",
        "rank_stability", "text_edits", "reviews",
    ),
    Study(
        "stronger_sweep", "adversarial.adversarial_sweep",
        {"kinds": ("fmn", "fab", "apgd-ce", "apgd-dlr")},
    ),
    Study(
        "mnist_sweep", "adversarial.adversarial_sweep",
        {"kinds": ("pgd", "fmn")}, ("quick", "mnist"),
    ),
    Study(
        "mnist_rank_stability", "adversarial.rank_stability",
        {"bootstraps": 50}, ("quick", "mnist"),
    ),
    *_in("domains.", "domain_bias", "domain_learners", "domain_selection"),
    Study(
        "domain_shortcuts", "domains.domain_selection",
        {"shortcuts": True}, ("quick shortcuts", "full shortcuts"),
    ),
    *_in("domains.", "domain_regime", "regime_selection"),
    Study(
        "domain_regime_large", "domains.domain_regime",
        {}, ("quick large", "full large"), "cuda",
    ),
    *_in(
        "domains.", "photographs", "photographs_mixing", "photographs_pixels",
        device="cpu",
    ),
    Study(
        "regime_learners", "domains.domain_learners",
        {"setups": ("printed",)}, ("quick borrowed", "full borrowed"),
    ),
    Study(
        "regime_positions", "domains.regime_selection",
        {}, ("quick positions", "full positions"),
    ),
    *_in(
        "average_case.", "average_case_bias", "average_case_classes",
        "average_case_errors", "control_variate_gain",
    ),
    Study(
        "average_case_ends", "average_case.average_case_bias",
        {}, ("quick ends", "full ends"),
    ),
    Study(
        "average_case_penalty", "average_case.average_case_errors",
        {}, ("quick penalty", "full penalty"),
    ),
    *_in("average_case.", "average_case_speed", device="cpu"),
    *_in(
        "margins.", "defended", "margin_accuracy", "margin_autoattack",
        "margin_consistency", "margin_convergence", "margin_pseudo",
    ),
    Study("margin_samples", "margins.margin_consistency", {"samples": True}),
    *_in("lenses.", "three_lenses"),
    *_in("", "people", "pairing"),
    Study("pairing_heads", "pairing", {}, ("quick heads", "full heads")),
    *_in("", "error_bars", "deployed", "label_free", device="cpu"),
)  # fmt: skip

#: Studies by name.
STUDIES: Final[dict[str, Study]] = {study.name: study for study in _ALL}


def run_study(
    name: str,
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    engine: str = "local:1",
    minutes: float | None = None,
    directory: Path | str | None = None,
) -> Results:
    """Run a study and store its rows with their provenance.

    Parameters
    ----------
    name : str
        A key of :data:`STUDIES`.
    profile : {"quick", "full"}, default "full"
        "quick" needs only what the package carries.
    seed : int, default 0
        Random seed.
    device : str, default "auto"
        Where to run: "cpu", "cuda", or "auto" for a CUDA device if there is one.
    engine : str, default "local:1"
        The processes that run its parts: "local" for as many as there are cores (one on
        a CUDA device), "local:N" for N, "dask://HOST:PORT" for the workers of that Dask
        scheduler. The rows do not depend on it.
    minutes : float, optional
        Begin no part after so many minutes, and raise a DeadlineError if one is
        missing: finished parts are kept, and the next call goes on from there.
    directory : Path or str, optional
        Where to write ``NAME.json``; the project's ``data/results`` by default.

    Raises
    ------
    ValueError
        If there is no such study, profile, device or engine, or the seed is negative.
    DataUnavailableError
        If data or weights are not available.
    OSError
        If the engine cannot be reached, or its workers do not share the cache.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     speed = run_study("agreement_speed", profile="quick", directory=folder)
    >>> speed.profile
    'quick'
    """
    study = _named(name)
    results = study.compute(
        profile=profile, seed=seed, device=device, engine=engine, stamped=True,
        until=None if minutes is None else time.time() + 60 * minutes,
    )  # fmt: skip
    # Imported by name: the stamp of a reader of rows must not cover their writer.
    stored = importlib.import_module("robustbook.studies._stored")
    written: Results = stored.write_results(results, directory=directory)
    return written


def results_for(
    name: str,
    *,
    profile: str,
    recompute: bool = False,
    seed: int = 0,
    device: str = "auto",
) -> Results:
    """Return the rows of a study as a chapter shows them, with their provenance.

    In the full profile they are read from ``data/results``, unless `recompute` is
    true. In the quick profile they are computed at once, on a smaller problem.

    Parameters
    ----------
    name, profile, seed, device
        As in :func:`run_study`.
    recompute : bool, default False
        Compute the rows even if they are stored. The stored file is not changed.

    Raises
    ------
    ValueError, DataUnavailableError
        As :func:`run_study` does; also if the stored rows are not of the full profile.

    Examples
    --------
    >>> results_for("agreement_speed", profile="full").name
    'agreement_speed'
    """
    study = _named(name)
    if profile != "full" or recompute:
        return study.compute(profile=profile, seed=seed, device=device)
    stored = read_results(name)
    if stored.profile != "full":
        raise DataUnavailableError(
            f"{name}: expected stored rows of the full profile, got "
            f"{stored.profile!r}; run `python -m robustbook.studies {name}`"
        )
    return stored


def _named(name: str) -> Study:
    if name not in STUDIES:
        known = ", ".join(sorted(STUDIES))
        raise ValueError(f"name: expected one of {known}; got {name!r}")
    return STUDIES[name]
