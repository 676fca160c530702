"""All estimates of average-case robustness of one network, as the cache keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import mmse, mv_sigmoid, taylor
from robustbook.average_case.parts import (
    MEASURE,
    Linearization,
    Problem,
    draw_normal,
    linear_probability,
    linearize,
    set_up,
    softmax_proxy,
)
from robustbook.datasets import Dataset
from robustbook.studies._statistics import Integers, Values
from robustbook.studies.run import Setting

#: The scale at which the logistic function is closest to the normal one; the paper's
#: source for its sigmoid has it, the paper's formula has not.
LOGISTIC_SCALE: Final = 1.702
#: The estimates that are compared with Monte Carlo.
ESTIMATORS: Final = (
    "taylor",
    "taylor_mvs",
    "taylor_mvs_scaled",
    "mmse",
    "mmse_mvs",
    "mmse_pairs",
    "softmax",
)
#: Target ratio: RMSE of the reference over RMSE of MMSE in pairs.
SHARE: Final = 0.1
#: An error of MMSE below which none is looked for.
_LEAST: Final = 0.02
#: Noisy inputs that choose coefficients and numbers of samples, and the fewest then.
_PILOT: Final = 64
_FEWEST: Final = 16
#: Disagreements that are added to those of the pilot.
_ADDED: Final = 0.1
_POINTS: Final = 1024
#: Noisy inputs of one draw.
BLOCK: Final = 512


#: Linear models that a study trains itself, as the paper's are, and their data sets.
TRAINED: Final = {"mnist-linear": "mnist", "fashion-linear": "fashion-mnist"}


@dataclass(frozen=True, kw_only=True)
class EstimateSetting(Setting):
    """Networks that are measured on the same images with the same noise."""

    models: tuple[str, ...]
    sigmas: tuple[float, ...]
    #: Noisy inputs of the MMSE fits.
    fits: int = 10
    #: Noisy inputs of the reference, for each image and noise on average, at most.
    budget: int = 800
    #: Models whose reference is sharpened, the error over that of MMSE in pairs that is
    #: aimed at, and noisy inputs that are added for it, at most.
    sharper: tuple[str, ...] = ()
    share: float = 0.09
    added: int = 3000
    estimators: tuple[str, ...] = ESTIMATORS
    #: The noise at which MMSE fits with more and more noisy inputs are compared, on
    #: how many images, for which models.
    focus: float = 0.1
    few: int = 100
    shown: tuple[str, ...] = ()
    counts: tuple[int, ...] = (1, 2, 5, 10, 25, 50)

    def checkpoints(self) -> list[str]:
        """Those that are not trained here."""
        return [name for name in self.models if name not in TRAINED]

    def only(self, *names: str) -> Self:
        """The same setting, restricted to networks that are not trained here."""
        return super().only(*(name for name in names if name not in TRAINED))


class Fit(NamedTuple):
    """A linearization of all inputs under one noise, and its probabilities."""

    margins: Tensor
    jacobian: Tensor
    gram: Tensor
    probability: Tensor

    @classmethod
    def of(cls, parts: Iterable[Linearization], sigma: Tensor, seed: int) -> Fit:
        """Join the linearizations of all inputs, and integrate; `sigma` is (1,)."""
        rows = []
        for part in parts:
            assert part.jacobian is not None
            rows.append((part.margins, part.jacobian, part.gram))
        margins, jacobian, gram = (torch.cat(each) for each in zip(*rows, strict=True))
        exact = linear_probability(margins, gram, sigma, seed=seed, points=_POINTS)
        return cls(margins, jacobian, gram, exact.probability[0])


def estimated_arrays(
    model: nn.Module,
    data: Dataset,
    setting: EstimateSetting,
    counts: Sequence[int],
    plain: bool,
    seed: int,
) -> Arrays:
    """All estimates of one model and the reference, each (S, N)."""
    x, sigmas, fits = data.images, list(setting.sigmas), setting.fits
    problem = set_up(model, x, sigmas)
    rows: dict[str, list[Values]] = {}
    for place, sigma in enumerate(sigmas):
        pairs = fitted(problem, sigma, fits, seed + 1, antithetic=True)
        estimates = {
            "mmse_pairs": pairs.probability.cpu().numpy(),
            **reference(problem, sigma, pairs, setting.budget, plain, [seed, place]),
        }
        if "mmse" in setting.estimators:
            fit = fitted(problem, sigma, fits, seed + 1, antithetic=False)
            norms = fit.gram.diagonal(dim1=1, dim2=2).sqrt()
            sigmoid = mv_sigmoid(fit.margins / (sigma * norms))
            estimates["mmse"] = fit.probability.cpu().numpy()
            estimates["mmse_mvs"] = sigmoid.cpu().numpy()
        for name, values in estimates.items():
            rows.setdefault(name, []).append(values)
    result: Arrays = {name: np.stack(values) for name, values in rows.items()}
    for estimator in setting.estimators:
        if estimator not in result:
            result[estimator] = _sampled_nothing(estimator, model, data, sigmas)
    for count in counts:
        for antithetic in (False, True) if count % 2 == 0 else (False,):
            how: Any = {"samples": count, "seed": seed + 2, "antithetic": antithetic}
            estimate = mmse(model, x[: setting.few], setting.focus, **how)
            name = "mmse_pairs" if antithetic else "mmse"
            result[f"{name} {count}"] = estimate.probability.cpu().numpy()
    return result


def _sampled_nothing(
    estimator: str, model: nn.Module, data: Dataset, sigmas: list[float]
) -> Values:
    """Softmax or Taylor (S, N)."""
    x = data.images
    if estimator == "softmax":
        return softmax_proxy(model, x).cpu().numpy()[None].repeat(len(sigmas), axis=0)
    cdf: Any = "mv_sigmoid" if "mvs" in estimator else "mvn"
    # The margins are divided by sigma: a scale for them is one for 1 / sigma.
    scale = LOGISTIC_SCALE if estimator.endswith("scaled") else 1.0
    result = taylor(model, x, [sigma / scale for sigma in sigmas], cdf=cdf)
    return result.probability.cpu().numpy()


def fitted(
    problem: Problem, sigma: float, fits: int, seed: int, *, antithetic: bool
) -> Fit:
    """The best linear fit under noise of one size."""
    parts = linearize(problem, sigma, fits, seed, antithetic=antithetic, keep=True)
    return Fit.of(parts, torch.tensor([sigma]).double(), seed)


def agreements(
    problem: Problem,
    sigma: float,
    linearizations: Sequence[tuple[Tensor, Tensor]],
    trials: Sequence[int],
    key: Sequence[int],
) -> Integers:
    """Count for how many noisy inputs the label is kept: (1+2L, N).

    By the model, then by each of L linearizations, and by it and the model.

    Linearizations are margins (N, K-1) and Jacobians (N, K-1, D). Image i is shown
    trials[i] noisy inputs, which the seed and the numbers of `key` name.
    """
    seed, *rest = key
    result = np.zeros((1 + 2 * len(linearizations), len(trials)), dtype=np.int64)
    for index, count in enumerate(trials):
        for block, start in enumerate(range(0, count, BLOCK)):
            length = min(BLOCK, count - start)
            name = (*rest, index, block)
            noise = draw_normal(seed, MEASURE, [name], length, problem.inputs)[0]
            kept = problem.keeps(torch.tensor([index]), sigma * noise[None])[0]
            shares = [kept]
            for margins, jacobian in linearizations:
                slopes = (noise @ jacobian[index].to(noise).T).double()
                linear = (margins[index] + sigma * slopes > 0).all(dim=1)
                shares += [linear, linear & kept]
            result[:, index] += [int(share.sum()) for share in shares]
    return result


def reference(
    problem: Problem,
    sigma: float,
    fit: Fit,
    budget: int,
    plain: bool,
    key: Sequence[int],
) -> Arrays:
    """Unbiased probabilities (N,) with a small error, where noisy inputs tell most.

    Monte Carlo with the fit as control variate; `plain` without, for models that are
    their own fit. A pilot, then thrown away, chooses coefficients and how many noisy
    inputs each image gets: in proportion to the standard deviation, as many as make
    the root mean squared error of all a `SHARE` of that of the fit's estimate, and at
    most `budget` on average.
    """
    exact = fit.probability.cpu().numpy()
    pilot = np.full(len(problem), _PILOT)
    lines = [(fit.margins, fit.jacobian)]
    counts = agreements(problem, sigma, lines, pilot.tolist(), [*key, 0])
    kept, linear, both = counts / _PILOT
    slope = (both - kept * linear + _ADDED / _PILOT) / (
        linear - linear**2 + _ADDED / _PILOT
    )
    slope = np.zeros_like(slope) if plain else slope
    value, spread = _combine(counts, pilot, slope, exact)
    deviation = np.sqrt(spread + _ADDED / _PILOT)
    error = ((exact - value) ** 2 - spread / _PILOT).mean()
    aim = SHARE**2 * max(float(error), _LEAST**2)
    size = min(deviation.mean() ** 2 / aim, budget)
    trials = (
        np.ceil(size * deviation / deviation.mean()).astype(np.int64).clip(min=_FEWEST)
    )
    counts = agreements(problem, sigma, lines, trials.tolist(), [*key, 1])
    value, spread = _combine(counts, trials, slope, exact)
    return {"monte_carlo": value, "variance": spread / (trials - 1), "trials": trials}


def _combine(
    counts: Integers, trials: Integers, slope: Values, exact: Values
) -> tuple[Values, Values]:
    """Estimates with a control variate, and the variance of one noisy input's."""
    kept, linear, both = counts / trials
    mean = kept - slope * linear
    square = kept - 2 * slope * both + slope**2 * linear
    return mean + slope * exact, np.maximum(square - mean**2, 0.0)
