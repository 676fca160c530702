"""What the control variate saves over plain Monte Carlo, image by image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._store.cache import Arrays, Configuration, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.average_case import (
    Robustness,
    control_variate,
    mmse,
    monte_carlo,
    taylor,
)
from robustbook.average_case._estimators import mmse_linearizations
from robustbook.average_case._linearize import (
    Linearization,
    linear_probability,
    linearize,
)
from robustbook.average_case._noise import MEASURE, draw_normal
from robustbook.average_case._problem import set_up
from robustbook.datasets import Dataset
from robustbook.models import load_model, resolve_device
from robustbook.studies._rows import Row, Values, error_of_mean, rounded
from robustbook.studies._sums import first_images, sums_of
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256

__all__ = ["control_variate_gain"]

#: Linearizations whose indicator is tried as a control variate.
LINEARIZATIONS: Final = ("taylor", "mmse")
#: Noisy inputs of an MMSE fit, as the paper's figures settle on few.
FITS: Final = 10
#: Noisy inputs of one draw.
BLOCK: Final = 512
LEVEL: Final = 0.95
#: Probabilities that are neither nearly 0 nor nearly 1.
INNER: Final = (0.05, 0.95)
#: What rounding may take from an interval.
TINY: Final = 1e-9
#: Unbiased estimators that are repeated with fresh noise, and their options.
REPEATED: Final[dict[str, dict[str, Any]]] = {
    "monte_carlo": {},
    "control_variate": {},
    "control_variate_one": {"coefficient": 1.0},
    "control_variate_mmse": {"linearization": "mmse", "linearization_samples": FITS},
    "control_variate_sobol": {"noise": "sobol"},
}


@dataclass(frozen=True)
class _Group:
    """Models that are measured on the same images."""

    dataset: str
    split: str
    models: tuple[str, ...]
    sigmas: tuple[float, ...]
    #: The model, and the noise, whose estimates are repeated.
    repeated: str
    focus: float
    images: int = 100
    #: Noisy inputs for each image and sigma.
    samples: int = 1024
    #: On how many images estimates are repeated, with which numbers of noisy inputs,
    #: and how often.
    few_images: int = 32
    budgets: tuple[int, ...] = (32, 128, 512)
    repeats: int = 20
    #: Noisy inputs of what the repeated estimates are compared with.
    reference: int = 8192
    #: Noisy inputs of the biased MMSE estimates.
    fits: tuple[int, ...] = (1, 4, 16, 64)


_PLANS: Final[dict[str, tuple[_Group, ...]]] = {
    "quick": (
        _Group(
            "digits",
            "test",
            ("digits-linear-s0", "digits-cnn-s0", "digits-cnn-adv-s0"),
            (0.1, 0.2, 0.4),
            repeated="digits-cnn-s0",
            focus=0.4,
            images=40,
            few_images=12,
            repeats=10,
            reference=4096,
            fits=(1, 10),
        ),
    ),
    "full": (
        _Group(
            "mnist",
            "test",
            ("mnist-conv_small_nat", "mnist-kw", "mnist-madry_tiny_adv"),
            (0.1, 0.2, 0.4, 0.8),
            repeated="mnist-conv_small_nat",
            focus=0.6,
        ),
        _Group(
            "cifar10",
            "test1000",
            ("cifar10-captum_lenet", "cifar10-marabou_medium", "cifar10-cnn_a_adv4"),
            (0.02, 0.05, 0.1, 0.2),
            repeated="cifar10-marabou_medium",
            focus=0.05,
        ),
    ),
}


def control_variate_gain(
    *, profile: str = "full", seed: int = 0, device: str = "auto"
) -> list[Row]:
    """Count how often a model and its linearizations agree under the same noise.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the noise.
    device : str
        Where the models run.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "image": for each model, ``sigma`` and image, of ``samples`` noisy inputs how
        many the model keeps (``kept``), its linearization ("taylor", "mmse") keeps
        and both keep (``taylor``, ``taylor_both``, ...), and the exact probability
        of the linearization (``taylor_exact``, ...): all that the variance of the
        control variate depends on;
        "gain": for one model and sigma, each image, ``estimator`` and number of
        noisy ``samples``: the probability, and the mean squared error over repeats
        with fresh noise (``mse``), less what the reference itself errs;
        "cost": the same over the images, for the biased estimates too: the root mean
        squared error ``rmse``, its square ``mse`` and the standard error of that,
        clustered by image, ``mse_se``; the ``ratio`` of Monte Carlo's mean squared
        error at as many ``calls`` of the model to it, with its jackknife error over
        images; the mean ``bias``;
        "coverage": the share of intervals at 95 % that hold the reference, its
        standard error, clustered by image, and their mean ``width``; ``inner`` for
        images whose probability is neither nearly 0 nor nearly 1.

    Notes
    -----
    Chapter 21 of this book.
    """
    rows: list[Row] = []
    jobs = [(group, model) for group in _PLANS[profile] for model in group.models]
    for group, name in tqdm(jobs, desc="control_variate_gain", disable=None):
        data = first_images(group.dataset, group.split, group.images)
        model = load_model(name).to(resolve_device(device)).eval()
        shared = {"dataset": group.dataset, "model": name}
        found = list(_images(group, model, data, seed))
        if name == group.repeated:
            few = data.subset(slice(group.few_images))
            found += _repeats(group, model, few, seed)
        rows += [{"what": row.pop("what"), **shared, **row} for row in found]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the images and of the models."""
    sums: dict[str, str] = {}
    for group in _PLANS[profile]:
        models = ((name, load_model(name)) for name in group.models)
        sums |= sums_of(group.dataset, group.split, group.images, models)
    return sums


def _key(model: nn.Module, data: Dataset, sigma: float, seed: int) -> Configuration:
    """What every array of this experiment depends on."""
    return {
        "what": "control_variate_gain",
        "code": code_sha256(["robustbook.average_case"]),
        "device": str(next(model.parameters()).device),
        "model": model_sha256(model),
        "images": data_sha256(data),
        "sigma": sigma,
        "seed": seed,
    }


def _images(group: _Group, model: nn.Module, data: Dataset, seed: int) -> Iterator[Row]:
    """Counts for each image and sigma."""
    for sigma in group.sigmas:

        def compute(sigma: float = sigma) -> Arrays:
            return _count(model, data, sigma, group.samples, seed)

        found = cached_arrays(
            {**_key(model, data, sigma, seed), "count": group.samples, "fits": FITS},
            compute,
        )
        for index in range(len(data)):
            row: Row = {
                "what": "image", "sigma": sigma, "index": index,
                "samples": group.samples, "kept": int(found["kept"][index]),
            }  # fmt: skip
            for kind in LINEARIZATIONS:
                row[kind] = int(found[kind][index])
                row[f"{kind}_both"] = int(found[f"{kind}_both"][index])
                row[f"{kind}_exact"] = rounded(found[f"{kind}_exact"][index])
            yield row


def _count(
    model: nn.Module, data: Dataset, sigma: float, samples: int, seed: int
) -> Arrays:
    """Show the same noise to the model and to its linearizations."""
    problem = set_up(model, data.images, sigma, None, None, None)
    best = mmse_linearizations(problem, sigma, FITS, seed, antithetic=True, keep=True)
    fits = {"taylor": _whole(linearize(problem, keep=True)), "mmse": _whole(best)}
    names = ["kept", *fits, *(f"{kind}_both" for kind in fits)]
    result: Arrays = {name: np.zeros(len(problem), dtype=np.int64) for name in names}
    for index, label in enumerate(problem.labels):
        for block, start in enumerate(range(0, samples, BLOCK)):
            length = min(BLOCK, samples - start)
            key = [(index, block)]
            noise = draw_normal(seed, MEASURE, key, length, problem.inputs)[0]
            steps = sigma * noise.reshape(-1, *problem.inputs.shape[1:])
            kept = problem.predict(problem.inputs[index] + steps) == label
            result["kept"][index] += int(kept.sum())
            for kind, (margins, jacobian, _) in fits.items():
                slopes = (noise @ jacobian[index].to(noise).T).double()
                linear = (margins[index] + sigma * slopes > 0).all(dim=1)
                result[kind][index] += int(linear.sum())
                result[f"{kind}_both"][index] += int((linear & kept).sum())
    for kind, (margins, _, gram) in fits.items():
        exact = linear_probability(
            margins, gram, problem.sigmas, seed=seed, points=1024
        )
        result[f"{kind}_exact"] = exact.probability[0].cpu().numpy()
    return result


def _whole(parts: Iterator[Linearization]) -> tuple[Tensor, Tensor, Tensor]:
    """Margins, Jacobians and Gram matrices of all images."""
    found = []
    for part in parts:
        assert part.jacobian is not None
        found.append((part.margins, part.jacobian, part.gram))
    margins, jacobian, gram = (torch.cat(column) for column in zip(*found, strict=True))
    return margins, jacobian, gram


def _repeats(
    group: _Group, model: nn.Module, data: Dataset, seed: int
) -> Iterator[Row]:
    """Errors and intervals of estimates that are repeated with fresh noise."""
    sigma, key = group.focus, _key(model, data, group.focus, seed)

    def refer() -> Arrays:
        return _read(
            control_variate(
                model, data.images, sigma, samples=group.reference,
                points=4096, seed=seed + 1,
            )
        )  # fmt: skip

    reference = cached_arrays({**key, "reference": group.reference}, refer)
    truth, own = reference["probability"], reference["error"] ** 2
    # The reference is unbiased, not cut; what it estimates is in [0, 1].
    known = truth.clip(0, 1)
    for estimator, options in REPEATED.items():
        for samples in group.budgets:

            def repeat(
                estimator: str = estimator,
                options: dict[str, Any] = options,
                samples: int = samples,
            ) -> Arrays:
                ask = monte_carlo if estimator == "monte_carlo" else control_variate
                seeds = range(seed + 2, seed + 2 + group.repeats)
                parts = [
                    _read(
                        ask(
                            model, data.images, sigma, samples=samples, seed=one,
                            **options,
                        )
                    )
                    for one in seeds
                ]  # fmt: skip
                return {name: np.stack([p[name] for p in parts]) for name in parts[0]}

            repeated: Configuration = {
                "estimator": estimator,
                "options": repr(options),
                "samples": samples,
                "repeats": group.repeats,
            }
            found = cached_arrays({**key, **repeated}, repeat)
            shared = {"sigma": sigma, "estimator": estimator, "samples": samples}
            calls = int(found["calls"].max())
            mse = ((found["probability"] - truth) ** 2).mean(axis=0) - own
            for index, value in enumerate(mse):
                yield {
                    "what": "gain", **shared, "calls": calls, "index": index,
                    "probability": rounded(known[index]), "mse": rounded(value, 10),
                    "repeats": group.repeats,
                }  # fmt: skip
            ratio, ratio_se = _ratio(known * (1 - known) / calls, mse)
            yield {
                "what": "cost", **shared, "calls": calls,
                **_errors(found["probability"], truth, own),
                "ratio": ratio, "ratio_se": ratio_se,
            }  # fmt: skip
            yield {
                "what": "coverage", **shared, "level": LEVEL,
                **_covered(found, known), "repeats": group.repeats,
            }  # fmt: skip
    biased = {("taylor", 0): taylor(model, data.images, sigma)}
    for count in group.fits:
        fit = mmse(model, data.images, sigma, samples=count, seed=seed)
        biased["mmse", count] = fit
    for (estimator, count), result in biased.items():
        values = result.probability.cpu().numpy()[None]
        yield {
            "what": "cost", "sigma": sigma, "estimator": estimator, "samples": count,
            "calls": int(result.calls.max()), **_errors(values, truth, own),
        }  # fmt: skip


def _read(result: Robustness) -> Arrays:
    low, high = result.interval(LEVEL)
    values: dict[str, Tensor] = {
        "probability": result.probability,
        "error": result.standard_error,
        "low": low,
        "high": high,
        "calls": result.calls,
    }
    return {name: value.cpu().numpy() for name, value in values.items()}


def _errors(estimates: Values, truth: Values, own: Values) -> Row:
    """Errors of estimates (repeats, N) against a reference with variances `own`."""
    by_image = ((estimates - truth) ** 2).mean(axis=0) - own
    mse = float(by_image.mean())
    return {
        "rmse": rounded(math.sqrt(max(mse, 0.0))),
        "mse": rounded(mse, 10),
        "mse_se": rounded(error_of_mean(by_image), 10),
        "bias": rounded((estimates - truth).mean()),
        "bias_se": rounded(error_of_mean((estimates - truth).mean(axis=0))),
    }


def _covered(found: Arrays, known: Values) -> Row:
    """How many intervals (repeats, N) hold what is known."""
    held = (found["low"] <= known + TINY) & (known - TINY <= found["high"])
    inner = (known > INNER[0]) & (known < INNER[1])
    return {
        "coverage": rounded(held.mean()),
        "coverage_se": rounded(error_of_mean(held.mean(axis=0))),
        "inner": rounded(held[:, inner].mean()),
        "inner_se": rounded(error_of_mean(held[:, inner].mean(axis=0))),
        "inner_images": int(inner.sum()),
        "width": rounded((found["high"] - found["low"]).mean()),
        "images": len(known),
    }


def _ratio(plain: Values, other: Values) -> tuple[float, float]:
    """Mean of the one over mean of the other, and its error, images left out."""
    ratio = plain.mean() / other.mean()
    left = (plain.sum() - plain) / (other.sum() - other)
    size = len(left)
    error = math.sqrt((size - 1) / size * float(((left - left.mean()) ** 2).sum()))
    return rounded(ratio, 4), rounded(error, 4)
