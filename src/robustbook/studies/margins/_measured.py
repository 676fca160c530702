"""Measure input margins once, keep them: what all experiments of Part VI start from."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from robustbook._checks.arguments import check_count
from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.attacks import apgd, bisect_result
from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import (
    Consistency,
    InputMargins,
    detection_scores,
    feature_margin,
    gradient_normalized_margin,
    input_margin,
    logit_margin,
)
from robustbook.margins._kendall import concordance, ranks
from robustbook.margins._recipe import VERSION
from robustbook.models import features_of, load_model, logits_of, resolve_device
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256

__all__ = [
    "FOUND_BY",
    "SEARCH_VERSION",
    "MarginSetting",
    "MeasuredMargins",
    "Recipe",
    "detection_row",
    "linear_head",
    "margin_settings",
    "margin_sums",
    "margins_of",
    "measure_bounds",
    "paired_tau_difference",
    "scores_of",
    "share_row",
    "tau_row",
]

#: Which attack found the closest image, whatever shortened it afterwards; the first
#: where none did, "line" where the gradients lead nowhere.
FOUND_BY: Final = ("none", "fmn", "fab", "line", "apgd")

#: With fewer brittle or fewer other decisions, detection is not measured.
FEWEST: Final = 5

#: Images measured at once, and kept in one file of the cache.
_BLOCK: Final = 500
#: Arrays of a search, and of gradients.
_SEARCHED: Final = ("logits", "bounds", "found_by", "feature_shifts")
_FIRST_ORDER: Final = ("gradient_margins", "first_order_margins")

#: Images whose bounds are tightened with one size of the ball.
_CHUNK: Final = 32
#: The first size of that ball, as a share of the bound; its root where that fails.
_SHARE: Final = 0.85
#: Raise it with every change of what is computed here.
SEARCH_VERSION: Final = f"2, {VERSION}"


@dataclass(frozen=True)
class Recipe:
    """How thoroughly the closest image of another class is looked for.

    Attributes
    ----------
    targets, steps, refine_steps : int
        As :func:`robustbook.margins.input_margin` takes them.
    rounds, apgd_steps : int
        How often its bound is tightened: APGD looks for an image of another class
        in a ball that is a little smaller than the bound.
    """

    targets: int = 3
    steps: int = 20
    refine_steps: int = 50
    rounds: int = 5
    apgd_steps: int = 20


@dataclass(frozen=True)
class MarginSetting:
    """Models and images that belong together.

    Attributes
    ----------
    dataset, split : str
        The images.
    models : dict of str to (Recipe, int)
        Names, how they are searched, and on how many images, from the first.
    eps : tuple of float
        Bounds at which decisions are called brittle, in [0, 1] pixel units.
    focus : float
        The usual one of them.
    """

    dataset: str
    split: str
    models: dict[str, tuple[Recipe, int]]
    eps: tuple[float, ...]
    focus: float

    def data(self, model: str) -> Dataset:
        """Load the images on which a model is measured."""
        return load_dataset(self.dataset, self.split).subset(
            slice(self.models[model][1])
        )

    def margins(self, model: str, *, seed: int, device: str) -> MeasuredMargins:
        """Measure a model, or read what was measured."""
        recipe, _ = self.models[model]
        return margins_of(model, self.data(model), recipe, seed=seed, device=device)

    def sums(self) -> dict[str, str]:
        """sha256 of the models and of the images."""
        sums = {name: model_sha256(load_model(name)) for name in self.models}
        most = max(count for _, count in self.models.values())
        data = load_dataset(self.dataset, self.split).subset(slice(most))
        return {**sums, f"{self.dataset} {self.split}": data_sha256(data)}


_CIFAR = Recipe(targets=3, steps=10, refine_steps=50, rounds=1)
_DEEP = Recipe(targets=3, steps=10, refine_steps=30, rounds=1, apgd_steps=10)
_MNIST = Recipe(targets=2, steps=10, refine_steps=30, rounds=5)
_DIGITS = Recipe(targets=3, steps=10, refine_steps=20, rounds=0)

_SETTINGS: Final = {
    "digits": MarginSetting(
        dataset="digits",
        split="test",
        models={
            "digits-linear-s0": (_DIGITS, 300),
            "digits-cnn-s0": (_DIGITS, 300),
            "digits-cnn-noise-s0": (_DIGITS, 300),
            "digits-cnn-adv-s0": (_DIGITS, 300),
        },
        eps=(0.05, 0.1, 0.2),
        focus=0.1,
    ),
    "cifar10": MarginSetting(
        dataset="cifar10",
        split="test1000",
        models={
            **{
                f"cifar10-{name}": (_CIFAR, 1000)
                for name in (
                    "cnn_a_adv",
                    "cnn_a_adv4",
                    "cnn_a_adv_alt",
                    "cnn_a_mix",
                    "cnn_a_mix4",
                    "resnet2b_adv",
                    "resnet4b_adv",
                    "conv_small_pgd",
                    "oval_wide_kw",
                    "preact-adv-s0",
                    "marabou_large",
                    "captum_lenet",
                )
            },
            "cifar10-resnet20": (_DEEP, 500),
        },
        eps=(1 / 255, 2 / 255, 4 / 255, 8 / 255),
        focus=8 / 255,
    ),
    "mnist": MarginSetting(
        dataset="mnist",
        split="test",
        models={
            "mnist-madry_tiny_adv": (_MNIST, 10_000),
            "mnist-cnn_a_adv": (_MNIST, 10_000),
            "mnist-conv_small_nat": (_MNIST, 10_000),
            "mnist-kw": (_MNIST, 10_000),
            "mnist-advertorch_lenet5_clean": (_MNIST, 1000),
            "mnist-advertorch_lenet5_adv": (_MNIST, 1000),
        },
        eps=(0.05, 0.1, 0.2, 0.3),
        focus=0.2,
    ),
}


def margin_settings(profile: str) -> tuple[MarginSetting, ...]:
    """Return the settings of a profile: digits for "quick"."""
    if profile == "quick":
        return (_SETTINGS["digits"],)
    return (_SETTINGS["cifar10"], _SETTINGS["mnist"])


def margin_sums(profile: str) -> dict[str, str]:
    """sha256 of all models and images of a profile, for its provenance."""
    sums: dict[str, str] = {}
    for setting in margin_settings(profile):
        sums |= setting.sums()
    return sums


@dataclass(frozen=True, eq=False)
class MeasuredMargins:
    """A model on some images, and how far each of them is from the boundary.

    Attributes
    ----------
    logits : Tensor, shape (N, K)
        Of the clean images.
    features : Tensor, shape (N, D)
        What the linear head receives of them.
    labels : Tensor, shape (N,)
        True classes.
    weights, bias : Tensor, shapes (K, D) and (K,)
        The linear head.
    bounds : Tensor, shape (N,)
        ℓ∞ distance to the closest image found of another class than the predicted
        one, in [0, 1] pixel units, float64: an upper bound on the input margin.
        Infinite where none was found.
    found_by : Tensor, shape (N,)
        Which attack found it, an index into :data:`FOUND_BY`.
    gradient_margins : Tensor, shape (N,)
        Logit margin over the 1-norm of its gradient.
    first_order_margins : Tensor, shape (N,)
        The smallest of these ratios over all other classes.
    feature_shifts : Tensor, shape (N,)
        ℓ2 distance between the features of the image and of the closest one found.
    """

    logits: Tensor
    features: Tensor
    labels: Tensor
    weights: Tensor
    bias: Tensor
    bounds: Tensor
    found_by: Tensor
    feature_shifts: Tensor
    gradient_margins: Tensor
    first_order_margins: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> Tensor:
        """Whether the clean prediction is right, shape (N,)."""
        return self.logits.argmax(dim=1) == self.labels

    def __getitem__(self, chosen: Tensor) -> MeasuredMargins:
        """Return the samples of an index, or of a mask."""
        kept = {
            item.name: getattr(self, item.name)[chosen]
            for item in fields(self)
            if item.name not in ("weights", "bias")
        }
        return replace(self, **kept)


def margins_of(
    name: str,
    data: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "auto",
    directory: Path | str | None = None,
) -> MeasuredMargins:
    """Measure the input margins of a model, or read them from the cache.

    Parameters
    ----------
    name : str
        A name that :func:`robustbook.models.load_model` knows; a model that ends
        in a linear layer.
    data : Dataset
        Images and labels. Every block of 500 is kept on its own.
    recipe : Recipe
        How thoroughly to look.
    seed : int, default 0
        Of APGD.
    device : str, default "auto"
        Where to run.
    directory : Path or str, optional
        The cache; see ``robustbook._store.cache``.

    Returns
    -------
    MeasuredMargins
        On the CPU.

    Raises
    ------
    ValueError, DataUnavailableError
        If there is no such model, or its weights are not to be had.
    OSError
        If nothing can be written to the cache.

    Examples
    --------
    >>> data = load_dataset("digits", "test").subset(range(8))
    >>> recipe = Recipe(steps=10, refine_steps=0, rounds=0)
    >>> margins_of("digits-linear-s0", data, recipe).bounds.shape
    torch.Size([8])
    """
    seed = check_count("seed", seed, minimum=0)
    model = load_model(name).eval()
    shared: dict[str, str | int | float | bool | None] = {
        "what": "input margins",
        "version": SEARCH_VERSION,
        "model": name,
        "model_sha256": model_sha256(model),
        "seed": seed,
        "attacks_sha256": code_sha256(["robustbook.attacks"], follow_imports=False),
        **asdict(recipe),
    }
    measured, cheap = [], []
    code = code_sha256(["robustbook.margins._competitors"], follow_imports=False)
    for start in range(0, len(data), _BLOCK):
        block = data.subset(slice(start, start + _BLOCK))
        configuration = {**shared, "data_sha256": data_sha256(block)}
        compute = functools.partial(_measured, model, block, recipe, seed, device)
        measured.append(cached_arrays(configuration, compute, directory=directory))
        configuration = {
            "what": "gradient margins",
            "model_sha256": shared["model_sha256"],
            "data_sha256": configuration["data_sha256"],
            "code_sha256": code,
        }
        compute = functools.partial(_first_order, model, block, device)
        cheap.append(cached_arrays(configuration, compute, directory=directory))
    joined = {
        key: torch.from_numpy(np.concatenate([block[key] for block in blocks]))
        for blocks, keys in ((measured, _SEARCHED), (cheap, _FIRST_ORDER))
        for key in keys
    }
    weights, bias = linear_head(model)
    model.cpu()
    return MeasuredMargins(
        features=features_of(model, data.images),
        labels=data.labels,
        weights=weights.cpu(),
        bias=bias.cpu(),
        **joined,
    )


def _measured(
    model: nn.Module, data: Dataset, recipe: Recipe, seed: int, device: str
) -> Arrays:
    model.to(resolve_device(device))
    result = measure_bounds(model, data.images, recipe, seed=seed)
    near = features_of(model, result.adversarial)
    shifts = (near - features_of(model, data.images)).double().norm(dim=1)
    arrays = {
        "logits": logits_of(model, data.images),
        "bounds": result.margins,
        "found_by": torch.tensor(
            [FOUND_BY.index(name.partition("+")[0]) for name in result.attack]
        ),
        "feature_shifts": shifts,
    }
    return {key: value.detach().cpu().numpy() for key, value in arrays.items()}


def measure_bounds(
    model: nn.Module, images: Tensor, recipe: Recipe, *, seed: int = 0
) -> InputMargins:
    """Look for the closest images of another class than the predicted one.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode.
    images : Tensor, shape (N, ...)
        Images in [0, 1].
    recipe : Recipe
        How thoroughly to look.
    seed : int, default 0
        Of APGD.

    Returns
    -------
    InputMargins
        The closest images found; "apgd" is the last of its ``attacks``.

    Notes
    -----
    :func:`robustbook.margins.input_margin` first. Its attacks look for the size of
    the perturbation and its direction at once. APGD, which is better at getting
    anywhere in a ball of a given size, then gets a ball a little smaller than the
    bound. Where it finds something, the bound is tightened; where it does not, the
    next ball is larger. On defended MNIST models this is what finds most.
    """
    found = input_margin(
        model, images, targets=recipe.targets, steps=recipe.steps,
        refine_steps=recipe.refine_steps, seed=seed, progress=False,
    )  # fmt: skip
    labels = logits_of(model, images).argmax(dim=1)
    # No ball is larger than the one that holds all images.
    bounds, found_by = found.margins.clamp(max=1.0), found.found_by.clone()
    adversarial, known = found.adversarial.clone(), ~found.failed
    shares = torch.full_like(bounds, _SHARE)
    for number in range(recipe.rounds):
        order = (bounds * shares).argsort(stable=True)
        for rows in torch.split(order, _CHUNK):
            eps = float((bounds[rows] * shares[rows]).median().clamp(min=1e-6))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*gradient of zero")
                tried = apgd(
                    model, images[rows], labels[rows], eps=eps,
                    steps=recipe.apgd_steps, seed=seed + number, progress=False,
                )  # fmt: skip
            tried = bisect_result(
                model, images[rows], tried, labels[rows], steps=6, progress=False
            )
            better = tried.success & (tried.norms < bounds[rows])
            chosen = rows[better]
            bounds[chosen] = tried.norms[better]
            adversarial[chosen] = tried.adversarial[better]
            known[chosen], found_by[chosen] = True, len(found.attacks)
            missed = rows[~better]
            shares[missed] = shares[missed].sqrt()
    return InputMargins(
        torch.where(known, bounds, torch.inf),
        adversarial,
        found_by,
        found.norm,
        (*found.attacks, "apgd"),
    )


def _first_order(model: nn.Module, data: Dataset, device: str) -> Arrays:
    model.to(resolve_device(device))
    return {
        name: gradient_normalized_margin(model, data.images, nearest=nearest).numpy()
        for name, nearest in (
            ("gradient_margins", False),
            ("first_order_margins", True),
        )
    }


def linear_head(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weights and bias of the last linear layer.

    Parameters
    ----------
    model : torch.nn.Module
        One whose last linear layer makes the logits.

    Returns
    -------
    Tensor, shape (K, D)
        Weights.
    Tensor, shape (K,)
        Bias, zeros if it has none.

    Examples
    --------
    >>> weights, bias = linear_head(load_model("digits-linear-s0"))
    >>> weights.shape, bias.shape
    (torch.Size([10, 64]), torch.Size([10]))
    """
    layer = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    weights = layer.weight.detach()
    bias = torch.zeros(len(weights)) if layer.bias is None else layer.bias.detach()
    return weights, bias


def scores_of(found: MeasuredMargins) -> dict[str, Tensor]:
    """Return what is known of a sample without an attack, by name.

    Parameters
    ----------
    found : MeasuredMargins
        A model on some images.

    Returns
    -------
    dict of str to Tensor, shape (N,)
        Float64; a smaller score says that the decision is more brittle. Three of
        one forward pass; then one with one backward pass, and one with K - 1.
    """
    logits = found.logits.double()
    probabilities = logits.softmax(dim=1).topk(2, dim=1).values
    gap = logit_margin(logits)
    return {
        "logit_margin": gap,
        "feature_margin": feature_margin(
            found.features.double(), found.weights.double(), found.bias.double()
        ),
        "softmax_margin": probabilities[:, 0] - probabilities[:, 1],
        "gradient_margin": found.gradient_margins,
        "first_order_margin": found.first_order_margins,
    }


def share_row(name: str, mask: Tensor) -> dict[str, float]:
    """Return a share with the ends of its exact 95 % interval.

    Parameters
    ----------
    name : str
        Of the column.
    mask : Tensor, shape (N,)
        Bool.

    Returns
    -------
    dict of str to float
        Columns `name`, ``name_low`` and ``name_high``.

    Examples
    --------
    >>> row = share_row("right", torch.tensor([True, True, False, True]))
    >>> row["right"], round(row["right_low"], 3)
    (0.75, 0.194)
    """
    hits, count = int(mask.sum()), len(mask)
    interval = binomtest(hits, count).proportion_ci()
    return {
        name: hits / count,
        f"{name}_low": float(interval.low),
        f"{name}_high": float(interval.high),
    }


def paired_tau_difference(
    first: Tensor, second: Tensor, margins: Tensor
) -> tuple[float, float]:
    """Return by how much one score orders margins better than another does.

    Parameters
    ----------
    first, second, margins : Tensor, shape (N,)
        Two scores and the margins of the same samples.

    Returns
    -------
    float
        Kendall's τ-b of the first with the margins less that of the second.
    float
        Its standard error, by the asymptotic theory of U-statistics: from the
        differences, sample by sample, of the shares of concordant pairs.

    Examples
    --------
    >>> margins = torch.arange(9.0)
    >>> paired_tau_difference(margins, -margins, margins)
    (2.0, 0.0)
    """
    known = ranks(margins.double().numpy())
    parts, taus = [], []
    for score in (first, second):
        found = ranks(score.double().numpy())
        signs = concordance(found, known)
        pairs = [
            len(signs) ** 2 - np.square(np.bincount(r)).sum() for r in (found, known)
        ]
        scale = math.sqrt(float(pairs[0]) * float(pairs[1]))
        taus.append(float(signs.sum()) / scale)
        parts.append(signs * len(signs) / scale)
    spread = float(np.std(parts[0] - parts[1], ddof=1))
    return taus[0] - taus[1], 2 * spread / math.sqrt(len(first))


def tau_row(name: str, found: Consistency) -> dict[str, float]:
    """Return τ with the ends of its interval, in columns named after `name`."""
    low, high = found.interval
    return {name: found.tau, f"{name}_low": low, f"{name}_high": high}


def detection_row(
    values: Tensor, bounds: Tensor, eps: float
) -> dict[str, float | None]:
    """Return how well a score detects brittle decisions, with 95 % intervals.

    Parameters
    ----------
    values, bounds : Tensor, shape (N,)
        Scores and input margins.
    eps : float
        Decisions with a margin up to this are brittle.

    Returns
    -------
    dict
        Columns ``auroc``, ``aupr`` and ``fpr95``, each also with ``_low`` and
        ``_high``; None where fewer than five decisions are brittle, or fewer than
        five are not.
    """
    names = {"auroc": "auroc", "aupr": "aupr", "fpr95": "fpr"}
    brittle = int((bounds <= eps).sum())
    if not FEWEST <= brittle <= len(bounds) - FEWEST:
        return {f"{name}{end}": None for name in names for end in ("", "_low", "_high")}
    found = detection_scores(values, bounds, eps, resamples=400)
    row: dict[str, float | None] = {}
    for name, attribute in names.items():
        low, high = getattr(found, f"{attribute}_interval")
        row |= {
            name: getattr(found, attribute),
            f"{name}_low": low,
            f"{name}_high": high,
        }
    return row
