"""The value that Adam reports without any shift: the papers' pseudo-PA."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from robustbook.agreement import adam_agreement, posterior_agreement
from robustbook.models import logits_of
from robustbook.scores import accuracy
from robustbook.studies._statistics import share_row
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run

#: The papers' settings, and others that are as reasonable.
RUNS: tuple[dict[str, Any], ...] = (
    {"lr": 0.1, "epochs": 500, "beta0": 1.0},
    {"lr": 0.1, "epochs": 50, "beta0": 1.0},
    {"lr": 0.01, "epochs": 500, "beta0": 1.0},
    {"lr": 0.1, "epochs": 500, "beta0": 10.0},
)
#: The same, with fewer epochs.
QUICK_RUNS: Final = tuple({**options, "epochs": 20} for options in RUNS[1:])


def measure(run: Run[AttackSetting], model: str) -> Iterator[Row]:
    """Run the papers' optimization on identical logits, where PA is log K.

    One row for each model, setting of Adam, and scale of the logits: where it stops
    (``beta``, ``pa`` in nats, ``log_pa``), the certified ``exact_pa``, clean accuracy,
    and mean confidence of the model. Nothing here is random.
    """
    data, samples = run.data, len(run.data)
    logits = logits_of(run.model(model), data.images)
    exact = posterior_agreement(logits, logits)
    every = RUNS if run.profile == "full" else QUICK_RUNS
    for scale, steps in product((1.0, 0.1), every):
        scaled = scale * logits
        path = adam_agreement(scaled, scaled, batch_size=16, seed=None, **steps)
        yield {
            "dataset": data.name,
            "model": model,
            "samples": samples,
            "scale": scale,
            **steps,
            "beta": path.best_beta,
            "pa": path.best_pa,
            "log_pa": samples * (path.best_pa - exact.pa),
            "exact_pa": exact.pa,
            "exact_beta": exact.beta,
            **share_row("accuracy", accuracy(logits, data.labels), samples),
            "mean_confidence": float(scaled.softmax(1).amax(1).mean()),
        }
