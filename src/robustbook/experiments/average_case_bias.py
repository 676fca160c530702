"""Whose predictions survive noise: classes, single images, and what tells them."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import pearsonr, rankdata, spearmanr
from torch import Tensor, nn
from tqdm import tqdm

from robustbook.average_case import mmse, softmax_proxy
from robustbook.average_case._linearize import linear_probability, linearize
from robustbook.average_case._problem import set_up
from robustbook.datasets import Dataset, load_dataset
from robustbook.experiments._cache import Arrays, cached_arrays
from robustbook.experiments._rows import Row, share_error
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import (
    build_model,
    checkpoint_entry,
    list_models,
    load_model,
    logits_of,
    resolve_device,
)
from robustbook.results import write_results
from robustbook.training import train_classifier

__all__ = ["average_case_bias"]

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Points of each scramble of the integration.
POINTS: Final = 256
#: Resamples of the images for intervals, and permutations of their classes.
RESAMPLES: Final = 500
PERMUTATIONS: Final = 1999
TEMPERATURES: Final = (0.1, 1.0, 10.0)
#: What ranks images beside the temperatures.
GRADIENT_AWARE: Final = "margin over gradient"
#: Images whose pairs are compared, at most.
PAIRS: Final = 2000
#: Passes over its few images of the network that tells them apart.
EPOCHS: Final = 12
#: Noisy images at once.
_CHUNK: Final = 20_000


@dataclass(frozen=True)
class _Group:
    """Models that are measured on the same images with the same noise."""

    dataset: str
    split: str
    models: tuple[str, ...]
    sigmas: tuple[float, float]
    #: Noisy inputs for each image; an even number.
    draws: int
    #: None is all.
    images: int | None = None
    #: Noisy inputs of the MMSE fits; none is made for 0.
    fits: int = 0
    #: Images of each class at either end of a ranking.
    ends: int = 25
    #: Models whose ends another classifier is to tell apart.
    told: tuple[str, ...] = ()
    folds: int = 5
    repeats: int = 2
    #: Models of which single images are kept.
    shown: tuple[str, ...] = ()
    pictured: tuple[int, ...] = ()
    #: Names in the rows, if not the data set's.
    alias: str | None = None

    @property
    def focus(self) -> float:
        """The noise at which images are ranked."""
        return self.sigmas[-1]

    def data(self) -> Dataset:
        data = load_dataset(self.dataset, self.split)
        return data if self.images is None else data.subset(slice(self.images))


_PLANS: Final[dict[str, tuple[_Group, ...]]] = {
    "quick": (
        _Group(
            "digits",
            "test",
            (
                "digits-cnn-s0",
                "digits-cnn-s1",
                "digits-cnn-grad1e-1-s0",
                "digits-cnn-grad1-s0",
                "digits-cnn-adv-s0",
            ),
            (0.1, 0.2),
            draws=40,
            fits=3,
            ends=10,
            told=("digits-cnn-s0",),
            folds=3,
            repeats=1,
            shown=("digits-cnn-s0", "digits-cnn-grad1-s0"),
            pictured=(1, 3, 8),
        ),
    ),
    "full": (
        _Group(
            "cifar10",
            "test1000",
            (
                "cifar10-cnn-s0",
                "cifar10-cnn-grad1e-3-s0",
                "cifar10-cnn-grad1e-2-s0",
                "cifar10-cnn-grad1e-1-s0",
                "cifar10-cnn-grad1-s0",
                "cifar10-captum_lenet",
                "cifar10-cnn_a_adv4",
            ),
            (0.05, 0.1),
            draws=100,
            fits=5,
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
            shown=("cifar10-resnet20",),
        ),
        _Group(
            "mnist",
            "test",
            (
                "mnist-cnn-s0",
                "mnist-cnn-s1",
                "mnist-cnn-grad1-s0",
                "mnist-cnn-grad1-s1",
                "mnist-madry_tiny_adv",
            ),
            (0.2, 0.4),
            draws=16,
            told=("mnist-cnn-s0",),
        ),
        _Group(
            "fashion-mnist",
            "test",
            ("fashion-mnist-cnn-s0",),
            (0.1, 0.2),
            draws=16,
            told=("fashion-mnist-cnn-s0",),
        ),
    ),
}


def average_case_bias(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    directory: Path | None = None,
    name: str = "average_case_bias",
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
    directory : Path, optional
        Where to store the rows.
    name : str
        Under which name.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "model": accuracy and, of our own, the weight λ of the gradient penalty;
        "mean": for each ``sigma``, the mean robustness over the images by Monte
        Carlo and by linearization, and the share of its variance that is due to the
        noise having been drawn (``noise_share``);
        "class": the same for each class, images grouped ``by`` "label" or
        "prediction", ``among`` "all" or "right" ones; ``inflow`` is the share of the
        noisy images of other predictions that end in this class;
        "test": whether classes differ: ``spread`` (standard deviation of the true
        class means, corrected for sampling) and a permutation ``p_value``; by
        "prediction", ``attraction``, the rank correlation of ``p`` and ``inflow``;
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
    started = datetime.now(UTC)
    rows: list[Row] = []
    sums: dict[str, str] = {}
    known = set(list_models())
    jobs = [(group, model) for group in _PLANS[profile] for model in group.models]
    for group, model_name in tqdm(jobs, desc="average_case_bias", disable=None):
        data = group.data()
        model = load_model(model_name).eval().to(resolve_device(device))
        sums[model_name] = model_sha256(model)
        sums[f"{group.dataset} {group.split} {len(data)}"] = data_sha256(data)
        shared: dict[str, str | int | float | bool | None] = {
            "what": "average_case_bias",
            "model": sums[model_name],
            "images": data_sha256(data),
            "sigmas": repr(group.sigmas),
            "seed": seed,
        }
        measured = cached_arrays(
            {**shared, "draws": group.draws, "fits": group.fits, "halves": 2},
            lambda group=group, model=model, data=data: _measure(  # type: ignore[misc]
                group, model, data, seed
            ),
        )
        head = {"dataset": group.alias or group.dataset, "model": model_name}
        penalty = 0.0
        if model_name in known:
            recipe = checkpoint_entry(model_name)["recipe"]
            penalty = recipe.get("gradient_penalty", 0.0)
        found = _Found(group, data, measured, seed)
        parts = [found.model(model_name in known, penalty), found.classes()]
        parts += [found.ranks(), found.properties()]
        if model_name in group.told:
            told = cached_arrays(
                {
                    **shared,
                    "part": "told",
                    "draws": group.draws,
                    "ends": group.ends,
                    "folds": group.folds,
                    "repeats": group.repeats,
                    "epochs": EPOCHS,
                    "order": "kept, then linearized",
                },
                found.tell,
            )
            parts.append(found.told(told))
        if model_name in group.shown:
            parts.append(found.singles())
        for part in parts:
            rows += [{"what": row.pop("what"), **head, **row} for row in part]
    if directory is not None:
        write_results(
            name,
            rows,
            experiment=name,
            profile=profile,
            seed=seed,
            device=device,
            modules=["robustbook.average_case", "robustbook.training"],
            started=started,
            data_sha256=sums,
            directory=directory,
        )
    return rows


# ------------------------------------------------------------------- measuring


def _measure(group: _Group, model: nn.Module, data: Dataset, seed: int) -> Arrays:
    """All that needs the model: (S, N) each, where not said otherwise."""
    sigmas = list(group.sigmas)
    problem = set_up(model, data.images, sigmas, None, None, None)
    probability, ratio = [], []
    for part in linearize(problem):
        found = linear_probability(
            part.margins, part.gram, problem.sigmas, seed=0, points=POINTS
        )
        probability.append(found.probability.cpu())
        norms = part.gram.diagonal(dim1=1, dim2=2).sqrt()
        ratio.append((part.margins / norms.clamp(min=1e-300)).amin(1).cpu())
    proxies = softmax_proxy(model, data.images, temperature=list(TEMPERATURES))
    # One half orders images, the other says how robust those at the ends are: what was
    # chosen for its luck must not be believed.
    first, second = (
        _noisy_predictions(model, data.images, sigmas, group.draws // 2, seed + half)
        for half in (0, 1)
    )
    result: Arrays = {
        "logits": logits_of(model, data.images).cpu().numpy(),
        "first": first,
        "counts": first + second,
        "taylor": torch.cat(probability, dim=1).numpy(),
        "softmax": proxies.cpu().numpy(),  # (T, N)
        "ratio": torch.cat(ratio).numpy(),  # (N,)
    }
    if group.fits:
        fitted = mmse(
            model, data.images, sigmas, samples=group.fits, points=POINTS, seed=seed
        )
        result["mmse"] = fitted.probability.cpu().numpy()
    return result


def _noisy_predictions(
    model: nn.Module, images: Tensor, sigmas: list[float], draws: int, seed: int
) -> Integers:
    """How often each image is predicted as each class under noise: (S, N, K)."""
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, _CHUNK // draws)
    found = []
    for first in range(0, len(images), at_once):
        some = images[first : first + at_once]
        shape = (len(some), draws, *images.shape[1:])
        noise = torch.randn(shape, generator=generator)
        counts = []
        for sigma in sigmas:
            noisy = (some[:, None] + sigma * noise).flatten(0, 1)
            logits = logits_of(model, noisy)
            shown = nn.functional.one_hot(logits.argmax(1), logits.shape[1])
            counts.append(shown.reshape(len(some), draws, -1).sum(1))
        found.append(torch.stack(counts))
    return torch.cat(found, dim=1).numpy().astype(np.int64)


# ------------------------------------------------------------------- reporting


class _Found:
    """Rows of one model from what was measured."""

    def __init__(self, group: _Group, data: Dataset, arrays: Arrays, seed: int) -> None:
        self.group, self.data, self.arrays, self.seed = group, data, arrays, seed
        self.labels = data.labels.numpy()
        self.predicted = arrays["logits"].argmax(1)
        self.right = self.predicted == self.labels
        self.num_classes = data.num_classes
        counts = arrays["counts"]
        self.shares = counts / group.draws
        index = np.arange(len(self.labels))
        self.kept: Values = self.shares[:, index, self.predicted]
        first = 2 * arrays["first"][:, index, self.predicted] / group.draws
        self.first: Values = first
        self.second: Values = 2 * self.kept - first
        self.place = len(group.sigmas) - 1  # of the focus

    def model(self, own: bool, penalty: float) -> Iterator[Row]:
        share = float(self.right.mean())
        yield {
            "what": "model",
            "images": len(self.labels),
            "draws": self.group.draws,
            "accuracy": share,
            "accuracy_se": share_error(share, len(self.labels)),
            "own": own,
            "penalty": penalty,
        }
        for place, sigma in enumerate(self.group.sigmas):
            p = self.kept[place]
            drawn = p * (1 - p) / (self.group.draws - 1)
            row = {
                "what": "mean",
                "sigma": sigma,
                "p": _round(p.mean()),
                "p_se": _round(_error(p)),
                "noise_share": _round(drawn.mean() / max(p.var(ddof=1), 1e-300)),
                "taylor": _round(self.arrays["taylor"][place].mean()),
                "right": _round(p[self.right].mean()),
                "wrong": _round(p[~self.right].mean()) if not self.right.all() else 1.0,
            }
            if "mmse" in self.arrays:
                row["mmse"] = _round(self.arrays["mmse"][place].mean())
            yield row

    def classes(self) -> Iterator[Row]:
        generator = np.random.default_rng(self.seed)
        for place, sigma in enumerate(self.group.sigmas):
            for by, classes in (("label", self.labels), ("prediction", self.predicted)):
                for among in ("all", "right"):
                    if by == "prediction" and among == "right":
                        continue  # the same as by label
                    mask = self.right if among == "right" else np.ones_like(self.right)
                    head = {"sigma": sigma, "by": by, "among": among}
                    found = list(self._class_rows(place, classes, mask))
                    yield from ({"what": "class", **head, **row} for row in found)
                    p = self.kept[place][mask]
                    test = _class_test(p, classes[mask], self.num_classes, generator)
                    if by == "prediction":
                        test |= self._attraction(place, generator)
                    yield {"what": "test", **head, **test}

    def _class_rows(
        self, place: int, classes: Integers, mask: npt.NDArray[np.bool_]
    ) -> Iterator[Row]:
        for number in range(self.num_classes):
            chosen = mask & (classes == number)
            p = self.kept[place][chosen]
            if len(p) < 2:
                continue
            row = {
                "class": number,
                "n": len(p),
                "p": _round(p.mean()),
                "p_se": _round(_error(p)),
                "taylor": _round(self.arrays["taylor"][place][chosen].mean()),
                "inflow": _round(
                    self.shares[place][self.predicted != number, number].mean()
                ),
            }
            if "mmse" in self.arrays:
                row["mmse"] = _round(self.arrays["mmse"][place][chosen].mean())
            yield row

    def _attraction(self, place: int, generator: np.random.Generator) -> Row:
        """Rank correlation over classes of staying and of being fallen into."""
        size = len(self.predicted)

        def correlation(index: Integers) -> float:
            predicted = self.predicted[index]
            shares = self.shares[place][index]
            kept = self.kept[place][index]
            sizes = np.bincount(predicted, minlength=self.num_classes)
            stays = np.bincount(predicted, kept, minlength=self.num_classes)
            flows = shares.sum(0) - stays
            with np.errstate(invalid="ignore", divide="ignore"):
                return _spearman(stays / sizes, flows / (size - sizes))

        low, high = _interval(correlation, size, generator, RESAMPLES // 2)
        value = correlation(np.arange(size))
        return {"attraction": _round(value), "low": low, "high": high}

    def ranks(self) -> Iterator[Row]:
        proxies: dict[str, Values] = {
            f"softmax T={temperature:g}": self.arrays["softmax"][position]
            for position, temperature in enumerate(TEMPERATURES)
        }
        # Softmax rounds to 1 where the logits do not: T -> 0 is the smallest margin.
        ordered = np.sort(self.arrays["logits"].astype(float), axis=1)
        proxies["logit margin"] = ordered[:, -1] - ordered[:, -2]
        proxies[GRADIENT_AWARE] = self.arrays["ratio"]
        for place, sigma in enumerate(self.group.sigmas):
            p, taylor = self.kept[place], self.arrays["taylor"][place]
            for proxy, values in {**proxies, "taylor": taylor}.items():
                share, error = _concordance(values[:PAIRS], p[:PAIRS])
                yield {
                    "what": "rank",
                    "sigma": sigma,
                    "proxy": proxy,
                    "concordance": _round(share),
                    "concordance_se": _round(error),
                    "spearman": _round(_spearman(values, p)),
                    "spearman_se": _round(_fisher_error(values, p)),
                    "pearson": _round(pearsonr(values, p).statistic),
                    "spearman_taylor": _round(_spearman(values, taylor)),
                    "sure": _round((p == 1).mean()),
                }

    @property
    def scores(self) -> dict[str, Values]:
        """What images can be ranked by."""
        generator = np.random.default_rng(self.seed + 2)
        # Where all noisy predictions are kept, the linearized estimate goes on.
        taylor = self.arrays["taylor"][self.place].round(6)
        order = np.lexsort((self.arrays["ratio"], taylor, self.first[self.place]))
        robust = np.empty(len(taylor))
        robust[order] = np.arange(len(taylor))
        return {
            "p": robust,
            "softmax": self.arrays["softmax"][TEMPERATURES.index(1.0)],
            "brightness": _properties(self.data.images)["brightness"],
            "random": generator.random(len(taylor)),
        }

    def ends(self, score: Values) -> tuple[Integers, Integers]:
        """Images at both ends of each class: positions, and 1 for the upper end."""
        index, upper = [], []
        for number in range(self.num_classes):
            chosen = np.flatnonzero(self.labels == number)
            count = min(self.group.ends, len(chosen) // 2)
            order = chosen[np.argsort(score[chosen], kind="stable")]
            index += [order[:count], order[-count:]]
            upper += [np.zeros(count, dtype=int), np.ones(count, dtype=int)]
        return np.concatenate(index), np.concatenate(upper)

    def properties(self) -> Iterator[Row]:
        scores = self.scores
        values = _properties(self.data.images)
        values["softmax"] = scores["softmax"]
        values["robustness"] = scores["p"]
        values["right"] = self.right.astype(float)
        for score in ("p", "softmax"):
            index, upper = self.ends(scores[score])
            classes = self.labels[index]
            for name, value in values.items():
                if {score, name} in ({"p", "robustness"}, {"softmax"}):
                    continue
                area, error = _stratified_area(value[index], upper, classes)
                yield {
                    "what": "property",
                    "score": score,
                    "property": name,
                    "auc": _round(area),
                    "auc_se": _round(error),
                    "images": len(index),
                }
            for end, chosen in (("low", upper == 0), ("high", upper == 1)):
                p = self.second[self.place][index[chosen]]
                yield {
                    "what": "end",
                    "score": score,
                    "end": end,
                    "sigma": self.group.focus,
                    "p": _round(p.mean()),
                    "p_se": _round(_error(p)),
                    "accuracy": _round(self.right[index[chosen]].mean()),
                    "images": len(p),
                }

    def tell(self) -> Arrays:
        """Whether each image was told right, by score and classifier: (R, n)."""
        result: Arrays = {}
        for score, values in self.scores.items():
            index, upper = self.ends(values)
            images = self.data.images[torch.from_numpy(index)]
            strata = 2 * self.labels[index] + upper
            # The two controls need no more than one run.
            repeats = self.group.repeats if score in ("p", "softmax") else 1
            for kind, fit in _CLASSIFIERS.items():
                told = [
                    _cross_validate(
                        fit, images, upper, strata, self.group.folds, self.seed + run
                    )
                    for run in range(repeats)
                ]
                result[f"{score} {kind}"] = np.stack(told)
        return result

    def told(self, arrays: Arrays) -> Iterator[Row]:
        for key, value in arrays.items():
            score, kind = key.split(" ")
            mean = value.mean(0)
            # Images are the units; training adds what differs between repeats.
            error = math.sqrt(
                mean.var(ddof=1) / len(mean)
                + (value.mean(1).var(ddof=1) / len(value) if len(value) > 1 else 0)
            )
            yield {
                "what": "tell",
                "score": score,
                "classifier": kind,
                "accuracy": _round(mean.mean()),
                "accuracy_se": _round(error),
                "images": len(mean),
                "ends": self.group.ends,
                "folds": self.group.folds,
                "repeats": len(value),
            }

    def singles(self) -> Iterator[Row]:
        generator = np.random.default_rng(self.seed + 3)
        softmax = self.arrays["softmax"][TEMPERATURES.index(1.0)]
        count = min(200, len(self.labels))
        for index in sorted(generator.permutation(len(self.labels))[:count]):
            yield {
                "what": "point",
                "sigma": self.group.focus,
                "image": int(index),
                "p": _round(self.kept[self.place][index]),
                "softmax": _round(softmax[index]),
                "right": bool(self.right[index]),
            }
        for score in ("p", "softmax"):
            values = self.scores[score]
            for number in self.group.pictured:
                chosen = np.flatnonzero(self.labels == number)
                order = chosen[np.argsort(values[chosen], kind="stable")]
                for end, some in (("low", order[:3]), ("high", order[::-1][:3])):
                    for place, index in enumerate(some):
                        yield {
                            "what": "image",
                            "score": score,
                            "class": number,
                            "end": end,
                            "place": place,
                            "image": int(index),
                            "predicted": int(self.predicted[index]),
                            "p": _round(self.kept[self.place][index]),
                            "softmax": _round(softmax[index]),
                            "png": _png(self.data.images[index]),
                        }


def _class_test(
    p: Values, classes: Integers, num_classes: int, generator: np.random.Generator
) -> Row:
    """Do classes differ? The variance between them against permuted classes."""
    sizes = np.bincount(classes, minlength=num_classes)
    there = sizes > 1

    def between(values: Values) -> float:
        sums = np.bincount(classes, values, minlength=num_classes)[there]
        return float((sums**2 / sizes[there]).sum())

    observed = between(p)
    above = sum(
        between(generator.permutation(p)) >= observed * (1 - 1e-12)
        for _ in range(PERMUTATIONS)
    )
    means = np.array([p[classes == k].mean() for k in np.flatnonzero(there)])
    errors = np.array([_error(p[classes == k]) for k in np.flatnonzero(there)])
    spread = math.sqrt(max(0.0, means.var(ddof=1) - (errors**2).mean()))
    return {
        "p_value": (1 + above) / (1 + PERMUTATIONS),
        "spread": _round(spread),
        "range": _round(means.max() - means.min()),
        "classes": int(there.sum()),
    }


def _properties(images: Tensor) -> dict[str, Values]:
    """What can be seen of an image without a model: (N,) each."""
    gray = images.mean(1).double()
    across = (gray[:, :, 1:] - gray[:, :, :-1]).abs().mean((1, 2))
    down = (gray[:, 1:] - gray[:, :-1]).abs().mean((1, 2))
    border = torch.ones_like(gray[0], dtype=torch.bool)
    edge = max(1, len(border) // 4)
    border[edge:-edge, edge:-edge] = False
    middle = (gray[:, ~border].mean(1) - gray[:, border].mean(1)).abs()
    found = {
        "brightness": gray.mean((1, 2)),
        "contrast": gray.flatten(1).std(1),
        "middle against border": middle,
        "edges": across + down,
    }
    if images.shape[1] == 3:
        color = (images.amax(1) - images.amin(1)).double()
        found["saturation"] = color.mean((1, 2))
    return {name: value.numpy() for name, value in found.items()}


def _stratified_area(
    values: Values, upper: Integers, classes: Integers
) -> tuple[float, float]:
    """Area under the ROC curve within classes, averaged; with its standard error."""
    areas, variances = [], []
    for number in np.unique(classes):
        high = values[(classes == number) & (upper == 1)]
        low = values[(classes == number) & (upper == 0)]
        wins = (high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])
        areas.append(wins.mean())
        # DeLong: the variance of the two kinds of partial means.
        variances.append(
            wins.mean(1).var(ddof=1) / len(high) + wins.mean(0).var(ddof=1) / len(low)
        )
    return float(np.mean(areas)), math.sqrt(sum(variances)) / len(areas)


# ------------------------------------------------------------------ telling apart

Fit = Callable[[Tensor, Integers, Tensor, int], Integers]


def _cross_validate(
    fit: Fit, images: Tensor, upper: Integers, strata: Integers, folds: int, seed: int
) -> npt.NDArray[np.bool_]:
    """Whether each image is told right by a classifier that has not seen it."""
    from sklearn.model_selection import StratifiedKFold

    right = np.zeros(len(upper), dtype=bool)
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    for train, test in split.split(strata, strata):
        answers = fit(images[train], upper[train], images[test], seed)
        right[test] = answers == upper[test]
    return right


def _fit_network(
    images: Tensor, upper: Integers, others: Tensor, seed: int
) -> Integers:
    """Two convolutions and two linear layers, as the paper's: about 20 000 weights."""
    options: dict[str, Any] = {
        "channels": images.shape[1],
        "size": images.shape[2],
        "convolutions": [(8, 3, 1), (16, 3, 1)],
        "linear": [20, 2],
    }
    model = build_model("pooled-conv-net", seed=seed, options=options)
    mean, spread = images.mean(), images.std()
    data = Dataset(
        images=(images - mean) / spread,
        labels=torch.from_numpy(upper.astype(np.int64)),
        name="ends",
        split="train",
        num_classes=2,
    )
    train_classifier(
        model, data, epochs=EPOCHS, lr=0.003, seed=seed, batch_size=32, progress=False
    )
    return logits_of(model, (others - mean) / spread).argmax(1).numpy()


def _fit_pixels(images: Tensor, upper: Integers, others: Tensor, seed: int) -> Integers:
    """Logistic regression on the pixels."""
    return _fit_linear(
        images.flatten(1).numpy(), upper, others.flatten(1).numpy(), 0.01
    )


def _fit_properties(
    images: Tensor, upper: Integers, others: Tensor, seed: int
) -> Integers:
    """Logistic regression on a handful of properties."""

    def columns(some: Tensor) -> Values:
        return np.stack(list(_properties(some).values()), axis=1)

    return _fit_linear(columns(images), upper, columns(others), 1.0)


def _fit_linear(x: Any, upper: Integers, others: Any, strength: float) -> Integers:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=strength, max_iter=500)
    )
    found: Integers = model.fit(x, upper).predict(others)
    return found


_CLASSIFIERS: Final[dict[str, Fit]] = {
    "cnn": _fit_network,
    "pixels": _fit_pixels,
    "properties": _fit_properties,
}


# ------------------------------------------------------------------------ helpers


def _interval(
    statistic: Callable[[Integers], float],
    size: int,
    generator: np.random.Generator,
    resamples: int,
) -> tuple[float, float]:
    """95% interval by resampling the images: normal, on the bootstrap's error."""
    values = [statistic(generator.integers(size, size=size)) for _ in range(resamples)]
    center = statistic(np.arange(size))
    half = 1.96 * float(np.nanstd(values, ddof=1))
    return _round(max(-1.0, center - half)), _round(min(1.0, center + half))


def _spearman(a: Values, b: Values) -> float:
    there = np.isfinite(a) & np.isfinite(b)
    if there.sum() < 3:
        return math.nan
    ranks = rankdata(a[there]), rankdata(b[there])
    if min(rank.std() for rank in ranks) == 0:
        return 0.0
    return float(spearmanr(*ranks).statistic)


def _fisher_error(a: Values, b: Values) -> float:
    """Standard error of a rank correlation (Bonett and Wright)."""
    value = _spearman(a, b)
    spread = math.sqrt((1 + value**2 / 2) / (len(a) - 3))
    return (1 - value**2) * spread


def _concordance(proxy: Values, p: Values) -> tuple[float, float]:
    """Share of the pairs of different p that the proxy orders rightly; and its error.

    The error is that of a ratio of two U-statistics, from their first projections.
    """
    above = p[:, None] > p[None]
    better = np.sign(proxy[:, None] - proxy[None])
    right = np.where(above, (1 + better) / 2, 0.0)
    # Each image's pairs, with it on either side.
    wins = (right.sum(1) + right.sum(0)) / (len(p) - 1)
    pairs = (above.sum(1) + above.sum(0)) / (len(p) - 1)
    if pairs.sum() == 0:
        return math.nan, math.nan
    share = wins.sum() / pairs.sum()
    spread = 2 * (wins - share * pairs).std(ddof=1) / math.sqrt(len(p))
    return float(share), float(spread / pairs.mean())


def _error(values: Values) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _round(value: Any) -> float:
    return float(f"{float(value):.6g}")


def _png(image: Tensor) -> str:
    from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
