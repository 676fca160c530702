"""What the control variate saves over plain Monte Carlo, image by image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm import tqdm

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
from robustbook.datasets import Dataset, load_dataset
from robustbook.experiments._cache import Arrays, cached_arrays
from robustbook.experiments._rows import Row
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import load_model, resolve_device
from robustbook.results import write_results

__all__ = ["control_variate_gain"]

Values = npt.NDArray[np.float64]

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
#: Estimators that are repeated with fresh noise, and their options.
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
    images: int
    #: Noisy inputs for each image and sigma.
    samples: int
    #: Models, and the noise, whose estimates are repeated; on how many images,
    #: with which numbers of noisy inputs, and how often.
    repeated: tuple[str, ...]
    focus: float
    few_images: int
    budgets: tuple[int, ...]
    repeats: int
    #: Noisy inputs of what the repeated estimates are compared with.
    reference: int
    #: Noisy inputs of the biased MMSE estimates.
    fits: tuple[int, ...]


_PLANS: Final[dict[str, tuple[_Group, ...]]] = {
    "quick": (
        _Group(
            "digits",
            "test",
            ("digits-linear-s0", "digits-cnn-s0", "digits-cnn-adv-s0"),
            (0.1, 0.2, 0.4),
            images=40,
            samples=1024,
            repeated=("digits-cnn-s0",),
            focus=0.4,
            few_images=12,
            budgets=(32, 128, 512),
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
            images=100,
            samples=1024,
            repeated=("mnist-conv_small_nat",),
            focus=0.4,
            few_images=32,
            budgets=(32, 128, 512),
            repeats=10,
            reference=8192,
            fits=(1, 4, 16, 64),
        ),
        _Group(
            "cifar10",
            "test1000",
            ("cifar10-captum_lenet", "cifar10-marabou_medium", "cifar10-cnn_a_adv4"),
            (0.02, 0.05, 0.1, 0.2),
            images=100,
            samples=1024,
            repeated=("cifar10-marabou_medium",),
            focus=0.05,
            few_images=32,
            budgets=(32, 128, 512),
            repeats=10,
            reference=8192,
            fits=(1, 4, 16, 64),
        ),
    ),
}  # fmt: skip


def control_variate_gain(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    directory: Path | None = None,
    name: str = "control_variate_gain",
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
    directory : Path, optional
        Where to store the rows.
    name : str
        Under which name.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "image": for each model, ``sigma`` and image, of ``samples`` noisy inputs how
        many the model keeps (``kept``), its linearization ("taylor", "mmse") keeps
        and both keep (``taylor``, ``taylor_both``, ...), and the exact probability
        of the linearization (``taylor_exact``, ...): all that the variance of the
        control variate depends on;
        "cost": for each ``estimator``, number of noisy ``samples`` and model
        ``calls``: the root mean squared error over images and repeats, less what the
        reference itself errs, ``rmse``, its square ``mse`` and the standard error of
        that, clustered by image, ``mse_se``; the ``ratio`` of Monte Carlo's mean
        squared error at as many samples to it, with its jackknife error over
        images; the mean ``bias``, for the biased ones too;
        "coverage": the share of intervals at 95 % that hold the reference, its
        standard error, clustered by image, and their mean ``width``; ``inner`` for
        images whose probability is neither nearly 0 nor nearly 1.

    Notes
    -----
    Chapter 21 of this book.
    """
    started = datetime.now(UTC)
    groups = _PLANS[profile]
    rows: list[Row] = []
    sums: dict[str, str] = {}
    jobs = [(group, model) for group in groups for model in group.models]
    for group, model_name in tqdm(jobs, desc="control_variate_gain", disable=None):
        data = load_dataset(group.dataset, group.split).subset(slice(group.images))
        model = load_model(model_name).to(resolve_device(device)).eval()
        sums[model_name] = model_sha256(model)
        sums[f"{group.dataset} {group.split} {group.images}"] = data_sha256(data)
        rows += _images(group, model_name, model, data, seed)
        if model_name in group.repeated:
            rows += _repeats(group, model_name, model, data, seed)
    if directory is not None:
        write_results(
            name,
            rows,
            experiment=name,
            profile=profile,
            seed=seed,
            device=device,
            modules=["robustbook.average_case"],
            started=started,
            data_sha256=sums,
            directory=directory,
        )
    return rows


def _images(
    group: _Group, model_name: str, model: nn.Module, data: Dataset, seed: int
) -> Iterator[Row]:
    """Counts for each image and sigma."""
    for sigma in group.sigmas:
        found = cached_arrays(
            {
                "what": "control_variate_gain images",
                "model": model_sha256(model),
                "images": data_sha256(data),
                "sigma": sigma,
                "samples": group.samples,
                "fits": FITS,
                "seed": seed,
            },
            lambda sigma=sigma: _count(model, data, sigma, group.samples, seed),  # type: ignore[misc]
        )
        for index in range(len(data)):
            row: Row = {
                "what": "image",
                "dataset": group.dataset,
                "model": model_name,
                "sigma": sigma,
                "index": index,
                "samples": group.samples,
                "kept": int(found["kept"][index]),
            }
            for kind in LINEARIZATIONS:
                row[kind] = int(found[kind][index])
                row[f"{kind}_both"] = int(found[f"{kind}_both"][index])
                row[f"{kind}_exact"] = round(float(found[f"{kind}_exact"][index]), 6)
            yield row


def _count(
    model: nn.Module, data: Dataset, sigma: float, samples: int, seed: int
) -> Arrays:
    """Show the same noise to the model and to its linearizations."""
    problem = set_up(model, data.images, sigma, None, None, None)
    fits = {
        "taylor": _whole(linearize(problem, keep=True)),
        "mmse": _whole(mmse_linearizations(problem, sigma, FITS, seed=seed, keep=True)),
    }
    size = len(problem)
    names = ["kept", *LINEARIZATIONS, *(f"{kind}_both" for kind in LINEARIZATIONS)]
    counts = {name: np.zeros(size, dtype=np.int64) for name in names}
    for index in range(size):
        label = problem.labels[index]
        for block, start in enumerate(range(0, samples, BLOCK)):
            length = min(BLOCK, samples - start)
            noise = draw_normal(
                seed, MEASURE, [(index, block)], length, problem.inputs
            )[0]
            noisy = problem.inputs[index] + sigma * noise.reshape(
                -1, *problem.inputs.shape[1:]
            )
            kept = problem.predict(noisy) == label
            counts["kept"][index] += int(kept.sum())
            for kind, (margins, jacobian, _) in fits.items():
                steps = (noise @ jacobian[index].to(noise).T).double()
                linear = (margins[index] + sigma * steps > 0).all(dim=1)
                counts[kind][index] += int(linear.sum())
                counts[f"{kind}_both"][index] += int((linear & kept).sum())
    result: Arrays = dict(counts)
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
    group: _Group, model_name: str, model: nn.Module, data: Dataset, seed: int
) -> Iterator[Row]:
    """Errors and intervals of estimates that are repeated with fresh noise."""
    few = data.subset(slice(group.few_images))
    shared = {"dataset": group.dataset, "model": model_name, "sigma": group.focus}
    key: dict[str, str | int | float] = {
        "what": "control_variate_gain repeats",
        "model": model_sha256(model),
        "images": data_sha256(few),
        "sigma": group.focus,
        "seed": seed,
    }

    def refer() -> Arrays:
        found = control_variate(
            model, few.images, group.focus, samples=group.reference,
            points=4096, seed=seed + 1,
        )  # fmt: skip
        return _read(found)

    reference = cached_arrays({**key, "reference": group.reference}, refer)
    truth, own = reference["probability"], reference["error"] ** 2
    plain: dict[int, Values] = {}
    for estimator, options in REPEATED.items():
        for samples in group.budgets:

            def repeat(
                estimator: str = estimator,
                options: dict[str, Any] = options,
                samples: int = samples,
            ) -> Arrays:
                estimate = (
                    monte_carlo if estimator == "monte_carlo" else control_variate
                )
                parts = [
                    _read(
                        estimate(
                            model, few.images, group.focus, samples=samples,
                            seed=seed + 2 + number, **options,
                        )
                    )
                    for number in range(group.repeats)
                ]  # fmt: skip
                return {name: np.stack([p[name] for p in parts]) for name in parts[0]}

            found = cached_arrays(
                {
                    **key, "estimator": estimator, "options": repr(options),
                    "samples": samples, "repeats": group.repeats,
                },
                repeat,
            )  # fmt: skip
            common = {**shared, "estimator": estimator, "samples": samples}
            squares = ((found["probability"] - truth) ** 2).mean(axis=0) - own
            # Monte Carlo comes first.
            plain.setdefault(samples, squares)
            ratio, ratio_se = _ratio(plain[samples], squares)
            yield {
                "what": "cost", **common, "calls": int(found["calls"].max()),
                **_errors(found["probability"], truth, own),
                "ratio": ratio, "ratio_se": ratio_se,
            }  # fmt: skip
            # The reference is unbiased, not cut; what it estimates is in [0, 1].
            known = truth.clip(0, 1)
            held = (found["low"] <= known + TINY) & (known - TINY <= found["high"])
            inner = (truth > INNER[0]) & (truth < INNER[1])
            yield {
                "what": "coverage", **common, "level": LEVEL,
                "coverage": _round(held.mean()),
                "coverage_se": _round(_error_of_mean(held.mean(axis=0))),
                "inner": _round(held[:, inner].mean()),
                "inner_se": _round(_error_of_mean(held[:, inner].mean(axis=0))),
                "inner_images": int(inner.sum()),
                "width": _round((found["high"] - found["low"]).mean()),
                "images": len(few), "repeats": group.repeats,
            }  # fmt: skip
    biased = {("taylor", 0): taylor(model, few.images, group.focus, points=1024)}
    for count in group.fits:
        biased["mmse", count] = mmse(
            model, few.images, group.focus, samples=count, points=1024, seed=seed
        )
    for (estimator, count), result in biased.items():
        values = result.probability.cpu().numpy()[None]
        yield {
            "what": "cost", **shared, "estimator": estimator, "samples": count,
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
        "rmse": _round(math.sqrt(max(mse, 0.0))),
        "mse": _round(mse, 10),
        "mse_se": _round(_error_of_mean(by_image), 10),
        "bias": _round((estimates - truth).mean()),
        "bias_se": _round(_error_of_mean((estimates - truth).mean(axis=0))),
    }


def _ratio(plain: Values, other: Values) -> tuple[float, float]:
    """Mean of the one over mean of the other, and its error, images left out."""
    ratio = plain.mean() / other.mean()
    left = (plain.sum() - plain) / (other.sum() - other)
    size = len(left)
    error = math.sqrt((size - 1) / size * float(((left - left.mean()) ** 2).sum()))
    return _round(ratio, 4), _round(error, 4)


def _error_of_mean(values: Values) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _round(value: float, digits: int = 6) -> float:
    return round(float(value), digits)
