"""What the control variate saves over plain Monte Carlo, image by image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import (
    Robustness,
    control_variate,
    mmse,
    monte_carlo,
    taylor,
)
from robustbook.average_case.parts import linearize, set_up
from robustbook.studies._statistics import Values, mean_row, ratio_of_means
from robustbook.studies.average_case._estimates import Fit, agreements
from robustbook.studies.run import Row, Run, Setting, decimals, with_keys

#: Noisy inputs of an MMSE fit, as the paper's figures settle on few.
FITS: Final = 10
#: Tolerance for the rounding of interval ends.
TINY: Final = 1e-9
#: Unbiased estimators that are repeated with fresh noise, and their options.
REPEATED: Final[dict[str, dict[str, Any]]] = {
    "monte_carlo": {},
    "control_variate": {},
    "control_variate_mmse": {"linearization": "mmse", "linearization_samples": FITS},
    "control_variate_sobol": {"noise": "sobol"},
}


@dataclass(frozen=True, kw_only=True)
class GainSetting(Setting):
    """Networks that are measured on the same images."""

    models: tuple[str, ...]
    sigmas: tuple[float, ...]
    samples: int = 100
    #: The model, and the noise, whose estimates are repeated.
    repeated: str
    focus: float
    #: Noisy inputs for each image and sigma.
    counted: int = 1024
    #: On how many images estimates are repeated, with which numbers of noisy inputs,
    #: and how often.
    few_images: int = 32
    budgets: tuple[int, ...] = (32, 128, 512)
    repeats: int = 20
    #: Noisy inputs of what the repeated estimates are compared with.
    reference: int = 8192
    #: Noisy inputs of the biased MMSE estimates.
    fits: tuple[int, ...] = (1, 4, 16, 64)


SETTINGS: Final = {
    "quick": (
        GainSetting(
            dataset="digits",
            models=("digits-linear-s0", "digits-cnn-s0", "digits-cnn-adv-s0"),
            sigmas=(0.2, 0.4), repeated="digits-cnn-s0", focus=0.4, samples=24,
            few_images=8, repeats=4, reference=1024, fits=(1, 10), counted=512,
        ),
    ),
    "full": (
        GainSetting(
            dataset="mnist",
            models=("mnist-conv_small_nat", "mnist-kw", "mnist-madry_tiny_adv"),
            sigmas=(0.1, 0.2, 0.4, 0.8), repeated="mnist-conv_small_nat", focus=0.6,
        ),
        GainSetting(
            dataset="cifar10", split="test1000",
            models=(
                "cifar10-captum_lenet", "cifar10-marabou_medium", "cifar10-cnn_a_adv4",
            ),
            sigmas=(0.02, 0.05, 0.1, 0.2), repeated="cifar10-marabou_medium",
            focus=0.05,
        ),
    ),
}  # fmt: skip


def parts(run: Run[GainSetting]) -> Iterator[tuple[str, float, bool]]:
    """Each network with each sigma; with one, the estimates that are repeated."""
    setting = run.setting
    for name in setting.models:
        for sigma in setting.sigmas:
            yield name, sigma, False
        if name == setting.repeated:
            yield name, setting.focus, True


def measure(
    run: Run[GainSetting], name: str, sigma: float, repeated: bool
) -> Iterator[Row]:
    """Count how often a model and its linearizations agree under the same noise.

    Rows with ``what`` =
    "image": for each model, ``sigma`` and image, of ``samples`` noisy inputs how many
    the model keeps (``kept``), its linearization ("taylor", "mmse") keeps and both keep
    (``taylor``, ``taylor_both``, ...), and the exact probability of the linearization
    (``taylor_exact``, ...): all that the variance of the control variate depends on;
    "gain": for one model and sigma, each image, ``estimator`` and number of noisy
    ``samples``: the probability, and the mean squared error over repeats with fresh
    noise (``mse``), less what the reference itself errs;
    "cost": the same over the images, for the biased estimates too: the root mean
    squared error ``rmse``, its square ``mse`` and the standard error of that, clustered
    by image, ``mse_se``; the ``ratio`` of Monte Carlo's mean squared error at as many
    ``calls`` of the model to it, with its jackknife error over images; the mean
    ``bias``;
    "coverage": the share of intervals at 95 % that hold the reference, and its standard
    error, clustered by image.

    Chapter 20 of this book.
    """
    keys = {"dataset": run.setting.dataset, "model": name}
    look = _repeats if repeated else _images
    return with_keys(keys, look(run, run.model(name), sigma))


def _images(run: Run[GainSetting], model: nn.Module, sigma: float) -> Iterator[Row]:
    """Show the same noise to the model and to its linearizations."""
    samples, seed = run.setting.counted, run.seed
    problem = set_up(model, run.data.images, sigma)
    parts = {
        "taylor": linearize(problem, keep=True),
        "mmse": linearize(problem, sigma, FITS, seed, antithetic=True, keep=True),
    }
    fits = {kind: Fit.of(each, problem.sigmas, seed) for kind, each in parts.items()}
    lines = [(fit.margins, fit.jacobian) for fit in fits.values()]
    trials = [samples] * len(problem)
    kept, *counts = agreements(problem, sigma, lines, trials, [seed])
    for index in range(len(problem)):
        row: Row = {"what": "image", "sigma": sigma, "index": index}
        row |= {"samples": samples, "kept": int(kept[index])}
        for kind, linear, both in zip(fits, counts[::2], counts[1::2], strict=True):
            row[kind] = int(linear[index])
            row[f"{kind}_both"] = int(both[index])
            row[f"{kind}_exact"] = decimals(fits[kind].probability[index])
        yield row


def _repeats(run: Run[GainSetting], model: nn.Module, sigma: float) -> Iterator[Row]:
    """Errors and intervals of estimates that are repeated with fresh noise."""
    setting, seed = run.setting, run.seed
    problem = model, run.data.images[: setting.few_images], sigma
    counts: Any = {"samples": setting.reference, "points": 4096}
    reference = _arrays(control_variate(*problem, **counts, seed=seed + 1))
    truth, spread = reference["probability"], reference["error"] ** 2
    # The reference is unbiased, not cut; what it estimates is in [0, 1].
    cut = truth.clip(0, 1)
    for estimator, options in REPEATED.items():
        for samples in setting.budgets:
            ask = monte_carlo if estimator == "monte_carlo" else control_variate
            estimate = partial(ask, *problem, samples=samples, **options)
            seeds = range(seed + 2, seed + 2 + setting.repeats)
            made = [_arrays(estimate(seed=number)) for number in seeds]
            estimates = {key: np.stack([part[key] for part in made]) for key in made[0]}
            shared = {"sigma": sigma, "estimator": estimator, "samples": samples}
            calls = int(estimates["calls"].max())
            mse = ((estimates["probability"] - truth) ** 2).mean(axis=0) - spread
            for index, value in enumerate(mse):
                yield {
                    "what": "gain",
                    **shared,
                    "calls": calls,
                    "index": index,
                    "probability": decimals(cut[index]),
                    "mse": decimals(value, 10),
                }
            ratio, ratio_se = ratio_of_means(cut * (1 - cut) / calls, mse)
            yield {
                "what": "cost",
                **shared,
                "calls": calls,
                **_errors(estimates["probability"], truth, spread),
                "ratio": decimals(ratio, 4),
                "ratio_se": decimals(ratio_se, 4),
            }
            yield {"what": "coverage", **shared, **_covered(estimates, cut)}
    biased = {("taylor", 0): taylor(*problem)}
    for count in setting.fits:
        biased["mmse", count] = mmse(*problem, samples=count, seed=seed)
    for (estimator, count), result in biased.items():
        values = result.probability.cpu().numpy()[None]
        yield {
            "what": "cost",
            "sigma": sigma,
            "estimator": estimator,
            "samples": count,
            "calls": int(result.calls.max()),
            **_errors(values, truth, spread),
        }


def _arrays(result: Robustness) -> Arrays:
    """An estimate with its error and interval, (N,) each."""
    low, high = result.interval(0.95)
    values: dict[str, Tensor] = {
        "probability": result.probability,
        "error": result.standard_error,
        "low": low,
        "high": high,
        "calls": result.calls,
    }
    return {name: value.cpu().numpy() for name, value in values.items()}


def _errors(estimates: Values, truth: Values, variance: Values) -> Row:
    """Errors of estimates (repeats, N) against a reference of known variance (N,)."""
    off = estimates - truth
    by_image = (off**2).mean(axis=0) - variance
    return {
        "rmse": decimals(math.sqrt(max(float(by_image.mean()), 0.0))),
        **mean_row("mse", by_image, partial(decimals, digits=10)),
        **mean_row("bias", off.mean(axis=0), decimals),
    }


def _covered(estimates: Arrays, known: Values) -> Row:
    """How many intervals (repeats, N) hold what is known."""
    held = (estimates["low"] <= known + TINY) & (known - TINY <= estimates["high"])
    return {
        **mean_row("coverage", held.mean(axis=0), decimals),
        "images": len(known),
        "repeats": len(held),
    }
