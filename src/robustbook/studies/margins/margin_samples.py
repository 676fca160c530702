"""Margins of single images, drawn at random: what scatter plots show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from robustbook.studies._run import Row, Run, significant
from robustbook.studies.margins.measured import margin_blocks as jobs
from robustbook.studies.margins.measured import margins_in, scores_of
from robustbook.studies.margins.measured import measure_block as measure
from robustbook.studies.margins.settings import SETTINGS, MarginSetting

__all__ = ["SETTINGS", "jobs", "measure", "rows"]

#: Images that are shown of each model.
SHOWN: Final = {"quick": 100, "full": 200}


def rows(run: Run[MarginSetting]) -> Iterator[Row]:
    """Return the margins of some images, of the same ones for all models of a data set.

    One row for each model and image: ``index`` in the split, ``label``, ``predicted``,
    ``input_margin`` (an upper bound), ``logit_margin``, ``feature_margin``,
    ``softmax_margin``, ``gradient_margin``, ``first_order_margin`` and
    ``feature_distance``, how far the features are from those of the closest image.
    """
    for setting, model in run.each_model():
        fewest = min(count for _, count in setting.models.values())
        random = np.random.default_rng([run.seed, fewest])
        chosen = random.choice(fewest, size=SHOWN[run.profile], replace=False)
        measured = margins_in(run, setting, model)
        scores = scores_of(measured)
        predicted = measured.logits.argmax(dim=1)
        for index in np.sort(chosen).tolist():
            yield {
                "dataset": setting.dataset, "model": model, "index": index,
                "label": int(measured.labels[index]),
                "predicted": int(predicted[index]),
                "input_margin": significant(measured.bounds[index]),
                **{name: significant(one[index]) for name, one in scores.items()},
                "feature_distance": significant(measured.feature_shifts[index]),
            }  # fmt: skip
