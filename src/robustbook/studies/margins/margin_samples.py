"""Margins of single images, drawn at random: what scatter plots show."""

from __future__ import annotations

from typing import Final

import numpy as np
from tqdm import tqdm

from robustbook.studies.margins._measured import (
    FOUND_BY,
    margin_settings,
    margin_sums,
    scores_of,
)
from robustbook.studies._rows import Row

__all__ = ["data_sums", "margin_samples"]

#: Images that are shown of each model.
SHOWN: Final = {"quick": 100, "full": 200}


def margin_samples(
    *, profile: str = "full", seed: int = 0, device: str = "auto"
) -> list[Row]:
    """Return the margins of some images, of the same ones for all models of a data set.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits, "full" CIFAR-10 and MNIST.
    seed : int
        Of the attacks and of the choice.
    device : str
        Where the attacks run.

    Returns
    -------
    list of dict
        One row for each model and image: ``index`` in the split, ``label``,
        ``predicted``, ``input_margin`` (an upper bound), ``found_by``,
        ``logit_margin``, ``feature_margin``, ``softmax_margin``,
        ``gradient_margin``, ``first_order_margin`` and ``feature_distance``, how far
        the features are from those of the closest image found.
    """
    rows: list[Row] = []
    for setting in margin_settings(profile):
        fewest = min(count for _, count in setting.models.values())
        random = np.random.default_rng([seed, fewest])
        chosen = np.sort(random.choice(fewest, size=SHOWN[profile], replace=False))
        for model in tqdm(setting.models, desc="margin_samples", disable=None):
            found = setting.margins(model, seed=seed, device=device)
            scores = scores_of(found)
            predicted = found.logits.argmax(dim=1)
            for index in chosen.tolist():
                rows.append(
                    {
                        "dataset": setting.dataset,
                        "model": model,
                        "index": index,
                        "label": int(found.labels[index]),
                        "predicted": int(predicted[index]),
                        "input_margin": _short(found.bounds[index]),
                        "found_by": FOUND_BY[int(found.found_by[index])],
                        **{name: _short(one[index]) for name, one in scores.items()},
                        "feature_distance": _short(found.feature_shifts[index]),
                    }
                )
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the models and of the images."""
    return margin_sums(profile)


def _short(value: object) -> float:
    """Six digits: more is not drawn."""
    return float(f"{float(value):.6g}")  # type: ignore[arg-type]
