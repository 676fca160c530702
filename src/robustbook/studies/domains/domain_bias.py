"""What the features of two domains vary along, epoch by epoch: Experiment 5c."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import draw_all
from robustbook.models import features_of
from robustbook.selection import pair_scores
from robustbook.studies.domains._data import (
    PLANS,
    SETUPS,
    domain_sums,
    fewest_digits,
    pictures,
    training_data,
)
from robustbook.studies._rows import Row, Values, rounded
from robustbook.studies.domains._training import Plan, Training

__all__ = [
    "WATCHED_LEARNERS",
    "Watched",
    "data_sums",
    "domain_bias",
    "margins",
    "picture_numbers",
    "principal_component",
    "shares_of_variance",
    "watch_learner",
]

#: Raise it with every change of what is trained, or of what is watched.
VERSION: Final = 2
#: The two learners of the experiment with the options of the published configuration,
#: and a third whose penalty weighs as much as its authors let it.
WATCHED_LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {
        "ERM": ERM(),
        "IRM": IRM(),
        "IRM-100": IRM(weight=100.0, warmup_epochs=2),
    }
)
#: Pairs whose features are recorded.
PAIRS: Final = 128
#: Adam's learning rate in this experiment.
RATE: Final = 1e-2
#: Epochs whose picture is kept for the first seed, beside the last.
SHOWN: Final = (1, 2, 5, 10)
#: The same for the other seeds.
SHOWN_OF_OTHERS: Final = (5,)


@dataclass(frozen=True)
class Watched:
    """What a training left.

    Attributes
    ----------
    epochs : list of dict
        Scores of each epoch, as :class:`robustbook.training.History` has them.
    features : ndarray, shape (T, 2, n, D)
        After each epoch, the features of the two samples: pair i is one digit.
    heads : ndarray, shape (T, D + 1)
        Weights and bias of class 1 less those of class 0 in the last layer.
    labels : ndarray, shape (n,)
        The class of each pair, 0 or 1.
    """

    epochs: list[dict[str, float]]
    features: Values
    heads: Values
    labels: Values


def domain_bias(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Train on two domains, and look at the features of validation pairs.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes the embedded digits, smaller images and two seeds.
    seed : int
        Of the validation images. The trainings have the seeds 0, 1, ... after it.
    device : str
        Where the models are trained.

    Returns
    -------
    list of dict
        Rows for each ``setup`` ("printed" or "configured" environments),
        ``learner`` ("ERM", "IRM", "IRM-100"), ``training_seed`` and ``epoch``, with
        ``what`` =
        "epoch": loss, risk and scores of all validation pairs (accuracy, afr_pred,
        pa, pa_se, beta, confidence), and what :func:`picture_numbers` says of 128 of
        them;
        "picture": for those, ``labels`` as a string of classes, and ``first``,
        ``second``: where the two samples of each pair are along the first principal
        component of their own sample; ``common_first``, ``common_second``: along
        that of both samples together, all in standard deviations; and
        ``margin_first``, ``margin_second``: by how much the logit of class 1 is ahead.
        Each is a string of decimals.

    Notes
    -----
    PA thesis, section 4.3, Experiment 5c; PA paper, appendix D. Training is stored
    in the cache after every epoch. Chapter 16 of this book.
    """
    plan = watched_plan(profile)
    wanted = [
        (setup, learner, training_seed)
        for training_seed in range(seed, seed + plan.seeds)
        for setup in SETUPS
        for learner in WATCHED_LEARNERS
    ]
    rows: list[Row] = []
    for setup, learner, training_seed in tqdm(wanted, desc="domain_bias", disable=None):
        watched = watch_learner(
            setup, learner, plan, training_seed=training_seed, seed=seed, device=device
        )
        shared = {"setup": setup, "learner": learner, "training_seed": training_seed}
        shown = {plan.epochs, *(SHOWN if training_seed == seed else SHOWN_OF_OTHERS)}
        rows += [
            {"what": row.pop("what"), **shared, **row}
            for row in _of_training(watched, shown)
        ]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the digits that the images are made of."""
    return domain_sums(PLANS[profile])


def watched_plan(profile: str) -> Plan:
    """How much is trained: half as many images as in chapter 15, at this rate."""
    plan = PLANS[profile]
    return replace(
        plan, lr=RATE, count=plan.count // 2 if profile == "full" else plan.count
    )


def watch_learner(
    setup: str,
    learner: str,
    plan: Plan,
    *,
    training_seed: int,
    seed: int = 0,
    device: str = "auto",
) -> Watched:
    """Train and watch, or read what that gave.

    Parameters
    ----------
    setup, learner : str
        Keys of :data:`SETUPS` and :data:`WATCHED_LEARNERS`.
    plan : Plan
        How much.
    training_seed : int
        Of the training images, the initial weights and the training.
    seed : int
        Of the validation images.
    device : str
        Where to train; not part of what is looked for in the cache.

    Returns
    -------
    Watched
        Scores and features after each epoch.
    """
    training = Training(
        "watch_learner", VERSION, setup, learner, WATCHED_LEARNERS[learner], plan,
        training_seed=training_seed, seed=seed, device=device, prefix="bias-",
        more={"pairs": PAIRS},
    )  # fmt: skip

    def compute() -> Arrays:
        pair = _validation_pair(setup, plan, seed)
        few = [part.subset(slice(PAIRS)) for part in pair]
        _, history = training.run(
            training_data(setup, plan, training_seed),
            pairs={"same": pair},
            measure=pair_scores,
            watch={
                "features": lambda model: torch.stack(
                    [features_of(model, part.images / 255) for part in few]
                ),
                "head": _head,
            },
        )
        return {
            "epochs": np.array(json.dumps(history.rows)),
            "features": torch.stack(history.watched["features"]).numpy(),
            "heads": torch.stack(history.watched["head"]).numpy(),
            "labels": few[0].labels.numpy(),
        }

    arrays = training.stored(compute)
    return Watched(
        epochs=json.loads(str(arrays["epochs"])),
        features=arrays["features"].astype(np.float64),
        heads=arrays["heads"].astype(np.float64),
        labels=arrays["labels"],
    )


def _validation_pair(setup: str, plan: Plan, seed: int) -> tuple[Dataset, Dataset]:
    """The pairs of Experiment 5a: the same digits in both environments."""
    chosen = SETUPS[setup]
    fewest = fewest_digits(plan, "validation", chosen.shapes)
    scenes = draw_all(
        chosen.validation["ID"],
        shapes=chosen.shapes,
        source=plan.source,
        count=len(chosen.shapes) * plan.laps * fewest,
        split="validation",
        paired=True,
        seed=seed,
    )
    first, second = pictures(scenes, plan)
    return first, second


def _head(model: nn.Module) -> Tensor:
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    both = torch.cat([last.weight, last.bias[:, None]], 1)
    return both[1] - both[0]


# --------------------------------------------------------------------- components


@dataclass(frozen=True)
class Component:
    """The first principal component of a sample's features.

    Attributes
    ----------
    direction : ndarray, shape (D,)
        Of unit length; the second class lies further along it than the first.
    values : ndarray, shape (n,)
        Where the samples are along it, from their mean, in standard deviations.
    share, next_share : float
        Share of the variance that lies along it, and along the next one.
    """

    direction: Values
    values: Values
    share: float
    next_share: float


def principal_component(features: Values, labels: Values) -> Component | None:
    """Find the direction along which features vary most.

    A principal direction has no sign of its own. Here class 1 has the larger mean.

    Parameters
    ----------
    features : ndarray, shape (n, D)
        A row for each sample.
    labels : ndarray, shape (n,)
        Classes, 0 or 1.

    Returns
    -------
    Component or None
        None if the features do not vary.

    Examples
    --------
    >>> features = np.array([[0.0, 1.0], [2.0, 1.1], [4.0, 0.9]])
    >>> found = principal_component(features, np.array([1, 0, 0]))
    >>> found.direction.round(3), found.values.round(1)
    (array([-1.   ,  0.025]), array([ 1.2,  0. , -1.2]))
    """
    centered = features - features.mean(0)
    scale = float(np.abs(features).max())
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    if sizes[0] <= 1e-9 * max(scale, 1e-30):
        return None
    direction = directions[0]
    values = centered @ direction
    if values[labels == 1].mean() < values[labels == 0].mean():
        direction, values = -direction, -values
    shares = sizes**2 / (sizes**2).sum()
    return Component(
        direction=direction,
        values=values / values.std(),
        share=float(shares[0]),
        next_share=float(shares[1]) if len(shares) > 1 else 0.0,
    )


def shares_of_variance(first: Values, second: Values, labels: Values) -> Row:
    """Split the variance of paired features into what it comes from.

    Parameters
    ----------
    first, second : ndarray, shape (n, D)
        Features of two samples; row i of both is one digit, in two domains.
    labels : ndarray, shape (n,)
        Classes of the digits.

    Returns
    -------
    dict of str to float
        Shares of the sum of squares, which add up to 1: "class" (which class a digit
        is of), "digit" (which digit of its class), "domain" (the same step for all),
        "domain_by_class" (a step that differs between the classes), "domain_by_digit"
        (the rest: a step that differs between digits of a class). Empty if nothing
        varies.

    Notes
    -----
    The analysis of variance of two crossed factors, domain and digit, the digits
    nested in classes. Chapter 16 of this book.

    Examples
    --------
    >>> first = np.array([[0.0], [0.0], [4.0], [4.0]])
    >>> shares_of_variance(first, first + 2, np.array([0, 0, 1, 1]))["domain"]
    0.2
    """
    both = np.stack([first, second])  # (2, n, D)
    center = both.mean((0, 1))
    digits = both.mean(0) - center  # (n, D), effects of the digits
    domains = both.mean(1) - center  # (2, D), effects of the domains
    rest = both - center - digits[None] - domains[:, None]
    total = float(((both - center) ** 2).sum())
    if total <= 1e-18 * float((both**2).sum()) or total == 0:
        return {}

    def of_classes(values: Values) -> Values:
        """The mean over a sample's class, for every sample (axis -2)."""
        means = np.empty_like(values)
        for label in np.unique(labels):
            mine = labels == label
            means[..., mine, :] = values[..., mine, :].mean(-2, keepdims=True)
        return means

    by_class, by_domain = of_classes(digits), of_classes(rest)
    parts = {
        "class": 2 * (by_class**2).sum(),
        "digit": 2 * ((digits - by_class) ** 2).sum(),
        "domain": len(labels) * (domains**2).sum(),
        "domain_by_class": (by_domain**2).sum(),
        "domain_by_digit": ((rest - by_domain) ** 2).sum(),
    }
    return {name: float(part) / total for name, part in parts.items()}


def margins(features: Values, head: Values) -> Values:
    """By how much class 1 is ahead of class 0.

    Parameters
    ----------
    features : ndarray, shape (n, D)
        A row for each sample.
    head : ndarray, shape (D + 1,)
        Weights and bias of class 1 less those of class 0.

    Returns
    -------
    ndarray, shape (n,)
        Differences of logits.

    Examples
    --------
    >>> margins(np.array([[1.0, 2.0]]), np.array([3.0, -1.0, 0.5]))
    array([1.5])
    """
    read: Values = features @ head[:-1] + head[-1]
    return read


def picture_numbers(first: Values, second: Values, labels: Values, head: Values) -> Row:
    """Say in numbers what the picture of two principal components shows, or hides.

    Parameters
    ----------
    first, second : ndarray, shape (n, D)
        Features of two samples; row i of both is one digit, in two domains.
    labels : ndarray, shape (n,)
        Classes of the digits, 0 or 1.
    head : ndarray, shape (D + 1,)
        What the last layer reads: weights and bias of class 1 less those of class 0.

    Returns
    -------
    dict of str to float
        What the picture shows, each sample along its own first component:
        "correlation" of the two; "error", the mean squared difference after each has
        been normalized, which is 2 (1 - correlation); "class_first" and
        "class_second", the shares of variance between the classes.
        What it leaves out: "share_first", "share_second", the share of all variance
        that lies along the component, and "next_first", "next_second" along the
        next; "alignment", the absolute cosine of the two directions; "head_first",
        "head_second", the squared correlation of the component with what the last
        layer reads; "flipped_by_loading" and "flipped_by_score", whether the picture
        were upside down had each component been given the sign that makes its
        largest loading, or its largest score, positive.
        What it could have shown: "raw_error", the mean squared difference along the
        common first component of both samples, over the variance of all values along
        it; "common_class" and "common_domain", shares of the variance there; and the
        shares of :func:`shares_of_variance`, with "features_" before them of all
        features, with "read_" of what the last layer reads. What has no value is
        left out.
    """
    read = [margins(sample, head)[:, None] for sample in (first, second)]
    shares = {
        "features": shares_of_variance(first, second, labels),
        "read": shares_of_variance(read[0], read[1], labels),
    }
    row: Row = {
        f"{of}_{name}": share
        for of, found in shares.items()
        for name, share in found.items()
    }
    parts = principal_component(first, labels), principal_component(second, labels)
    for name, sample, part in zip(
        ("first", "second"), (first, second), parts, strict=True
    ):
        if part is None:
            continue
        row |= {
            f"share_{name}": part.share,
            f"next_{name}": part.next_share,
            f"class_{name}": _between(part.values, labels),
        }
        lead = margins(sample, head)
        if lead.std() > 1e-9 * max(float(np.abs(lead).max()), 1e-30):
            row[f"head_{name}"] = float(np.corrcoef(part.values, lead)[0, 1] ** 2)
    if parts[0] is not None and parts[1] is not None:
        x, y = parts[0].values, parts[1].values
        correlation = float((x * y).mean())
        flips = {
            "loading": [_sign_of_largest(part.direction) for part in parts],  # type: ignore[union-attr]
            "score": [_sign_of_largest(part.values) for part in parts],  # type: ignore[union-attr]
        }
        row |= {
            "correlation": correlation,
            "error": float(((x - y) ** 2).mean()),
            "alignment": float(abs(parts[0].direction @ parts[1].direction)),
            **{
                f"flipped_by_{name}": int(correlation * signs[0] * signs[1] < 0)
                for name, signs in flips.items()
            },
        }
    common = principal_component(np.concatenate([first, second]), np.tile(labels, 2))
    if common is not None:
        x, y = common.values.reshape(2, -1)
        along = shares_of_variance(x[:, None], y[:, None], labels)
        row |= {
            "raw_error": float(((x - y) ** 2).mean()),
            "common_share": common.share,
            "common_class": along["class"],
            "common_domain": along["domain"],
        }
    return row


def _between(values: Values, labels: Values) -> float:
    """Share of the variance of some values that is between the classes."""
    means = np.zeros_like(values)
    for label in np.unique(labels):
        means[labels == label] = values[labels == label].mean()
    return float(means.var() / values.var())


def _sign_of_largest(values: Values) -> float:
    return float(np.sign(values[np.abs(values).argmax()]))


# --------------------------------------------------------------------------- rows


def _of_training(watched: Watched, shown: set[int]) -> Iterator[Row]:
    for scores, features, head in zip(
        watched.epochs, watched.features, watched.heads, strict=True
    ):
        epoch = int(scores["epoch"])
        numbers = picture_numbers(features[0], features[1], watched.labels, head)
        yield {
            "what": "epoch",
            "epoch": epoch,
            **{
                key.removeprefix("same/"): value
                for key, value in scores.items()
                if key != "epoch"
            },
            **{
                key: value if isinstance(value, int) else rounded(value, 8)
                for key, value in numbers.items()
            },
        }
        if epoch in shown:
            picture = _picture(features[0], features[1], watched.labels, head)
            yield {"what": "picture", "epoch": epoch, **picture}


def _picture(first: Values, second: Values, labels: Values, head: Values) -> Row:
    parts = {
        "first": principal_component(first, labels),
        "second": principal_component(second, labels),
        "common": principal_component(
            np.concatenate([first, second]), np.tile(labels, 2)
        ),
    }
    values = {name: part.values for name, part in parts.items() if part is not None}
    if "common" in values:
        values["common_first"], values["common_second"] = values.pop("common").reshape(
            2, -1
        )
    values["margin_first"] = margins(first, head)
    values["margin_second"] = margins(second, head)
    return {
        "labels": "".join(str(int(label)) for label in labels),
        **{
            name: " ".join(f"{number:.4g}" for number in some)
            for name, some in values.items()
        },
    }
