"""Of a thousand classes, which decide whether a prediction survives noise?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import chi2, norm
from torch import Tensor, nn
from torch.autograd import forward_ad

from robustbook._store.cache import Arrays
from robustbook.average_case.parts import linear_probability, linearize, set_up
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.studies._statistics import Values
from robustbook.studies.run import Row, Run, Setting, decimals

#: Pictures at once.
_PART: Final = 16
#: The probability that the bound of any slope of a picture is too small.
DOUBT: Final = 1e-6
#: The largest probability that neglected classes may add up to.
ENOUGH: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class ClassesSetting(Setting):
    """Pictures, noise, and numbers of calls of the network."""

    models: tuple[str]
    sigmas: tuple[float, ...]
    #: Noisy copies of a picture, which also bound the slopes of all margins.
    draws: int = 48
    #: Nearest classes whose gradients are computed.
    near: int


SETTINGS: Final = {
    "quick": (
        ClassesSetting(
            dataset="digits",
            models=("digits-cnn-s0",),
            sigmas=(0.1, 0.2),
            near=3,
            samples=8,
        ),
    ),
    "full": (
        ClassesSetting(
            dataset="imagenet-nips2017",
            split="test200",
            step=10,
            models=("imagenet:efficientnet-lite0",),
            sigmas=(0.02, 0.05),
            near=32,
        ),
    ),
}


def parts(run: Run[ClassesSetting]) -> Iterator[tuple[str, int]]:
    """The network, and the position of a picture."""
    return product(run.setting.models, range(len(run.data)))


def measure(run: Run[ClassesSetting], name: str, index: int) -> Iterator[Row]:
    """Reduce the Taylor estimate to few classes, with a bound on all others.

    One row for each picture ``index`` and ``sigma``, with probabilities of the tangent
    ("linear") model: ``part``, against the nearest class only; ``reduced``, against the
    ``near`` nearest classes, an orthant probability; ``rest``, an upper bound, by a sum
    over the other classes, of what these can take away from it, which holds with
    probability 1 - 1e-6 over the directions that bound their slopes; ``rest_guess``,
    the same sum with slopes as measured; ``needed``, how many classes to keep so that
    this sum is at most 0.01; ``sampled``, the share of noisy copies that the tangent of
    all margins keeps. ``kept`` is the share that the model keeps, ``agree`` that on
    which the two are one, ``answers`` the number of other classes that it names, and
    ``draws`` the number of copies. ``slack`` is the greatest ratio of an exact slope to
    its bound.

    Average-case paper, Proposition 3.1, for as many classes as ImageNet has.
    """
    setting, part = run.setting, run.data.subset(slice(index, index + 1))
    arrays = slopes_of_all(run.model(name), part, setting, run.seed + index)
    for place, sigma in enumerate(setting.sigmas):
        head = {"dataset": setting.dataset, "model": name, "index": index}
        yield {**head, "sigma": sigma, **_row(arrays, place, sigma)}


def slopes_of_all(
    model: nn.Module, data: Dataset, setting: ClassesSetting, seed: int
) -> Arrays:
    """Margins and slopes of all classes, gradients of the nearest, noisy answers.

    Classes (K - 1,) but the prediction, nearest first. With normal directions v the
    squares of the slopes along v are those of the gradient times a chi-squared number.
    """
    image = data.images
    ask = partial(_logits, model)
    noise = torch.randn(
        setting.draws, *image.shape[1:], generator=torch.Generator().manual_seed(seed)
    )
    clean = ask(image)[0]
    top = int(clean.argmax())
    others = torch.arange(len(clean)) != top
    margins = (clean[top] - clean)[others]
    along = torch.cat(
        [_slopes(model, image, part) for part in torch.split(noise, _PART)]
    )
    slopes = (along[:, [top]] - along)[:, others]
    square = slopes.square().mean(0)
    order = (margins / square.sqrt()).argsort()
    chosen = torch.cat([torch.tensor([top]), others.nonzero()[:, 0][order]])
    few = chosen[: setting.near + 1]
    problem = set_up(
        lambda x: model(x)[:, few.to(x.device)], image, setting.sigmas, batch_size=_PART
    )
    (part,) = linearize(problem)
    exact = linear_probability(
        part.margins, part.gram, problem.sigmas, seed=seed, points=1024
    )
    answers = [ask(image + sigma * noise).argmax(1) for sigma in setting.sigmas]
    kept = [(margins + sigma * slopes > 0).all(1).numpy() for sigma in setting.sigmas]
    return {
        "top": np.array(top),
        "margins": margins[order].numpy(),
        "square": square[order].numpy(),
        "answers": torch.stack(answers).numpy(),
        "linear": np.stack(kept),
        "reduced": exact.probability[:, 0].cpu().numpy(),
        "exact_square": part.gram[0].diagonal().cpu().numpy(),
    }


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    return logits_of(model, images, batch_size=_PART).double().cpu()


@torch.no_grad()
def _slopes(model: nn.Module, image: Tensor, directions: Tensor) -> Tensor:
    """Derivatives of the logits of one image (1, ...) along each direction: (n, K).

    Exact: a difference quotient would have to be finer than single precision allows,
    so many kinks are next to a picture.
    """
    place = next(model.parameters()).device
    copies = image.repeat(len(directions), 1, 1, 1).to(place)
    fad: Any = forward_ad  # it has no type hints
    with fad.dual_level(), warnings.catch_warnings():
        # PyTorch scripts its own derivatives, and warns of that.
        warnings.simplefilter("ignore", DeprecationWarning)
        dual = model(fad.make_dual(copies, directions.to(place)))
        tangents: Tensor = fad.unpack_dual(dual).tangent
    return tangents.double().cpu()


def bounded(square: Values, draws: int) -> Values:
    """Squares of slopes (K - 1,) that none exceeds but with a probability of `DOUBT`.

    Of mean squares along normal directions: a union over the classes.
    """
    return np.asarray(square * draws / chi2.ppf(DOUBT / len(square), draws))


def _row(arrays: Arrays, place: int, sigma: float) -> Row:
    margins, exact = arrays["margins"], arrays["exact_square"]
    draws, near = len(arrays["linear"][place]), len(exact)
    bound = bounded(arrays["square"], draws)
    slopes = np.concatenate([exact, arrays["square"][near:]])
    terms = norm.cdf(-margins / (sigma * np.sqrt(slopes)))
    # Sums of all terms but the 0, 1, 2, ... largest.
    left = np.sort(terms).cumsum()[::-1]
    rest = norm.cdf(-margins[near:] / (sigma * np.sqrt(bound[near:]))).sum()
    kept = arrays["answers"][place] == arrays["top"]
    return {
        "one": decimals(1 - terms.max()),
        "reduced": decimals(arrays["reduced"][place]),
        "near": near,
        "rest": decimals(rest),
        "needed": int((left > ENOUGH).sum()),
        "sampled": decimals(arrays["linear"][place].mean()),
        "kept": decimals(kept.mean()),
        "draws": draws,
        "slack": decimals(np.sqrt(exact / bound[:near]).max(), 4),
    }
