"""How far the linearized estimates of average-case robustness are from the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from torch import nn

from robustbook._store.cache import Arrays
from robustbook.datasets import load_dataset
from robustbook.models import build_model, logits_of
from robustbook.studies._networks import BLOCKS
from robustbook.studies._statistics import Values, mean_row, ratio_of_means
from robustbook.studies.average_case._estimates import (
    ESTIMATORS,
    TRAINED,
    EstimateSetting,
    estimated_arrays,
)
from robustbook.studies.average_case._sharper import sharpened
from robustbook.studies.run import Row, Run, decimals, significant, with_keys
from robustbook.training import train_classifier

QUANTILES: Final = (0.05, 0.5, 0.95)
#: Options of their training.
_RECIPE: Final[dict[str, Any]] = {"epochs": 3, "lr": 1e-3}


_MNIST: Final = EstimateSetting(
    dataset="mnist", step=20,
    models=(
        "mnist-linear", "mnist-conv_small_nat", "mnist-kw", "mnist-cnn_a_adv",
        "mnist-madry_tiny_adv", "mnist-cnn-s0",
    ),
    sigmas=(0.1, 0.2, 0.4, 0.8), focus=0.4, shown=("mnist-conv_small_nat",),
    sharper=(
        "mnist-conv_small_nat", "mnist-kw", "mnist-cnn_a_adv", "mnist-madry_tiny_adv",
        "mnist-cnn-s0",
    ),
)  # fmt: skip
_FASHION: Final = EstimateSetting(
    dataset="fashion-mnist",
    step=20,
    models=("fashion-linear", "fashion-kw", "fashion-mnist-cnn-s0"),
    sigmas=(0.1, 0.2, 0.4, 0.8),
    focus=0.2,
    shown=("fashion-kw",),
    budget=500,
    sharper=("fashion-mnist-cnn-s0", "fashion-kw"),
)
_CIFAR: Final = EstimateSetting(
    dataset="cifar10", split="test1000", step=5,
    models=(
        "cifar10-captum_lenet", "cifar10-cnn_a_adv4", "cifar10-resnet4b_adv",
        "cifar10-cnn-s0",
    ),
    sigmas=(0.02, 0.05, 0.1, 0.2), shown=("cifar10-captum_lenet",), budget=250,
    sharper=(
        "cifar10-captum_lenet", "cifar10-cnn_a_adv4", "cifar10-cnn-s0",
        "cifar10-resnet20", "cifar10-resnet4b_adv",
    ),
)  # fmt: skip

_TWICE: Final = ("s0", "s1", "grad1e-1-s0", "grad1e-1-s1", "grad1-s0")


def _trainings(dataset: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{dataset}-cnn-{name}" for name in names)


_penalized = partial(
    EstimateSetting,
    estimators=("taylor", "mmse_pairs"),
    budget=100,
    sigmas=(0.1, 0.2, 0.4, 0.8),
)

SETTINGS: Final = {
    "quick": (
        EstimateSetting(
            dataset="digits",
            models=(
                "digits-linear-s0", "digits-cnn-s0", "digits-cnn-noise-s0",
                "digits-cnn-adv-s0",
            ),
            sigmas=(0.1, 0.2, 0.4), samples=24, focus=0.2, budget=300, added=300,
            sharper=("digits-cnn-s0", "digits-cnn-adv-s0"), shown=("digits-cnn-s0",),
            counts=(1, 2, 5, 10),
        ),
    ),
    "full": (
        _MNIST, _FASHION, _CIFAR,
        replace(
            _CIFAR, models=("cifar10-resnet20",), sigmas=(0.05,), shown=(),
            estimators=("taylor", "mmse_pairs", "softmax"), budget=150,
        ),
    ),
    # Networks that differ in the weight of their gradient-norm penalty alone.
    "quick penalty": (
        _penalized(
            dataset="digits", models=_trainings("digits", "s0", "grad1-s0"),
            sigmas=(0.1, 0.2, 0.4), samples=24, budget=300,
        ),
    ),
    "full penalty": (
        _penalized(
            dataset="mnist", models=_trainings("mnist", *_TWICE, "grad1-s1"),
            step=10,
        ),
        _penalized(
            dataset="fashion-mnist", models=_trainings("fashion-mnist", *_TWICE),
            step=10,
        ),
        _penalized(
            dataset="cifar10", split="test1000",
            models=_trainings("cifar10", *_TWICE, "grad1-s1"),
            sigmas=(0.02, 0.05, 0.1, 0.2),
        ),
        _penalized(
            dataset="cifar10", split="held_out", step=50, models=BLOCKS,
            sigmas=(0.005, 0.01, 0.02, 0.05),
        ),
    ),
}  # fmt: skip


def measure(run: Run[EstimateSetting], name: str) -> Iterator[Row]:
    """Compare every estimate with Monte Carlo, image by image.

    Rows with ``what`` =
    "network": the ``accuracy`` without noise, on the whole test part;
    "reference": for each ``sigma``, Monte Carlo with a control variate: its root mean
    squared standard error over the images (``error``), how many noisy inputs an image
    took on average (``trials``), and whether it was sharpened for MMSE (``sharper``);
    "difference": for each ``sigma``, by how much the mean squared error of Taylor
    exceeds that of MMSE in pairs (``mse``), and what the reference alone adds to its
    error (``mse_reference_se``);
    "error": for each ``sigma`` and ``estimator``, over the images: the mean absolute
    difference to the reference (``mean_abs``), what the reference's own error adds up
    to in it for a perfect estimate (``floor``), the mean squared difference less the
    reference's variance (``mse``, unbiased), and this over the variance of one noisy
    answer (``of_one``): Monte Carlo with 1 / ``of_one`` samples errs as much;
    "distribution": quantiles of the estimates over the images;
    "cdf": mv-sigmoid against the normal distribution function, at the Taylor margins,
    as printed and with its argument scaled;
    "convergence": MMSE with ``fits`` noisy inputs, drawn one by one as in the paper
    ("mmse") or as pairs of noise with opposite signs ("mmse_pairs").
    Some models have rows of the first four kinds only, with fewer estimators: so have
    those of the study ``average_case_penalty``, which were trained with and without a
    gradient-norm penalty, from one start (s0) and another (s1) where both exist.

    Average-case paper, Figures 1, 2, 5 to 10. Chapters 19 and 34 of this book.
    """
    setting, data, model = run.setting, run.data, _model(run, name)
    counts = setting.counts if name in setting.shown else ()
    plain, sharper = "linear" in name, name in setting.sharper
    arrays = estimated_arrays(model, data, setting, counts, plain, run.seed)
    if sharper:
        aim: Any = {"share": setting.share, "most": setting.added, "seed": run.seed}
        noise: Any = {"sigmas": setting.sigmas, "fits": setting.fits}
        arrays |= sharpened(model, data, arrays, **noise, **aim)
    keys = {"dataset": setting.dataset, "model": name, "images": len(data)}
    yield {"what": "network", **keys, **_accuracy(setting, model)}
    yield from with_keys(keys, _of_model(setting, counts, sharper, arrays))


def _accuracy(setting: EstimateSetting, model: nn.Module) -> Row:
    """Of the test part, not only of the images that are shown with noise."""
    data = load_dataset(setting.dataset, setting.split)
    right = logits_of(model, data.images).argmax(1).cpu() == data.labels
    return {"accuracy": decimals(right.double().mean())}


def _model(run: Run[Any], name: str) -> nn.Module:
    """Load a checkpoint, or train one of the linear models of this study."""
    if name not in TRAINED:
        return run.model(name)
    model = build_model("linear", seed=run.seed, options={"size": 28})
    data = load_dataset(TRAINED[name], "train")
    how: dict[str, Any] = {**_RECIPE, "seed": run.seed, "device": run.device}
    return run.trained(
        "linear model",
        model,
        partial(train_classifier, model, data, **how, progress=False),
        data=data,
        recipe=_RECIPE,
        code=train_classifier.__module__,
    )


def _of_model(
    setting: EstimateSetting, counts: tuple[int, ...], sharper: bool, arrays: Arrays
) -> Iterator[Row]:
    truth, variance = arrays["monte_carlo"], arrays["variance"]
    every = setting.estimators == ESTIMATORS
    for place, sigma in enumerate(setting.sigmas):
        yield {
            "what": "reference",
            "sigma": sigma,
            "error": decimals(math.sqrt(variance[place].mean())),
            "trials": decimals(arrays["trials"][place].mean(), 1),
            "sharper": sharper,
        }
        yield {"what": "difference", "sigma": sigma, **_difference(arrays, place)}
        for estimator in setting.estimators:
            compared = _compare(arrays[estimator][place], truth[place], variance[place])
            keys = {"what": "error", "sigma": sigma, "estimator": estimator}
            yield {**keys, **compared}
        if not every:
            continue
        for estimator in ("monte_carlo", "taylor", "mmse"):
            values = arrays[estimator][place]
            yield {
                "what": "distribution",
                "sigma": sigma,
                "estimator": estimator,
                "mean": decimals(values.mean()),
                **{
                    f"q{round(100 * q):02d}": decimals(np.quantile(values, q))
                    for q in QUANTILES
                },
            }
        yield {"what": "cdf", "sigma": sigma, **_compare_cdfs(arrays, place)}
    place = setting.sigmas.index(setting.focus) if counts else 0
    few = slice(setting.few)
    for count in counts:
        for estimator in ("mmse", "mmse_pairs"):
            if f"{estimator} {count}" in arrays:
                estimate = arrays[f"{estimator} {count}"]
                yield {
                    "what": "convergence",
                    "sigma": setting.focus,
                    "fits": count,
                    "estimator": estimator,
                    **_compare(estimate, truth[place, few], variance[place, few]),
                }


def _difference(arrays: Arrays, place: int) -> Row:
    """How much more Taylor errs than MMSE in pairs: the reference's square cancels."""
    truth, fitted, tangent, variance = (
        arrays[name][place]
        for name in ("monte_carlo", "mmse_pairs", "taylor", "variance")
    )
    square = (tangent - truth) ** 2 - (fitted - truth) ** 2
    by_chance = 4 * ((tangent - fitted) ** 2 * variance).sum() / len(truth) ** 2
    return {
        **mean_row("mse", square, partial(decimals, digits=9)),
        "mse_reference_se": decimals(math.sqrt(by_chance), 9),
    }


def _compare(estimate: Values, truth: Values, variance: Values) -> Row:
    """Differences to the reference, whose variance is known."""
    difference = estimate - truth
    square = difference**2 - variance
    # Of one noisy answer, unbiased.
    spread = truth * (1 - truth) + variance
    ratio, error = ratio_of_means(square, spread)
    return {
        "truth": decimals(truth.mean()),
        **mean_row("mean_abs", np.abs(difference), decimals),
        "floor": decimals(np.sqrt(2 * variance / math.pi).mean()),
        **mean_row("mse", square, partial(decimals, digits=9)),
        "of_one": significant(ratio),
        "of_one_se": significant(error),
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
