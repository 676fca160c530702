"""Whose predictions survive noise: classes, single images, and what tells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from robustbook.models import checkpoint_entry, list_models, training_runs
from robustbook.studies._networks import BLOCKS
from robustbook.studies._statistics import (
    Integers,
    Values,
    bootstrap_interval,
    class_differences,
    mean_row,
    rank_correlation,
    rank_correlation_error,
    share_ordered,
)
from robustbook.studies.average_case._extremes import Ends, end_rows, pictures
from robustbook.studies.average_case._survival import Survival, measure_survival
from robustbook.studies.run import Row, Run, Setting, significant, with_keys
from robustbook.training import GRADIENT_PENALTIES

#: Resamples of the images for the interval of a correlation over classes.
RESAMPLES: Final = 250
#: Images whose pairs are compared, at most.
PAIRS: Final = 1000


@dataclass(frozen=True, kw_only=True)
class SurvivalSetting(Setting):
    """Networks that are measured on the same images with the same noise.

    Where images are taken at steps, that is because the first ones are the easier half
    of MNIST's test part.
    """

    models: tuple[str, ...]
    #: Two strengths of noise; images are ranked at the last.
    sigmas: tuple[float, float]
    #: Noisy inputs for each image; an even number.
    draws: int
    #: Models with an MMSE estimate, and its noisy inputs.
    fitted: tuple[str, ...] = ()
    fits: int = 5
    #: Models whose ends another classifier separates, and how.
    separated: tuple[str, ...] = ()
    ends: Ends = field(default_factory=Ends)
    #: Classes whose images at both ends are stored for the first model.
    pictured: tuple[int, ...] = ()


def _family(name: str) -> tuple[str, ...]:
    """A network and those with a gradient-norm penalty, all training seeds."""
    members = (name, *(f"{name}-{suffix}" for suffix in GRADIENT_PENALTIES))
    return tuple(run for member in members for run in training_runs(member))


SETTINGS: Final = {
    "quick": (
        SurvivalSetting(
            dataset="digits",
            models=(
                "digits-cnn-s0", "digits-cnn-s1", "digits-cnn-grad1e-1-s0",
                "digits-cnn-grad1-s0", "digits-cnn-grad1-s1", "digits-cnn-adv-s0",
            ),
            sigmas=(0.1, 0.2), draws=12, step=2, fitted=("digits-cnn-s0",), fits=3,
            separated=("digits-cnn-s0",), ends=Ends(images=8, folds=2, repeats=1),
            pictured=(1, 3, 8),
        ),
    ),
    "full": (
        SurvivalSetting(
            dataset="cifar10", split="test1000",
            models=(
                *_family("cifar10-cnn"),
                "cifar10-captum_lenet", "cifar10-cnn_a_adv4",
            ),
            sigmas=(0.05, 0.1), draws=60, fitted=("cifar10-cnn-s0",),
            separated=("cifar10-cnn-s0",), pictured=(1, 6, 8),
        ),
        SurvivalSetting(
            dataset="cifar10", split="test1000", models=("cifar10-resnet20",),
            sigmas=(0.05, 0.1), draws=30, fitted=("cifar10-resnet20",),
            separated=("cifar10-resnet20",),
        ),
        SurvivalSetting(
            dataset="mnist", models=(*_family("mnist-cnn"), "mnist-madry_tiny_adv"),
            sigmas=(0.2, 0.4), draws=16, step=4, separated=("mnist-cnn-s0",),
        ),
        SurvivalSetting(
            dataset="fashion-mnist", models=_family("fashion-mnist-cnn"),
            sigmas=(0.1, 0.2), draws=16, step=4, separated=("fashion-mnist-cnn-s0",),
        ),
    ),
    # Ends of classes of a thousand images, as the average-case paper takes them: all
    # test images of a data set, of which it takes 25 of each class at either end.
    "quick ends": (
        SurvivalSetting(
            dataset="digits", models=("digits-cnn-s2",), sigmas=(0.1, 0.2), draws=12,
            fitted=("digits-cnn-s2",), fits=3, separated=("digits-cnn-s2",),
            ends=Ends(images=8, folds=2, repeats=1), pictured=(1,),
        ),
    ),
    "full ends": (
        SurvivalSetting(
            dataset="mnist", models=("mnist-cnn-s0",), sigmas=(0.2, 0.4), draws=16,
            separated=("mnist-cnn-s0",), pictured=(4,),
        ),
        SurvivalSetting(
            dataset="fashion-mnist", models=("fashion-mnist-cnn-s0",),
            sigmas=(0.1, 0.2), draws=16, separated=("fashion-mnist-cnn-s0",),
            pictured=(6,),
        ),
        SurvivalSetting(
            dataset="cifar10", split="test1000",
            models=("cifar10-captum_lenet", "cifar10-cnn_a_adv4"), sigmas=(0.05, 0.1),
            draws=60, fitted=("cifar10-captum_lenet", "cifar10-cnn_a_adv4"),
        ),
        SurvivalSetting(
            dataset="mnist", models=("mnist-madry_tiny_adv",), sigmas=(0.2, 0.4),
            draws=16, step=8, fitted=("mnist-madry_tiny_adv",),
        ),
        SurvivalSetting(
            dataset="fashion-mnist", models=("fashion-kw",), sigmas=(0.1, 0.2),
            draws=16, step=8, fitted=("fashion-kw",),
        ),
        SurvivalSetting(
            dataset="cifar10", split="held_out", models=BLOCKS[:1],
            sigmas=(0.02, 0.05), draws=16, separated=BLOCKS[:1], pictured=(1,),
        ),
        SurvivalSetting(
            dataset="cifar10", split="held_out", step=10, models=BLOCKS[1:],
            sigmas=(0.02, 0.05), draws=16,
        ),
    ),
}  # fmt: skip


def parts(run: Run[SurvivalSetting]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The networks, and the classes of which images are stored: for the first one."""
    for place, model in enumerate(run.setting.models):
        yield model, () if place else run.setting.pictured


def measure(
    run: Run[SurvivalSetting], model: str, pictured: tuple[int, ...]
) -> Iterator[Row]:
    """Measure average-case robustness by class and by image, and what predicts it.

    Rows with ``what`` =
    "model": of our own the ``training_seed``, and the weight λ of the gradient
    ``penalty``, if nothing else was done for robustness;
    "mean": for each ``sigma``, the mean robustness over the images by Monte Carlo and
    by linearization;
    "class": the same for each class at the stronger noise, images grouped ``by``
    "label" or "prediction", ``among`` "all" or "right" ones; ``inflow`` is the share of
    the noisy images of other predictions that end in this class;
    "test": whether classes differ, by "label" (a permutation ``p_value``); by
    "prediction", ``attraction``, the rank correlation of ``p`` and ``inflow``;
    "rank": how well a ``proxy``, the softmax probability or the linearized estimate,
    ranks the images. ``concordance``: of two images of which one kept its prediction
    more often, how often is it the one with the larger proxy (ties count one half; 0.5
    is chance); beside it Spearman's correlation with the kept share;
    "property": how well a property of images tells the robust end of each class from
    the other end (area under the curve);
    "end": the robustness of the images at either end, by noise that did not choose
    them;
    "tell": how well a network does;
    "image": single images.
    The study ``average_case_ends`` measures the same on all test images of MNIST and
    FashionMNIST, and linearized estimates of more networks by class.

    Intervals are from resampled images. Average-case paper, Figures 3, 4, 11 to 13.
    Chapter 21 of this book.
    """
    setting = run.setting
    survival = measure_survival(
        run.model(model),
        run.data,
        sigmas=setting.sigmas,
        draws=setting.draws,
        fits=setting.fits if model in setting.fitted else 0,
        seed=run.seed,
    )
    rows = chain(
        [_model(model, len(survival.labels))],
        _means(survival),
        _classes(survival),
        _ranks(survival),
        end_rows(survival, setting.ends) if model in setting.separated else (),
        pictures(survival, pictured),
    )
    return with_keys({"dataset": setting.dataset, "model": model}, rows)


# ------------------------------------------------------------------ model and classes


def _model(name: str, images: int) -> Row:
    entry = checkpoint_entry(name) if name in list_models() else None
    penalty = None
    if entry:
        recipe = entry["recipe"]
        if not (recipe["noise_std"] or recipe.get("adversarial_eps")):
            penalty = recipe.get("gradient_penalty", 0.0)
    return {
        "what": "model",
        "images": images,
        "penalty": penalty,
        "training_seed": entry["seed"] if entry else None,
    }


def _means(survival: Survival) -> Iterator[Row]:
    for place, sigma in enumerate(survival.sigmas):
        yield {
            "what": "mean",
            "sigma": sigma,
            **mean_row("p", survival.kept_share[place], significant),
            **_estimates(survival, place, np.ones_like(survival.right)),
        }


def _estimates(survival: Survival, place: int, chosen: npt.NDArray[np.bool_]) -> Row:
    """Means of the linearized estimates."""
    return {
        kind: significant(survival.arrays[kind][place][chosen].mean())
        for kind in ("taylor", "mmse")
        if kind in survival.arrays
    }


def _classes(survival: Survival) -> Iterator[Row]:
    generator = np.random.default_rng(survival.seed)
    everything = np.ones_like(survival.right)
    for place, sigma in enumerate(survival.sigmas):
        for by, among, classes, mask in (
            ("label", "all", survival.labels, everything),
            ("label", "right", survival.labels, survival.right),
            ("prediction", "all", survival.predicted, everything),
        ):
            head = {"sigma": sigma, "by": by, "among": among}
            if sigma == survival.sigmas[-1]:
                groups = _class_rows(survival, place, classes, mask)
                yield from with_keys({"what": "class", **head}, groups)
            if by == "prediction":
                test = _attraction(survival, place, generator)
            else:
                p = survival.kept_share[place][mask]
                test = {"p_value": class_differences(p, classes[mask], generator)}
            yield {"what": "test", **head, **test}


def _class_rows(
    survival: Survival, place: int, classes: Integers, mask: npt.NDArray[np.bool_]
) -> Iterator[Row]:
    for number in range(survival.data.num_classes):
        chosen = mask & (classes == number)
        p = survival.kept_share[place][chosen]
        if len(p) < 2:
            continue
        others = survival.shares[place][survival.predicted != number, number]
        yield {
            "class": number,
            "n": len(p),
            **mean_row("p", p, significant),
            "inflow": significant(others.mean()),
            **_estimates(survival, place, chosen),
        }


def _attraction(survival: Survival, place: int, generator: np.random.Generator) -> Row:
    """Rank correlation over classes of robustness and inflow."""
    size, count = len(survival.predicted), survival.data.num_classes
    shares, p = survival.shares[place], survival.kept_share[place]

    def correlation(index: Integers) -> float:
        times = np.bincount(index, minlength=size)
        sizes = np.bincount(survival.predicted, times, minlength=count)
        stays = np.bincount(survival.predicted, times * p, minlength=count)
        flows = times @ shares - stays
        with np.errstate(invalid="ignore", divide="ignore"):
            return rank_correlation(stays / sizes, flows / (size - sizes))

    low, high = bootstrap_interval(correlation, size, generator, resamples=RESAMPLES)
    value = correlation(np.arange(size))
    return {"attraction": significant(value), "low": low, "high": high}


# ---------------------------------------------------------------------------- proxies


def _ranks(survival: Survival) -> Iterator[Row]:
    for place, sigma in enumerate(survival.sigmas):
        p, taylor = survival.kept_share[place], survival.arrays["taylor"][place]
        proxies: dict[str, Values]
        proxies = {"softmax T=1": survival.arrays["softmax"], "taylor": taylor}
        for proxy, values in proxies.items():
            share, error = share_ordered(values[:PAIRS], p[:PAIRS])
            yield {
                "what": "rank",
                "sigma": sigma,
                "proxy": proxy,
                "concordance": significant(share),
                "concordance_se": significant(error),
                "spearman": significant(rank_correlation(values, p)),
                "spearman_se": significant(rank_correlation_error(values, p)),
            }
