"""What Adam reports where nothing is shifted: the papers' pseudo-PA."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from robustbook.agreement import adam_agreement, posterior_agreement
from robustbook.models import load_model, logits_of, resolve_device
from robustbook.scores import accuracy
from robustbook.studies._rows import Row, share_error
from robustbook.studies._settings import settings_of

__all__ = ["pseudo_agreement"]

#: The papers' settings, and others that are no less reasonable.
RUNS: tuple[dict[str, Any], ...] = (
    {"lr": 0.1, "epochs": 500, "beta0": 1.0},
    {"lr": 0.1, "epochs": 50, "beta0": 1.0},
    {"lr": 0.01, "epochs": 500, "beta0": 1.0},
    {"lr": 0.1, "epochs": 500, "beta0": 10.0},
)


def pseudo_agreement(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Run the papers' optimization on identical logits, where PA is log K.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Kept with the rows; nothing here is random.
    device : str
        Where the models run.

    Returns
    -------
    list of dict
        One row for each model, setting of Adam, and scale of the logits: where it
        stops (``beta``, ``pa`` in nats, ``log_pa``), the certified ``exact_pa``,
        clean accuracy, and mean confidence of the model.
    """
    setting = settings_of(profile)
    data = setting.data()
    rows: list[Row] = []
    for model_name in tqdm(setting.models, desc="pseudo_agreement", disable=None):
        model = load_model(model_name).eval().to(resolve_device(device))
        logits = logits_of(model, data.images)
        share = accuracy(logits, data.labels)
        exact = posterior_agreement(logits, logits)
        for scale in (1.0, 0.1):
            for run in RUNS:
                steps = run if profile == "full" else {**run, "epochs": 50}
                trace = adam_agreement(
                    scale * logits, scale * logits, batch_size=16, seed=None, **steps
                )
                rows.append(
                    {
                        "dataset": data.name,
                        "model": model_name,
                        "samples": len(data),
                        "scale": scale,
                        **steps,
                        "beta": trace.best_beta,
                        "pa": trace.best_pa,
                        "log_pa": len(data) * (trace.best_pa - exact.pa),
                        "exact_pa": exact.pa,
                        "exact_beta": exact.beta,
                        "accuracy": share,
                        "accuracy_se": share_error(share, len(data)),
                        "mean_confidence": float(
                            (scale * logits).softmax(1).amax(1).mean()
                        ),
                    }
                )
    return rows
