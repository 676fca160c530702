"""Principal components of the features of two domains by epoch: Experiment 5c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from robustbook.studies.domains._recorded import Watched, watch_training
from robustbook.studies.domains._training import FULL, QUICK, TrainingSetting, trainings
from robustbook.studies.domains.components import picture_numbers, principal_component
from robustbook.studies.run import Row, Run, decimals, with_keys

#: The environments, as the papers print them.
SETUP: Final = "printed"
#: The learners of the experiment.
LEARNERS: Final = ("ERM", "IRM")
#: The epoch whose picture is kept.
SHOWN: Final = 5

#: Weights from photographs, as in `regime_learners`, and the rate of the sources.
SETTINGS: Final = {
    "full": (
        FULL(network="cifar10-resnet20", borrowed=True, scale="own", size=48, count=800,
             epochs=15, batch_size=32, lr=1e-2, validated=240),
    ),
    "quick": (QUICK(count=256, repeats_per_digit=2, epochs=6, lr=1e-2),),
}  # fmt: skip


def parts(run: Run[TrainingSetting]) -> Iterator[tuple[str, int]]:
    """The trainings that the rows are computed from."""
    for _, learner, training_seed in trainings(run, (SETUP,), LEARNERS):
        yield learner, training_seed


def measure(
    run: Run[TrainingSetting], learner: str, training_seed: int
) -> Iterator[Row]:
    """Train on two domains, and look at the features of validation pairs.

    Rows for each ``learner`` ("ERM", "IRM"), ``training_seed`` (0, 1, ... after the
    seed of the validation images) and ``epoch``, with ``what`` =
    "epoch": loss, risk and scores of all validation pairs (accuracy, same_answer_rate,
    pa, pa_se, beta, confidence), and what :func:`picture_numbers` says of 128 of them;
    "picture": for those, ``labels`` as a string of classes, and ``first``, ``second``:
    where the two samples of each pair are along the first principal component of their
    own sample, in standard deviations. Each is a string of decimals.

    PA thesis, section 4.3, Experiment 5c; PA paper, appendix D. The book's audit of
    domain shift.
    """
    watched = watch_training(run, SETUP, learner, training_seed)
    keys = {"learner": learner, "training_seed": training_seed}
    return with_keys(keys, _of_training(watched))


def _of_training(watched: Watched) -> Iterator[Row]:
    labels = watched.labels
    for scores, (first, second) in zip(watched.epochs, watched.features, strict=True):
        epoch = int(scores["epoch"])
        scored = {key.removeprefix("same/"): value for key, value in scores.items()}
        numbers = picture_numbers(first, second, labels)
        seen = {key: decimals(value, 8) for key, value in numbers.items()}
        yield {"what": "epoch", **scored, **seen, "epoch": epoch}
        if epoch == SHOWN:
            row = {"labels": "".join(str(int(label)) for label in labels)}
            for name, features in (("first", first), ("second", second)):
                values = principal_component(features, labels)
                if values is not None:
                    row[name] = " ".join(f"{number:.4g}" for number in values)
            yield {"what": "picture", "epoch": epoch, **row}
