"""Principal components of the features of two domains by epoch: Experiment 5c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from robustbook.studies.domains._pictures import PRINTED_AND_CONFIGURED
from robustbook.studies.domains._recorded import Watched, watch_training
from robustbook.studies.domains._training import FULL, QUICK, TrainingSetting, trainings
from robustbook.studies.domains.components import picture_numbers, principal_component
from robustbook.studies.run import Row, Run, decimals, with_keys

#: The two learners of the experiment, and one with a much larger penalty.
LEARNERS: Final = ("ERM", "IRM", "IRM-100")
#: Epochs whose picture is kept for the first seed, beside the last.
SHOWN: Final = (1, 2, 5, 10)
#: The same for the other seeds.
SHOWN_OF_OTHERS: Final = (5,)

#: The settings of Chapter 15 with half of the images, and another learning rate.
SETTINGS: Final = {
    "full": (FULL(count=2500, epochs=15, batch_size=64, lr=1e-2),),
    "quick": (QUICK(count=256, repeats_per_digit=2, epochs=6, lr=1e-2),),
}


def parts(run: Run[TrainingSetting]) -> Iterator[tuple[str, str, int]]:
    """The trainings that the rows are computed from."""
    return trainings(run, PRINTED_AND_CONFIGURED, LEARNERS)


def measure(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> Iterator[Row]:
    """Train on two domains, and look at the features of validation pairs.

    Rows for each ``setup`` ("printed" or "configured" environments), ``learner``
    ("ERM", "IRM", "IRM-100"), ``training_seed`` (0, 1, ... after the seed of the
    validation images) and ``epoch``, with ``what`` =
    "epoch": loss, risk and scores of all validation pairs (accuracy, same_answer_rate,
    pa, pa_se, beta, confidence), and what :func:`picture_numbers` says of 128 of them;
    "picture": for those, ``labels`` as a string of classes, and ``first``, ``second``:
    where the two samples of each pair are along the first principal component of their
    own sample, in standard deviations. Each is a string of decimals.

    PA thesis, section 4.3, Experiment 5c; PA paper, appendix D. The book's audit of
    domain shift.
    """
    watched = watch_training(run, setup, learner, training_seed)
    keys = {"setup": setup, "learner": learner, "training_seed": training_seed}
    shown = SHOWN if training_seed == run.seed else SHOWN_OF_OTHERS
    return with_keys(keys, _of_training(watched, {run.setting.epochs, *shown}))


def _of_training(watched: Watched, shown: set[int]) -> Iterator[Row]:
    labels = watched.labels
    for scores, (first, second) in zip(watched.epochs, watched.features, strict=True):
        epoch = int(scores["epoch"])
        scored = {key.removeprefix("same/"): value for key, value in scores.items()}
        numbers = picture_numbers(first, second, labels)
        seen = {key: decimals(value, 8) for key, value in numbers.items()}
        yield {"what": "epoch", **scored, **seen, "epoch": epoch}
        if epoch in shown:
            row = {"labels": "".join(str(int(label)) for label in labels)}
            for name, features in (("first", first), ("second", second)):
                values = principal_component(features, labels)
                if values is not None:
                    row[name] = " ".join(f"{number:.4g}" for number in values)
            yield {"what": "picture", "epoch": epoch, **row}
