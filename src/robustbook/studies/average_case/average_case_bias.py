"""Whose predictions survive noise: classes, single images, and what tells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from robustbook.datasets import Dataset, load_dataset
from robustbook.models import (
    checkpoint_entry,
    list_models,
    load_model,
    resolve_device,
    training_runs,
)
from robustbook.studies.average_case._extremes import Ends, end_rows, pictures, points
from robustbook.studies.average_case._survival import TEMPERATURES, Kept, kept_predictions
from robustbook.studies._statistics import (
    Integers,
    Values,
    bootstrap_interval,
    class_differences,
    concordance,
    mean_error,
    rank_correlation,
    rank_correlation_error,
    rounded,
)
from robustbook.studies._rows import Row, share_error
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256
from robustbook.training import GRADIENT_PENALTIES

__all__ = ["average_case_bias"]

#: Resamples of the images for the interval of a correlation over classes.
RESAMPLES: Final = 250
#: Images whose pairs are compared, at most.
PAIRS: Final = 1000


@dataclass(frozen=True)
class _Group:
    """Models that are measured on the same images with the same noise."""

    dataset: str
    split: str
    models: tuple[str, ...]
    #: Two strengths of noise; images are ranked at the last.
    sigmas: tuple[float, float]
    #: Noisy inputs for each image; an even number.
    draws: int
    #: Every how many-th image is taken; not the first ones, which are the easier half
    #: of MNIST's test part.
    step: int = 1
    #: Models with an MMSE estimate, and its noisy inputs.
    fitted: tuple[str, ...] = ()
    fits: int = 5
    #: Models whose ends another classifier is to tell apart, and how.
    told: tuple[str, ...] = ()
    ends: Ends = field(default_factory=Ends)
    #: Models of which single images are kept, and of which classes as pictures.
    shown: tuple[str, ...] = ()
    pictured: tuple[int, ...] = ()

    def data(self) -> Dataset:
        return load_dataset(self.dataset, self.split).subset(
            slice(None, None, self.step)
        )


def _family(name: str) -> tuple[str, ...]:
    """A network and those with a gradient-norm penalty, all training seeds."""
    members = (name, *(f"{name}-{suffix}" for suffix in GRADIENT_PENALTIES))
    return tuple(run for member in members for run in training_runs(member))


def _plan(profile: str) -> tuple[_Group, ...]:
    if profile == "quick":
        return (
            _Group(
                "digits",
                "test",
                (
                    "digits-cnn-s0",
                    "digits-cnn-s1",
                    "digits-cnn-grad1e-1-s0",
                    "digits-cnn-grad1-s0",
                    "digits-cnn-grad1-s1",
                    "digits-cnn-adv-s0",
                ),
                (0.1, 0.2),
                draws=40,
                fitted=("digits-cnn-s0",),
                fits=3,
                told=("digits-cnn-s0",),
                ends=Ends(images=10, folds=3, repeats=1),
                shown=("digits-cnn-s0", "digits-cnn-grad1-s0"),
                pictured=(1, 3, 8),
            ),
        )
    return (
        _Group(
            "cifar10",
            "test1000",
            (*_family("cifar10-cnn"), "cifar10-captum_lenet", "cifar10-cnn_a_adv4"),
            (0.05, 0.1),
            draws=60,
            fitted=("cifar10-cnn-s0",),
            told=("cifar10-cnn-s0",),
            shown=("cifar10-cnn-s0", "cifar10-cnn-grad1e-1-s0"),
            pictured=(1, 6, 8),
        ),
        _Group(
            "cifar10",
            "test1000",
            ("cifar10-resnet20",),
            (0.05, 0.1),
            draws=30,
            told=("cifar10-resnet20",),
        ),
        _Group(
            "mnist",
            "test",
            (*_family("mnist-cnn"), "mnist-madry_tiny_adv"),
            (0.2, 0.4),
            draws=16,
            step=4,
            told=("mnist-cnn-s0",),
        ),
        _Group(
            "fashion-mnist",
            "test",
            _family("fashion-mnist-cnn"),
            (0.1, 0.2),
            draws=16,
            step=4,
            told=("fashion-mnist-cnn-s0",),
        ),
    )


def average_case_bias(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Measure average-case robustness by class and by image, and what predicts it.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of noise, resampling, permutations and of the classifiers that are trained.
    device : str
        Where the models run.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "model": accuracy; of our own the ``training_seed``, and the weight λ of the
        gradient ``penalty``, if nothing else was done for robustness;
        "mean": for each ``sigma``, the mean robustness over the images by Monte
        Carlo and by linearization, and the share of its variance that is due to the
        noise having been drawn (``noise_share``);
        "class": the same for each class at the stronger noise, images grouped ``by``
        "label" or "prediction", ``among`` "all" or "right" ones; ``inflow`` is the
        share of the noisy images of other predictions that end in this class;
        "test": whether classes differ: ``spread`` (standard deviation of the true
        class means, corrected for sampling) and a permutation ``p_value`` by "label";
        by "prediction", ``attraction``, the rank correlation of ``p`` and ``inflow``;
        "rank": how well a ``proxy`` ranks the images. ``concordance``: of two images
        of which one kept its prediction more often, how often is it the one with
        the larger proxy (ties count one half; 0.5 is chance); beside it Spearman's
        and Pearson's correlation with the kept share, and ``spearman_taylor``, with
        the linearized estimate;
        "property": how well a property of images tells the robust end of each class
        from the other end (area under the curve);
        "end": the robustness of the images at either end, by noise that did not choose
        them;
        "tell": how well a classifier does;
        "point" and "image": single images.

    Notes
    -----
    Intervals are from resampled images. Average-case paper, Figures 3, 4, 11 to 13.
    Chapter 22 of this book.
    """
    rows: list[Row] = []
    jobs = [(group, model) for group in _plan(profile) for model in group.models]
    for group, model in tqdm(jobs, desc="average_case_bias", disable=None):
        found = _rows(group, model, seed, device)
        head = {"dataset": group.dataset, "model": model}
        rows += [{"what": row.pop("what"), **head, **row} for row in found]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the models and of the images."""
    sums: dict[str, str] = {}
    for group in _plan(profile):
        sums |= {name: model_sha256(load_model(name)) for name in group.models}
        sums[f"{group.dataset} {group.split} [::{group.step}]"] = data_sha256(
            group.data()
        )
    return sums


def _rows(group: _Group, model: str, seed: int, device: str) -> Iterator[Row]:
    kept = kept_predictions(
        load_model(model).eval().to(resolve_device(device)),
        group.data(),
        sigmas=group.sigmas,
        draws=group.draws,
        fits=group.fits if model in group.fitted else 0,
        seed=seed,
    )
    yield _model(model, kept)
    yield from _means(kept)
    yield from _classes(kept)
    yield from _ranks(kept)
    if model in group.told:
        yield from end_rows(kept, group.ends)
    if model in group.shown:
        yield from points(kept)
    if model in group.shown[:1]:
        yield from pictures(kept, group.pictured)


# ------------------------------------------------------------------ model and classes


def _model(name: str, kept: Kept) -> Row:
    share = float(kept.right.mean())
    row: Row = {
        "what": "model",
        "images": len(kept.labels),
        "draws": kept.draws,
        "accuracy": share,
        "accuracy_se": share_error(share, len(kept.labels)),
        "training_seed": None,
        "penalty": None,
    }
    if name in list_models():
        entry = checkpoint_entry(name)
        recipe = entry["recipe"]
        row["training_seed"] = entry["seed"]
        if not (recipe["noise_std"] or recipe.get("adversarial_eps")):
            row["penalty"] = recipe.get("gradient_penalty", 0.0)
    return row


def _means(kept: Kept) -> Iterator[Row]:
    for place, sigma in enumerate(kept.sigmas):
        p = kept.p[place]
        drawn = p * (1 - p) / (kept.draws - 1)
        yield {
            "what": "mean",
            "sigma": sigma,
            "p": rounded(p.mean()),
            "p_se": rounded(mean_error(p)),
            "noise_share": rounded(drawn.mean() / max(p.var(ddof=1), 1e-300)),
            **_estimates(kept, place, np.ones_like(kept.right)),
        }


def _estimates(kept: Kept, place: int, chosen: npt.NDArray[np.bool_]) -> Row:
    """Means of the linearized estimates."""
    return {
        kind: rounded(kept.arrays[kind][place][chosen].mean())
        for kind in ("taylor", "mmse")
        if kind in kept.arrays
    }


def _classes(kept: Kept) -> Iterator[Row]:
    generator = np.random.default_rng(kept.seed)
    everything = np.ones_like(kept.right)
    for place, sigma in enumerate(kept.sigmas):
        for by, among, classes, mask in (
            ("label", "all", kept.labels, everything),
            ("label", "right", kept.labels, kept.right),
            ("prediction", "all", kept.predicted, everything),
        ):
            head = {"sigma": sigma, "by": by, "among": among}
            if sigma == kept.sigmas[-1]:
                found = _class_rows(kept, place, classes, mask)
                yield from ({"what": "class", **head, **row} for row in found)
            if by == "prediction":
                test = _attraction(kept, place, generator)
            else:
                p = kept.p[place][mask]
                test = class_differences(p, classes[mask], generator)
            yield {"what": "test", **head, **test}


def _class_rows(
    kept: Kept, place: int, classes: Integers, mask: npt.NDArray[np.bool_]
) -> Iterator[Row]:
    for number in range(kept.data.num_classes):
        chosen = mask & (classes == number)
        p = kept.p[place][chosen]
        if len(p) < 2:
            continue
        others = kept.shares[place][kept.predicted != number, number]
        yield {
            "class": number,
            "n": len(p),
            "p": rounded(p.mean()),
            "p_se": rounded(mean_error(p)),
            "inflow": rounded(others.mean()),
            **_estimates(kept, place, chosen),
        }


def _attraction(kept: Kept, place: int, generator: np.random.Generator) -> Row:
    """Rank correlation over classes of staying and of being fallen into."""
    size, count = len(kept.predicted), kept.data.num_classes
    shares, p = kept.shares[place], kept.p[place]

    def correlation(index: Integers) -> float:
        times = np.bincount(index, minlength=size)
        sizes = np.bincount(kept.predicted, times, minlength=count)
        stays = np.bincount(kept.predicted, times * p, minlength=count)
        flows = times @ shares - stays
        with np.errstate(invalid="ignore", divide="ignore"):
            return rank_correlation(stays / sizes, flows / (size - sizes))

    low, high = bootstrap_interval(correlation, size, generator, resamples=RESAMPLES)
    value = correlation(np.arange(size))
    return {"attraction": rounded(value), "low": low, "high": high}


# ---------------------------------------------------------------------------- proxies


def _ranks(kept: Kept) -> Iterator[Row]:
    proxies: dict[str, Values] = {
        f"softmax T={temperature:g}": kept.arrays["softmax"][position]
        for position, temperature in enumerate(TEMPERATURES)
    }
    # Softmax rounds to 1 where the logits do not: T -> 0 is the smallest margin.
    ordered = np.sort(kept.arrays["logits"].astype(float), axis=1)
    proxies["logit margin"] = ordered[:, -1] - ordered[:, -2]
    proxies["margin over gradient"] = kept.arrays["ratio"]
    for place, sigma in enumerate(kept.sigmas):
        p, taylor = kept.p[place], kept.arrays["taylor"][place]
        for proxy, values in {**proxies, "taylor": taylor}.items():
            share, error = concordance(values[:PAIRS], p[:PAIRS])
            yield {
                "what": "rank",
                "sigma": sigma,
                "proxy": proxy,
                "concordance": rounded(share),
                "concordance_se": rounded(error),
                "spearman": rounded(rank_correlation(values, p)),
                "spearman_se": rounded(rank_correlation_error(values, p)),
                "pearson": rounded(np.corrcoef(values, p)[0, 1]),
                "spearman_taylor": rounded(rank_correlation(values, taylor)),
                "sure": rounded((p == 1).mean()),
            }
