"""All estimates of average-case robustness of one network, as the cache keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import nn

from robustbook._store.cache import Arrays
from robustbook.average_case import mmse, monte_carlo, softmax_proxy, taylor
from robustbook.datasets import Dataset
from robustbook.studies._statistics import Values

#: The scale at which the logistic function is closest to the normal one; the paper's
#: source for its sigmoid has it, the paper's formula has not.
LOGISTIC_SCALE: Final = 1.702
#: The estimates that are compared with Monte Carlo.
ESTIMATORS: Final = (
    "taylor", "taylor_mvs", "taylor_mvs_scaled",
    "mmse", "mmse_mvs", "mmse_pairs", "softmax",
)  # fmt: skip


def estimated_arrays(
    model: nn.Module, data: Dataset, *, sigmas: Sequence[float],
    estimators: Sequence[str], fits: int, counts: Sequence[int], focus: float,
    precision: float, seed: int,
) -> Arrays:  # fmt: skip
    """All estimates of one model, each (S, N)."""
    x, sigmas = data.images, list(sigmas)
    truth = monte_carlo(model, x, sigmas, precision=precision, seed=seed)
    assert truth.trials is not None
    result: Arrays = {
        "monte_carlo": truth.probability.numpy(),
        "trials": truth.trials.numpy(),
    }
    for estimator in estimators:
        result[estimator] = _estimate(estimator, model, data, sigmas, fits, seed + 1)
    for count in counts:
        for estimator in ("mmse", "mmse_pairs"):
            if estimator == "mmse" or count % 2 == 0:
                result[f"{estimator} {count}"] = _estimate(
                    estimator, model, data, [focus], count, seed + 2
                )
    return result


def _estimate(
    estimator: str, model: nn.Module, data: Dataset, sigmas: list[float],
    fits: int, seed: int,
) -> Values:  # fmt: skip
    """One estimate (S, N)."""
    x = data.images
    if estimator == "softmax":
        return softmax_proxy(model, x).numpy()[None].repeat(len(sigmas), axis=0)
    cdf: Any = "mv_sigmoid" if "mvs" in estimator else "mvn"
    if estimator.startswith("mmse"):
        result = mmse(
            model, x, sigmas, samples=fits, cdf=cdf, seed=seed,
            antithetic=estimator == "mmse_pairs",
        )  # fmt: skip
    else:
        # The margins are divided by sigma: a scale for them is one for 1 / sigma.
        scale = LOGISTIC_SCALE if estimator.endswith("scaled") else 1.0
        result = taylor(model, x, [sigma / scale for sigma in sigmas], cdf=cdf)
    return result.probability.numpy()
