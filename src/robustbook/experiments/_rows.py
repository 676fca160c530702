"""What the experiments of Part III share: rows, and how they are stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from robustbook.experiments._settings import Setting
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import load_model
from robustbook.results import write_results

__all__ = ["Row", "share_error", "store"]

Row = dict[str, Any]

#: What the numbers depend on, beside data and weights, which have sums of their own.
MEASURES = ("robustbook.agreement", "robustbook.attacks", "robustbook.scores")


def share_error(share: float, count: int) -> float:
    """Standard error of a share among `count` independent samples."""
    return math.sqrt(share * (1 - share) / count)


def store(
    name: str,
    rows: Iterable[Row],
    *,
    setting: Setting,
    profile: str,
    seed: int,
    device: str,
    started: datetime,
    directory: Path | None,
    modules: Sequence[str] = MEASURES,
) -> list[Row]:
    """Write rows, if a folder is given, with the sums of the models; return them."""
    table = list(rows)
    if directory is not None:
        sums = {model: model_sha256(load_model(model)) for model in setting.models}
        sums[f"{setting.dataset} {setting.split}"] = data_sha256(setting.data())
        write_results(
            name,
            table,
            experiment=name,
            profile=profile,
            seed=seed,
            device=device,
            modules=list(modules),
            started=started,
            data_sha256=sums,
            directory=directory,
        )
    return table
