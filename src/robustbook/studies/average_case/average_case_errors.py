"""How far the linearized estimates of average-case robustness are from the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.sums import model_sum
from robustbook.datasets import load_dataset
from robustbook.models import build_model, load_model, resolve_device
from robustbook.studies._run import Row, Run, Setting, data_sum, decimals, under
from robustbook.studies._statistics import Values, mean_row
from robustbook.studies.average_case._estimates import ESTIMATORS, estimated_arrays
from robustbook.training import train_classifier

QUANTILES: Final = (0.05, 0.5, 0.95)
#: Weights of a penalty on the gradient's norm, as names of models have them.
PENALTIES: Final = ("1e-4", "1e-3", "1e-2", "1e-1", "1")


#: Linear models that are trained here, as the paper's are, and on what.
_TRAINED: Final = {"mnist-linear": "mnist", "fashion-linear": "fashion-mnist"}
#: How.
_RECIPE: Final[dict[str, Any]] = {"epochs": 3, "lr": 1e-3}


@dataclass(frozen=True, kw_only=True)
class EstimateSetting(Setting):
    """Networks that are measured on the same images with the same noise."""

    models: tuple[str, ...]
    sigmas: tuple[float, ...]
    samples: int = 60
    #: Noisy inputs of the MMSE fits.
    fits: int = 20
    #: Standard error that Monte Carlo aims at.
    precision: float = 0.02
    estimators: tuple[str, ...] = ESTIMATORS
    #: The noise at which single images are stored, and of which models.
    focus: float = 0.1
    shown: tuple[str, ...] = ()
    #: Noisy inputs of more and more precise MMSE fits, for the last of these models.
    counts: tuple[int, ...] = ()

    def checkpoints(self) -> list[str]:
        """Those that are not trained here."""
        return [name for name in self.models if name not in _TRAINED]


def _with_penalties(setting: EstimateSetting) -> tuple[EstimateSetting, ...]:
    """Some models and a CNN, and this CNN trained with penalties."""
    network = f"{setting.dataset}-cnn"
    family = EstimateSetting(
        dataset=setting.dataset, split=setting.split, sigmas=setting.sigmas,
        models=tuple(f"{network}-grad{weight}-s0" for weight in PENALTIES),
        estimators=("taylor", "mmse_pairs"),
    )  # fmt: skip
    return replace(setting, models=(*setting.models, f"{network}-s0")), family


SETTINGS: Final = {
    "quick": (
        EstimateSetting(
            dataset="digits",
            models=(
                "digits-linear-s0", "digits-cnn-s0", "digits-cnn-noise-s0",
                "digits-cnn-adv-s0",
                *(f"digits-cnn-grad{weight}-s0" for weight in PENALTIES[2:]),
            ),
            sigmas=(0.1, 0.2, 0.4), samples=16, fits=10, precision=0.03, focus=0.2,
            shown=("digits-linear-s0", "digits-cnn-s0"), counts=(1, 2, 5, 10),
        ),
    ),
    "full": (
        *_with_penalties(
            EstimateSetting(
                dataset="mnist",
                models=(
                    "mnist-linear", "mnist-conv_small_nat", "mnist-kw",
                    "mnist-cnn_a_adv", "mnist-madry_tiny_adv",
                ),
                sigmas=(0.1, 0.2, 0.4, 0.6, 1.0), focus=0.4,
                shown=("mnist-linear", "mnist-conv_small_nat"),
                counts=(1, 2, 5, 10, 25, 50, 100),
            )
        ),
        *_with_penalties(
            EstimateSetting(
                dataset="fashion-mnist", models=("fashion-linear", "fashion-kw"),
                sigmas=(0.05, 0.1, 0.2, 0.4, 0.8), focus=0.2,
                shown=("fashion-mnist-cnn-s0", "fashion-kw"),
                counts=(1, 2, 5, 10, 25, 50, 100),
            )
        ),
        *_with_penalties(
            EstimateSetting(
                dataset="cifar10", split="test1000",
                models=(
                    "cifar10-captum_lenet", "cifar10-cnn_a_adv4",
                    "cifar10-resnet4b_adv",
                ),
                sigmas=(0.01, 0.02, 0.05, 0.1, 0.2), focus=0.05,
                shown=("cifar10-captum_lenet",),
            )
        ),
    ),
}  # fmt: skip


def rows(run: Run[EstimateSetting]) -> Iterator[Row]:
    """Compare every estimate with Monte Carlo, image by image.

    Rows with ``what`` =
    "error": for each ``sigma`` and ``estimator``, over the images: the mean absolute
    difference to Monte Carlo (``mean_abs``), what Monte Carlo's own error adds up to in
    it for a perfect estimate (``floor``), and the mean squared difference less Monte
    Carlo's variance (``mse``, unbiased);
    "distribution": quantiles of the estimates over the images;
    "cdf": mv-sigmoid against the normal distribution function, at the Taylor margins,
    as printed and with its argument scaled;
    "convergence": MMSE with ``fits`` noisy inputs, drawn one by one as in the paper
    ("mmse") or as pairs of noise with opposite signs ("mmse_pairs");
    "image": the estimates of single images.
    Models trained with a penalty on the gradient's norm have rows of the first kind,
    with Taylor and MMSE in pairs only.

    Average-case paper, Figures 1, 2, 5 to 10. Chapter 18 of this book.
    """
    for setting, name in run.each_model():
        arrays = measure(run, setting, name)
        images, counts = len(setting.data()), _counts(setting, name)
        keys = {"dataset": setting.dataset, "model": name, "images": images}
        yield from under(keys, _of_model(setting, name, counts, arrays))


def _counts(setting: EstimateSetting, name: str) -> tuple[int, ...]:
    return setting.counts if name in setting.shown[-1:] else ()


def measure(run: Run[EstimateSetting], setting: EstimateSetting, name: str) -> Arrays:
    """The estimates of a network."""
    data = setting.data()
    model = _model(name, run.seed).to(resolve_device(run.device))
    options: dict[str, Any] = {
        "sigmas": setting.sigmas, "estimators": setting.estimators,
        "fits": setting.fits, "counts": _counts(setting, name), "focus": setting.focus,
        "precision": setting.precision, "seed": run.seed,
    }  # fmt: skip
    return cached_arrays(
        {
            "device": str(resolve_device(run.device)), "model": model_sum(model),
            "images": data_sum(data), "options": repr(options),
        },
        partial(estimated_arrays, model, data, **options),
        code=estimated_arrays.__module__,
    )  # fmt: skip


def _model(name: str, seed: int) -> nn.Module:
    """Load a checkpoint, or train one of the linear models of this study."""
    if name not in _TRAINED:
        return load_model(name).eval()
    model = build_model("linear", seed=seed, options={"size": 28})
    data = load_dataset(_TRAINED[name], "train")

    def fit() -> Arrays:
        train_classifier(model, data, **_RECIPE, seed=seed, progress=False)
        return {key: value.numpy() for key, value in model.state_dict().items()}

    weights = cached_arrays(
        {
            "recipe": repr(_RECIPE), "initial": model_sum(model),
            "images": data_sum(data), "seed": seed,
        },
        fit,
        code=train_classifier.__module__,
    )  # fmt: skip
    model.load_state_dict({key: torch.tensor(v) for key, v in weights.items()})
    return model.eval()


def _of_model(
    setting: EstimateSetting, name: str, counts: tuple[int, ...], arrays: Arrays
) -> Iterator[Row]:
    truth, trials = arrays["monte_carlo"], arrays["trials"]
    variance = truth * (1 - truth) / np.maximum(trials - 1, 1)
    every = len(setting.estimators) == len(ESTIMATORS)
    for place, sigma in enumerate(setting.sigmas):
        for estimator in setting.estimators:
            compared = _compare(arrays[estimator][place], truth[place], variance[place])
            keys = {"what": "error", "sigma": sigma, "estimator": estimator}
            yield {**keys, **compared}
        if not every:
            continue
        for estimator in ("monte_carlo", "taylor", "mmse"):
            values = arrays[estimator][place]
            yield {
                "what": "distribution", "sigma": sigma, "estimator": estimator,
                "mean": decimals(values.mean()),
                **{
                    f"q{round(100 * q):02d}": decimals(np.quantile(values, q))
                    for q in QUANTILES
                },
            }  # fmt: skip
        yield {"what": "cdf", "sigma": sigma, **_compare_cdfs(arrays, place)}
    if name not in setting.shown:
        return
    place = setting.sigmas.index(setting.focus)
    for count in counts:
        for estimator in ("mmse", "mmse_pairs"):
            if f"{estimator} {count}" in arrays:
                estimate = arrays[f"{estimator} {count}"][0]
                yield {
                    "what": "convergence", "sigma": setting.focus, "fits": count,
                    "estimator": estimator,
                    **_compare(estimate, truth[place], variance[place]),
                }  # fmt: skip
    for index in range(setting.samples):
        yield {
            "what": "image", "sigma": setting.focus, "index": index,
            "trials": int(trials[place, index]),
            **{
                key: decimals(arrays[key][place, index])
                for key in ("monte_carlo", "taylor", "mmse_pairs")
            },
        }  # fmt: skip


def _compare(estimate: Values, truth: Values, variance: Values) -> Row:
    """Differences to Monte Carlo, whose own variance is known."""
    difference = estimate - truth
    square = difference**2 - variance
    return {
        "truth": decimals(truth.mean()),
        **mean_row("mean_abs", np.abs(difference), decimals),
        "floor": decimals(np.sqrt(2 * variance / math.pi).mean()),
        **mean_row("mse", square, partial(decimals, digits=9)),
    }


def _compare_cdfs(arrays: Arrays, place: int) -> Row:
    normal, printed, scaled = (
        arrays[name][place] for name in ("taylor", "taylor_mvs", "taylor_mvs_scaled")
    )
    constant = np.ptp(normal) == 0 or np.ptp(printed) == 0
    # Images that the Taylor estimate calls safe: failure below one in a hundred.
    safe = normal > 0.99
    row = {
        "mean_abs": decimals(np.abs(printed - normal).mean()),
        "pearson": None if constant else decimals(np.corrcoef(normal, printed)[0, 1]),
        "scaled_mean_abs": decimals(np.abs(scaled - normal).mean()),
        "safe": int(safe.sum()),
    }
    for name, values in (("safe_failure", normal), ("safe_failure_mvs", printed)):
        row[name] = decimals(1 - values[safe].mean()) if safe.any() else None
    return row
