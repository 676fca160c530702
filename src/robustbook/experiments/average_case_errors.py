"""How far the linearized estimates of average-case robustness are from the truth."""

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
from scipy.stats import spearmanr
from torch import Tensor, nn
from tqdm import tqdm

from robustbook.average_case import monte_carlo, mv_sigmoid, softmax_proxy
from robustbook.average_case._estimators import mmse_linearizations
from robustbook.average_case._linearize import (
    Linearization,
    linear_probability,
    linearize,
    standardized_margins,
)
from robustbook.average_case._noise import LINEARIZE, input_noise
from robustbook.average_case._problem import Problem, set_up
from robustbook.datasets import Dataset, load_dataset
from robustbook.experiments._cache import Arrays, cached_arrays
from robustbook.experiments._rows import Row, share_error
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import (
    build_model,
    list_models,
    list_public_models,
    load_model,
    logits_of,
    resolve_device,
)
from robustbook.results import write_results
from robustbook.scores import accuracy
from robustbook.training import train_classifier

__all__ = ["average_case_errors"]

Values = npt.NDArray[np.float64]

#: The scale at which the logistic function is closest to the normal one; the paper's
#: source for its sigmoid has it, the paper's formula has not.
LOGISTIC_SCALE: Final = 1.702
#: Points of each scramble of the integration.
POINTS: Final = 256
POINTS_SEED: Final = 0
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


#: The models without and with a penalty on the gradient's norm, in order.
_PENALTIES: Final = ("", "-grad1e-4", "-grad1e-3", "-grad1e-2", "-grad1e-1", "-grad1")


@dataclass(frozen=True)
class _Group:
    """Models that are measured on the same images with the same noise."""

    dataset: str
    split: str
    models: tuple[str, ...]
    sigmas: tuple[float, ...]
    images: int
    #: Noisy inputs of the MMSE fits.
    fits: int
    #: Standard error that Monte Carlo aims at, and the most noisy inputs.
    precision: float
    most: int = 10_000
    #: The noise at which single images are stored.
    focus: float = 0.1
    #: Models whose single images are stored.
    shown: tuple[str, ...] = ()
    #: Models whose MMSE fits are made with ever more noisy inputs, and how many.
    converging: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()


_PLANS: Final[dict[str, tuple[_Group, ...]]] = {
    "quick": (
        _Group(
            "digits",
            "test",
            (
                "digits-linear-s0",
                "digits-cnn-s0",
                "digits-cnn-noise-s0",
                "digits-cnn-adv-s0",
                "digits-cnn-grad1e-2-s0",
                "digits-cnn-grad1e-1-s0",
                "digits-cnn-grad1-s0",
            ),
            (0.05, 0.1, 0.2, 0.4),
            images=50,
            fits=10,
            precision=0.02,
            most=2000,
            focus=0.2,
            shown=("digits-linear-s0", "digits-cnn-s0"),
            converging=("digits-cnn-s0",),
            counts=(1, 2, 5, 10, 25),
        ),
    ),
    "full": (
        _Group(
            "mnist",
            "test",
            (
                "mnist-linear",
                "mnist-conv_small_nat",
                "mnist-kw",
                "mnist-cnn_a_adv",
                "mnist-madry_tiny_adv",
            ),
            (0.1, 0.2, 0.4, 0.6, 1.0),
            images=200,
            fits=50,
            precision=0.01,
            focus=0.4,
            shown=("mnist-linear", "mnist-conv_small_nat"),
            converging=("mnist-conv_small_nat",),
            counts=(1, 2, 5, 10, 25, 50, 100, 200),
        ),
        _Group(
            "fashion-mnist",
            "test",
            ("fashion-linear",),
            (0.05, 0.1, 0.2, 0.4, 0.8),
            images=200,
            fits=50,
            precision=0.01,
            focus=0.2,
        ),
        _Group(
            "fashion-mnist",
            "test",
            ("fashion-kw",),
            (0.05, 0.1, 0.2, 0.4, 0.8),
            images=100,
            fits=20,
            precision=0.01,
            focus=0.2,
            shown=("fashion-kw",),
            converging=("fashion-kw",),
            counts=(1, 2, 5, 10, 25, 50, 100),
        ),
        _Group(
            "cifar10",
            "test1000",
            (
                "cifar10-captum_lenet",
                "cifar10-cnn_a_adv4",
                "cifar10-resnet4b_adv",
                *(f"cifar10-cnn{penalty}-s0" for penalty in _PENALTIES),
            ),
            (0.01, 0.02, 0.05, 0.1, 0.2),
            images=100,
            fits=20,
            precision=0.015,
            focus=0.05,
            shown=("cifar10-captum_lenet",),
        ),
    ),
}

#: Models that are trained here, as the paper's linear models are: the
#: architecture, its options, epochs and learning rate.
_TRAINED: Final[dict[str, tuple[str, dict[str, Any], str, int, float]]] = {
    "mnist-linear": ("linear", {"size": 28}, "mnist", 3, 1e-3),
    "fashion-linear": ("linear", {"size": 28}, "fashion-mnist", 3, 1e-3),
}  # fmt: skip


def average_case_errors(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    directory: Path | None = None,
    name: str = "average_case_errors",
) -> list[Row]:
    """Compare every estimate with Monte Carlo, image by image.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the noise, and of the training of the models that are trained here.
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
        "model": accuracy, and where the model comes from;
        "error": for each ``sigma`` and ``estimator``, over the images: the mean
        absolute difference to Monte Carlo (``mean_abs``), what Monte Carlo's own
        error adds up to in it for a perfect estimate (``floor``), the mean squared
        difference less Monte Carlo's variance (``mse``, unbiased), the mean signed
        difference (``bias``), and the rank correlation;
        "distribution": quantiles of the estimates over the images;
        "cdf": mv-sigmoid against the normal distribution function, at the Taylor
        margins, as printed and with its argument scaled, and the mean correlation of
        the margins;
        "convergence": MMSE with ``fits`` noisy inputs, drawn one by one ("mmse") or
        as pairs of noise with opposite signs ("mmse_pairs");
        "image": the estimates of single images.

    Notes
    -----
    Average-case paper, Figures 1, 2, 5 to 10. Chapter 20 of this book.
    """
    started = datetime.now(UTC)
    groups = _PLANS[profile]
    rows: list[Row] = []
    sums: dict[str, str] = {}
    known = {*list_models(), *list_public_models(), *_TRAINED}
    jobs = [
        (group, model) for group in groups for model in group.models if model in known
    ]
    for group, model_name in tqdm(jobs, desc="average_case_errors", disable=None):
        data = load_dataset(group.dataset, group.split)
        data = data.subset(slice(group.images))
        model = trained_or_loaded(model_name, seed).to(resolve_device(device))
        sums[model_name] = model_sha256(model)
        sums[f"{group.dataset} {group.split} {group.images}"] = data_sha256(data)
        arrays = cached_arrays(
            {
                "what": "average_case_errors",
                "model": sums[model_name],
                "images": data_sha256(data),
                "sigmas": repr(group.sigmas),
                "fits": group.fits,
                "counts": repr(_counts(group, model_name)),
                "focus": group.focus,
                "precision": group.precision,
                "most": group.most,
                "seed": seed,
            },
            lambda group=group, name=model_name, model=model, data=data: _estimates(  # type: ignore[misc]
                group, name, model, data, seed
            ),
        )
        shared = {"dataset": group.dataset, "model": model_name, "images": len(data)}
        for row in _rows(group, model_name, arrays):
            rows.append({"what": row.pop("what"), **shared, **row})
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


def trained_or_loaded(name: str, seed: int) -> nn.Module:
    """Load a checkpoint, or train one of the small models of this experiment."""
    if name not in _TRAINED:
        return load_model(name).eval()
    arch, options, dataset, epochs, lr = _TRAINED[name]

    def fit() -> Arrays:
        model = build_model(arch, seed=seed, options=options)
        data = load_dataset(dataset, "train")
        train_classifier(model, data, epochs=epochs, lr=lr, seed=seed, progress=False)
        return {key: value.numpy() for key, value in model.state_dict().items()}

    weights = cached_arrays(
        {
            "what": "average_case_errors model",
            "arch": arch,
            "options": repr(options),
            "dataset": dataset,
            "epochs": epochs,
            "lr": lr,
            "seed": seed,
        },
        fit,
    )
    model = build_model(arch, seed=seed, options=options)
    model.load_state_dict({key: torch.tensor(v) for key, v in weights.items()})
    return model.eval()


def _counts(group: _Group, model_name: str) -> tuple[int, ...]:
    return group.counts if model_name in group.converging else ()


def _estimates(
    group: _Group, model_name: str, model: nn.Module, data: Dataset, seed: int
) -> Arrays:
    """All estimates of one model, each (S, N)."""
    problem = set_up(model, data.images, list(group.sigmas), None, None, None)
    logits = logits_of(model, data.images)
    result: Arrays = {
        "labels": problem.labels.cpu().numpy(),
        "accuracy": np.array(accuracy(logits, data.labels)),
        "softmax": softmax_proxy(model, data.images)
        .numpy()[None]
        .repeat(len(group.sigmas), axis=0),
    }
    truth = monte_carlo(
        model,
        data.images,
        list(group.sigmas),
        samples=group.most,
        precision=group.precision,
        seed=seed,
    )
    assert truth.trials is not None
    result["monte_carlo"] = truth.probability.numpy()
    result["trials"] = truth.trials.numpy()
    parts = [_read(part, problem) for part in linearize(problem)]
    for key in parts[0]:
        result[key] = np.concatenate([part[key] for part in parts], axis=1)
    for pairs in (False, True):
        fitted = [
            _fits(problem, position, group.fits, seed + 1, pairs=pairs)
            for position in range(len(group.sigmas))
        ]
        for key in fitted[0]:
            found = np.concatenate([part[key] for part in fitted])
            result[f"{key}_pairs" if pairs else key] = found
    place = group.sigmas.index(group.focus)
    for count in _counts(group, model_name):
        for pairs in (False, True):
            if count % 2 and pairs:
                continue
            name = f"mmse{'_pairs' if pairs else ''} {count}"
            result[name] = _fits(problem, place, count, seed + 2, pairs=pairs)["mmse"]
    return result


def _read(part: Linearization, problem: Problem) -> Arrays:
    """Taylor estimates (S, n) of some of the images."""
    exact = linear_probability(
        part.margins, part.gram, problem.sigmas, seed=POINTS_SEED, points=POINTS
    )
    margins = standardized_margins(part.margins, part.gram, problem.sigmas)
    norms = part.gram.diagonal(dim1=1, dim2=2).sqrt()
    correlation = part.gram / (norms[:, :, None] * norms[:, None, :])
    size = norms.shape[1]
    off = (correlation.sum(dim=(1, 2)) - size) / (size * (size - 1))
    return {
        "taylor": exact.probability.cpu().numpy(),
        "taylor_mvs": mv_sigmoid(margins).cpu().numpy(),
        "taylor_mvs_scaled": mv_sigmoid(LOGISTIC_SCALE * margins).cpu().numpy(),
        "correlation": off[None].cpu().numpy(),
    }


def _fits(
    problem: Problem, place: int, count: int, seed: int, *, pairs: bool
) -> Arrays:
    """MMSE estimates (1, N) at one sigma; on request from pairs of noise, η and -η."""
    one = problem.sigmas[place : place + 1]

    def paired_noise(rows: slice) -> Tensor:
        half = input_noise(seed, LINEARIZE, rows, count // 2, problem.inputs)
        return float(one) * torch.cat([half, -half], dim=1)

    fits = mmse_linearizations(problem, float(one), count, seed)
    if pairs:
        fits = linearize(problem, noise=paired_noise, samples=count)
    parts = []
    for part in fits:
        found = linear_probability(
            part.margins, part.gram, one, seed=POINTS_SEED, points=POINTS
        )
        margins = standardized_margins(part.margins, part.gram, one)
        parts.append((found.probability.cpu(), mv_sigmoid(margins).cpu()))
    columns = [torch.cat(column, dim=1).numpy() for column in zip(*parts, strict=True)]
    return {"mmse": columns[0], "mmse_mvs": columns[1]}


def _rows(group: _Group, model_name: str, arrays: Arrays) -> Iterator[Row]:
    share = float(arrays["accuracy"])
    yield {
        "what": "model",
        "accuracy": share,
        "accuracy_se": share_error(share, group.images),
        "trained_here": model_name in _TRAINED,
        "fits": group.fits,
        "correlation": _round(arrays["correlation"].mean()),
    }
    for place, sigma in enumerate(group.sigmas):
        truth = arrays["monte_carlo"][place]
        variance = truth * (1 - truth) / np.maximum(arrays["trials"][place] - 1, 1)
        shared = {"sigma": sigma}
        for estimator in (
            "taylor", "taylor_mvs", "taylor_mvs_scaled",
            "mmse", "mmse_mvs", "mmse_pairs", "softmax",
        ):  # fmt: skip
            estimate = arrays[estimator][place]
            yield {
                "what": "error", **shared, "estimator": estimator,
                **_compare(estimate, truth, variance),
            }  # fmt: skip
        for estimator in ("monte_carlo", "taylor", "mmse"):
            values = np.quantile(arrays[estimator][place], QUANTILES)
            yield {
                "what": "distribution", **shared, "estimator": estimator,
                "mean": _round(arrays[estimator][place].mean()),
                **{
                    f"q{round(100 * q):02d}": _round(value)
                    for q, value in zip(QUANTILES, values, strict=True)
                },
            }  # fmt: skip
        yield {"what": "cdf", **shared, **_compare_cdfs(arrays, place)}
    place = group.sigmas.index(group.focus)
    truth = arrays["monte_carlo"][place]
    variance = truth * (1 - truth) / np.maximum(arrays["trials"][place] - 1, 1)
    for count in _counts(group, model_name):
        for estimator in ("mmse", "mmse_pairs"):
            if f"{estimator} {count}" in arrays:
                estimate = arrays[f"{estimator} {count}"][0]
                yield {
                    "what": "convergence", "sigma": group.focus, "fits": count,
                    "estimator": estimator, **_compare(estimate, truth, variance),
                }  # fmt: skip
    if model_name not in group.shown:
        return
    for index in range(group.images):
        yield {
            "what": "image", "sigma": group.focus, "index": index,
            "trials": int(arrays["trials"][place, index]),
            **{
                key: _round(arrays[key][place, index])
                for key in (
                    "monte_carlo", "taylor", "taylor_mvs", "mmse", "mmse_pairs",
                    "mmse_mvs", "softmax",
                )
            },
        }  # fmt: skip


def _compare(estimate: Values, truth: Values, variance: Values) -> Row:
    """Differences to Monte Carlo, whose own variance is known."""
    difference = estimate - truth
    square = difference**2 - variance
    constant = np.ptp(estimate) == 0 or np.ptp(truth) == 0
    rank = math.nan if constant else float(spearmanr(estimate, truth).statistic)
    return {
        "truth": _round(truth.mean()),
        "mean_abs": _round(np.abs(difference).mean()),
        "mean_abs_se": _round(_error(np.abs(difference))),
        "floor": _round(np.sqrt(2 * variance / math.pi).mean()),
        "mse": _round(square.mean(), 9),
        "mse_se": _round(_error(square), 9),
        "bias": _round(difference.mean()),
        "bias_se": _round(_error(difference)),
        "rank": None if math.isnan(rank) else _round(rank),
    }


def _compare_cdfs(arrays: Arrays, place: int) -> Row:
    normal = arrays["taylor"][place]
    printed = arrays["taylor_mvs"][place]
    scaled = arrays["taylor_mvs_scaled"][place]
    constant = np.ptp(normal) == 0 or np.ptp(printed) == 0
    pearson = None if constant else _round(np.corrcoef(normal, printed)[0, 1])
    # Images that the Taylor estimate calls safe: failure below one in a hundred.
    safe = normal > 0.99
    return {
        "mean_abs": _round(np.abs(printed - normal).mean()),
        "mean_abs_se": _round(_error(np.abs(printed - normal))),
        "largest": _round(np.abs(printed - normal).max()),
        "bias": _round((printed - normal).mean()),
        "pearson": pearson,
        "scaled_mean_abs": _round(np.abs(scaled - normal).mean()),
        "scaled_mean_abs_se": _round(_error(np.abs(scaled - normal))),
        "safe": int(safe.sum()),
        "safe_failure": _round(1 - normal[safe].mean()) if safe.any() else None,
        "safe_failure_mvs": _round(1 - printed[safe].mean()) if safe.any() else None,
    }


def _error(values: Values) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _round(value: float, digits: int = 6) -> float:
    return round(float(value), digits)
