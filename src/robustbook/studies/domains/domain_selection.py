"""Which epoch to take: by accuracy, by agreement of predictions, or by PA?"""

from __future__ import annotations

from robustbook.studies.domains._data import LEARNERS, domain_sums
from robustbook.studies._rows import Row
from robustbook.studies.domains._selections import FACTORS, SELECTION_PLANS, all_epochs

__all__ = ["data_sums", "domain_selection"]


def domain_selection(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Train where two source domains differ in a factor; score every epoch.

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
        One for each ``factor`` ("hue" or "position"), ``learner``, ``training_seed``
        and ``epoch``: ``loss``, ``risk``; for each validation pair NAME ("SD", "ID",
        "1F-MD", "5F-MD", "OOD") ``NAME/accuracy``, ``NAME/afr_pred``, ``NAME/pa``,
        ``NAME/other_afr_pred``, ``NAME/other_pa``, ``NAME/classes``; ``test/0`` to
        ``test/5``. In a pair are the same digits, for ``other_`` different ones of
        the same class. In "SD" with the same digits both samples are the same.

    Notes
    -----
    PA thesis, section 5.1, Experiment 6, Tables 5.3, 5.4, B.1 and B.2. Training is
    stored in the cache after every epoch. Chapter 17 of this book.
    """
    return all_epochs(
        [(factor, learner) for factor in FACTORS for learner in LEARNERS],
        SELECTION_PLANS[profile],
        seed=seed,
        device=device,
    )


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the digits that the images are made of."""
    return domain_sums(SELECTION_PLANS[profile])
