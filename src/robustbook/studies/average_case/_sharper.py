"""References accurate enough for MMSE: more noise where its fit is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case.parts import MEASURE, Problem, draw_normal, set_up
from robustbook.datasets import Dataset
from robustbook.studies._statistics import Integers, Values
from robustbook.studies.average_case._estimates import BLOCK, Fit, fitted

#: Points of the margins' space for each image, of which few are shown to the model.
_POINTS: Final = 16_384
#: Noisy inputs of an image that tell where the model leaves the fit.
_PILOT: Final = 64
#: Cells of the distance to the fit's boundary, up to so many standard deviations.
_CELLS: Final = 40
_FAR: Final = 4.0


def sharpened(
    model: nn.Module,
    data: Dataset,
    arrays: Arrays,
    *,
    sigmas: Sequence[float],
    fits: int,
    share: float,
    most: int,
    seed: int,
) -> Arrays:
    """Add noisy inputs to a reference, until its error is a `share` of MMSE's.

    Its error is the root mean square over the images of its standard error; MMSE's,
    with pairs, is that of the differences. An image gets at most `most` noisy inputs on
    average.
    """
    problem = set_up(model, data.images, list(sigmas))
    names = ("monte_carlo", "variance", "trials")
    result = {name: arrays[name].copy() for name in names}
    for place, sigma in enumerate(sigmas):
        value, variance, trials = (result[name][place] for name in names)
        square = ((arrays["mmse_pairs"][place] - value) ** 2 - variance).mean()
        if variance.mean() <= share**2 * square:
            continue
        fit = fitted(problem, sigma, fits, seed + 1, antithetic=True)
        missing = 1 / (share**2 * square) - 1 / variance.mean() if square > 0 else 1e99
        new = focused(problem, sigma, fit, 1 / missing, most, [seed, place, 2])
        # One weight for all images: their own would go with what they happened to show.
        weight = variance.mean() / (variance.mean() + new["variance"].mean())
        value += weight * (new["monte_carlo"] - value)
        variance *= (1 - weight) ** 2
        variance += weight**2 * new["variance"]
        trials += new["trials"]
    return result


def focused(
    problem: Problem,
    sigma: float,
    fit: Fit,
    variance: float,
    most: int,
    key: Sequence[int],
) -> Arrays:
    """Unbiased probabilities (N,), of a mean `variance` where `most` suffices.

    A pilot, then thrown away, tells how often the label is kept at each distance from
    the boundary of the fit. Its mean over many points of the few dimensions in which
    the fit varies takes no call. At some of them, the more in doubt the more often, the
    model is asked, with noise in all other dimensions, and its answers correct the
    mean. Images that surprised the pilot are asked more.
    """
    planes = [_Plane.of(fit, index, sigma) for index in range(len(problem))]
    where = np.empty((len(planes), _PILOT), dtype=np.int64)
    answers = np.empty(where.shape)
    for index, plane in enumerate(planes):
        points = plane.points([*key, index, 0], _PILOT)
        where[index] = plane.cells(points)
        named = [*key, index, 1]
        answers[index] = _answers(problem, sigma, index, plane, points, named)
    # One half more of either answer: no cell is without a doubt.
    shown = np.bincount(where.ravel(), minlength=_CELLS) + 1
    kept = np.bincount(where.ravel(), answers.ravel(), minlength=_CELLS) + 0.5
    expected, linear = kept / shown, np.arange(_CELLS) >= _CELLS // 2
    doubt = np.sqrt(expected * (1 - expected))
    surprise = ((answers - expected[where]) ** 2).sum(1)
    factor = np.sqrt((surprise + 1) / ((doubt[where] ** 2).sum(1) + 1))
    mean = (factor[:, None] * doubt[where]).mean()
    rate = min(mean / variance, most / mean) / _POINTS
    rows = []
    for index, plane in enumerate(planes):
        points, named = plane.points([*key, index, 2], _POINTS), [*key, index, 3]
        cells = plane.cells(points)
        chance = np.minimum(rate * factor[index] * doubt[cells], 1)
        asked = ndtr(points[:, -1].cpu().numpy()) < chance
        kept_by_model = _answers(problem, sigma, index, plane, points[asked], named)
        values = expected[cells] - linear[cells]
        values[asked] += (kept_by_model - expected[cells[asked]]) / chance[asked]
        rows.append((values.mean(), values.var(ddof=1) / _POINTS, asked.sum()))
    shift, spread, trials = np.array(rows).T
    return {
        "monte_carlo": fit.probability.cpu().numpy() + shift,
        "variance": spread,
        "trials": trials.astype(np.int64),
    }


class _Plane(NamedTuple):
    """The subspace of the noise that changes the linear fit at one image."""

    #: (D, K-1), orthonormal, and the margins' slopes in it, (K-1, K-1).
    basis: Tensor
    slopes: Tensor
    #: In standard deviations: (K-1,).
    margins: Tensor

    @classmethod
    def of(cls, fit: Fit, index: int, sigma: float) -> _Plane:
        basis, triangle = torch.linalg.qr(fit.jacobian[index].double().T)
        norms = sigma * triangle.norm(dim=0).clamp(min=1e-300)
        return cls(basis, sigma * triangle / norms, fit.margins[index] / norms)

    def points(self, key: Sequence[int], count: int) -> Tensor:
        """Normal numbers (count, K), of which the last moves nothing."""
        like = torch.cat([self.margins, self.margins[:1]])[None]
        return draw_normal(key[0], MEASURE, [tuple(key[1:])], count, like)[0]

    def cells(self, points: Tensor) -> Integers:
        """The cell of the distance from the boundary, of which the label is kept."""
        distance = (self.margins + points[:, :-1] @ self.slopes).amin(1).cpu().numpy()
        place = np.floor((distance / _FAR + 1) * _CELLS / 2)
        return place.clip(0, _CELLS - 1).astype(np.int64)


def _answers(
    problem: Problem,
    sigma: float,
    index: int,
    plane: _Plane,
    points: Tensor,
    key: Sequence[int],
) -> Values:
    """Whether the model keeps its label, 0 or 1, with noise around points: (n,)."""
    inputs, basis = problem.inputs, plane.basis.to(problem.inputs)
    answers = [np.zeros(0)]
    for block, part in enumerate(torch.split(points[:, :-1].to(inputs), BLOCK)):
        name = (*key[1:], block)
        noise = draw_normal(key[0], MEASURE, [name], len(part), inputs)[0]
        noise += (part - noise @ basis) @ basis.T
        kept = problem.keeps(torch.tensor([index]), sigma * noise[None])[0]
        answers.append(kept.double().cpu().numpy())
    return np.concatenate(answers)
