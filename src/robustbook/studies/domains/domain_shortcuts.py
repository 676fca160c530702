"""Which epoch to take where a factor gives the class away?"""

from __future__ import annotations

from robustbook.datasets.diagvib import OPPORTUNITIES
from robustbook.studies.domains._data import domain_sums
from robustbook.studies._rows import Row
from robustbook.studies.domains._selections import FACTORS, SHORTCUT_PLANS, all_epochs

__all__ = ["data_sums", "domain_shortcuts"]


def domain_shortcuts(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Train where a factor gives the class away, more and less; score every epoch.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes the embedded digits, smaller images and two seeds.
    seed : int
        Of the validation and test images. The trainings have the seeds 0, 1, ...
        after it.
    device : str
        Where the models are trained.

    Returns
    -------
    list of dict
        One for each ``factor``, ``setting`` (of
        :data:`robustbook.datasets.diagvib.OPPORTUNITIES`), ``learner`` ("ERM" or
        "IRM"), ``training_seed`` and ``epoch``, with the columns of the experiment
        ``domain_selection`` for the validation pair "ID"; and for the pair "tests" of
        test environments 0 and 1, ``tests/afr_pred``, ``tests/pa``, ``tests/beta`` and
        ``tests/confidence`` of the second.

    Notes
    -----
    PA thesis, section 5.2, Experiment 7, Tables 5.5 to 5.7, B.3 and B.4; PA paper,
    Table 1. Training is stored in the cache after every epoch. Chapter 17 of this
    book.
    """
    return all_epochs(
        [
            (f"{factor} {setting}", learner)
            for factor in FACTORS
            for setting in OPPORTUNITIES
            for learner in ("ERM", "IRM")
        ],
        SHORTCUT_PLANS[profile],
        of_tests=("afr_pred", "pa", "beta", "confidence"),
        seed=seed,
        device=device,
    )


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the digits that the images are made of."""
    return domain_sums(SHORTCUT_PLANS[profile])
