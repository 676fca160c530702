"""What the features of two domains vary along, epoch by epoch: Experiment 5c."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

from robustbook.studies._run import Row, Run, decimals, under
from robustbook.studies._statistics import Values
from robustbook.studies.domains._pictures import SETUPS
from robustbook.studies.domains._training import FULL, QUICK, TrainingSetting
from robustbook.studies.domains._watched import (
    WATCHED_LEARNERS,
    Watched,
    watch_training,
)
from robustbook.studies.domains.components import (
    margins,
    picture_numbers,
    principal_component,
)

#: Epochs whose picture is kept for the first seed, beside the last.
SHOWN: Final = (1, 2, 5, 10)
#: The same for the other seeds.
SHOWN_OF_OTHERS: Final = (5,)

#: Those of chapter 14 with half as many images, and another rate.
SETTINGS: Final = {
    "full": (FULL(count=2500, epochs=15, batch_size=64, lr=1e-2),),
    "quick": (QUICK(count=256, laps=2, epochs=6, lr=1e-2),),
}


def rows(run: Run[TrainingSetting]) -> Iterator[Row]:
    """Train on two domains, and look at the features of validation pairs.

    Rows for each ``setup`` ("printed" or "configured" environments), ``learner``
    ("ERM", "IRM", "IRM-100"), ``training_seed`` (0, 1, ... after the seed of the
    validation images) and ``epoch``, with ``what`` =
    "epoch": loss, risk and scores of all validation pairs (accuracy, same_answer_rate,
    pa, pa_se, beta, confidence), and what :func:`picture_numbers` says of 128 of them;
    "picture": for those, ``labels`` as a string of classes, and ``first``, ``second``:
    where the two samples of each pair are along the first principal component of their
    own sample; ``common_first``, ``common_second``: along that of both samples
    together, all in standard deviations; and ``margin_first``, ``margin_second``: by
    how much the logit of class 1 is ahead. Each is a string of decimals.

    PA thesis, section 4.3, Experiment 5c; PA paper, appendix D. Training is stored in
    the cache after every epoch. The book's audit of domain shift.
    """
    setting = run.setting
    seeds = range(run.seed, run.seed + setting.seeds)
    for training_seed, setup, learner in run.each(
        product(seeds, SETUPS, WATCHED_LEARNERS)
    ):
        watched = watch_training(run, setup, learner, training_seed)
        keys = {"setup": setup, "learner": learner, "training_seed": training_seed}
        shown = SHOWN if training_seed == run.seed else SHOWN_OF_OTHERS
        yield from under(keys, _of_training(watched, {setting.epochs, *shown}))


def _of_training(watched: Watched, shown: set[int]) -> Iterator[Row]:
    for scores, features, head in zip(
        watched.epochs, watched.features, watched.heads, strict=True
    ):
        epoch = int(scores["epoch"])
        numbers = picture_numbers(features[0], features[1], watched.labels, head)
        yield {
            "what": "epoch",
            "epoch": epoch,
            **{
                key.removeprefix("same/"): value
                for key, value in scores.items()
                if key != "epoch"
            },
            **{
                key: value if isinstance(value, int) else decimals(value, 8)
                for key, value in numbers.items()
            },
        }
        if epoch in shown:
            picture = _picture(features[0], features[1], watched.labels, head)
            yield {"what": "picture", "epoch": epoch, **picture}


def _picture(first: Values, second: Values, labels: Values, head: Values) -> Row:
    both = np.concatenate([first, second]), np.tile(labels, 2)
    common = principal_component(*both)
    values = {
        name: part.values
        for name, part in {
            "first": principal_component(first, labels),
            "second": principal_component(second, labels),
        }.items()
        if part is not None
    }
    if common is not None:
        values["common_first"], values["common_second"] = common.values.reshape(2, -1)
    values["margin_first"] = margins(first, head)
    values["margin_second"] = margins(second, head)
    return {
        "labels": "".join(str(int(label)) for label in labels),
        **{
            name: " ".join(f"{number:.4g}" for number in some)
            for name, some in values.items()
        },
    }
