"""Choices by agreement between folds and between shifts, beside labeled judges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, permutations, product, repeat
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import log_softmax
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from robustbook.agreement import posterior_agreement
from robustbook.datasets import Dataset, load_dataset
from robustbook.studies._statistics import Integers, Values
from robustbook.studies.run import Row, Run, Setting, with_keys

_RATES: Final = {10**a: 10**a for a in np.arange(-4.5, -0.9, 0.5).tolist()}
#: What is chosen of a network, its candidates, and what they mean to scikit-learn. All
#: fits of a candidate start at the same weights, but for the last.
FAMILIES: Final[Mapping[str, tuple[str, Mapping[float, Any]]]] = {
    "width": ("hidden_layer_sizes", {w: (w,) for w in (2, 4, 8, 16, 32, 64, 128, 256)}),
    "depth": ("hidden_layer_sizes", {d: (32,) * d for d in range(1, 7)}),
    "penalty": ("alpha", {10**a: 10**a for a in np.arange(-3, 3.1, 0.75).tolist()}),
    "learning rate": ("learning_rate_init", _RATES),
    "rate, own starts": ("learning_rate_init", _RATES),
}
#: Orders that are tried, where one is true.
ORDERS: Final = tuple(range(2, 9))
#: Inputs without labels, for two noisy copies.
_UNLABELED: Final = 200


@dataclass(frozen=True, kw_only=True)
class ChoosingSetting(Setting):
    """How many problems, and how large."""

    #: Each with its own training set, or its own truth.
    problems: int
    tasks: tuple[str, ...]
    #: Labeled inputs, in three folds; the share of their labels that are drawn anew.
    count: int = 300
    wrong: float = 0.2
    epochs: int = 200
    kind = "made up"


_ORDERS: Final = ("mixture", "clusters", "polynomial")
SETTINGS: Final = {
    "full": (
        ChoosingSetting(dataset="digits", problems=6, tasks=tuple(FAMILIES)),
        ChoosingSetting(dataset="made up", problems=5, tasks=tuple(FAMILIES)),
        ChoosingSetting(dataset="orders", problems=30, tasks=_ORDERS, count=450),
    ),
    "quick": (
        ChoosingSetting(
            dataset="digits",
            problems=2,
            count=180,
            epochs=15,
            tasks=tuple(task for task in FAMILIES if task != "depth"),
        ),
        ChoosingSetting(dataset="orders", problems=3, tasks=_ORDERS, count=150),
    ),
}


def parts(run: Run[ChoosingSetting]) -> Iterator[tuple[int, str]]:
    """Seeds of the problems, with each task."""
    return product(run.seeds(run.setting.problems), run.setting.tasks)


def measure(run: Run[ChoosingSetting], seed: int, task: str) -> list[Row]:
    """Judge every candidate of a problem.

    One row for each ``dataset``, ``task``, ``seed`` of a problem and ``candidate``.
    Two models that were fitted on two of three folds are judged on the third:
    ``pa_folds``, without labels, mean over the three pairs; of networks and degrees
    ``accuracy`` and ``likelihood`` (minus cross-entropy at a temperature fitted on the
    other left-out fold). ``pa_shifts`` is between two noisy copies of inputs without
    labels, of the model fitted on all. ``error`` is that model's on clean test data.
    Of mixtures ``bic`` (its negative) and ``likelihood`` of the left-out fold, of
    k-means ``silhouette`` and ``stability`` (same-answer rate between the folds); their
    labels are matched. ``true`` is the order by which the data were made. Chapter 40.
    """
    setting, judges = run.setting, _KINDS.get(task, _networks)
    keys = {"dataset": setting.dataset, "task": task, "seed": seed}
    with warnings.catch_warnings():
        # All networks train for the same epochs.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [*with_keys(keys, judges(setting, task, seed))]


# ----------------------------------------------------------- judges of classifiers


class _Problem(NamedTuple):
    """Labeled inputs, inputs twice noisy, and test data with right labels."""

    inputs: Values
    labels: Integers
    copies: tuple[Values, Values]
    test: tuple[Values, Integers]


def _problem(
    setting: ChoosingSetting,
    inputs: Values,
    labels: Integers,
    test: tuple[Values, Integers],
    noise: float,
    random: np.random.Generator,
) -> _Problem:
    order = random.permutation(len(inputs))
    labeled, unlabeled = np.split(order, [setting.count])
    given = labels[labeled]
    drawn = random.integers(labels.max() + 1, size=len(labeled))
    given = np.where(random.random(len(labeled)) < setting.wrong, drawn, given)
    plain = inputs[unlabeled[:_UNLABELED]]
    first, second = (plain + noise * random.normal(size=plain.shape) for _ in range(2))
    return _Problem(inputs[labeled], given, (first, second), test)


def _judge(problem: _Problem, make: Callable[[], Any], seed: int) -> Row:
    """Fit a candidate on each fold and on all, and ask every judge."""
    inputs, labels = problem.inputs, problem.labels
    split = StratifiedKFold(3, shuffle=True, random_state=seed)
    folds = [fold for _, fold in split.split(inputs, labels)]
    classes = int(labels.max()) + 1
    models = [make().fit(inputs[fold], labels[fold]) for fold in folds]
    logits = [
        {k: _logits(model, inputs[folds[k]], classes) for k in range(3) if k != left_in}
        for left_in, model in enumerate(models)
    ]
    between, right, likelihood = [], [], []
    for left in range(3):
        first, second = (k for k in range(3) if k != left)
        pair = logits[first][left], logits[second][left]
        between.append(posterior_agreement(*pair).pa)
        for left_in, elsewhere in ((first, second), (second, first)):
            here, there = logits[left_in][left], logits[left_in][elsewhere]
            right.append((here.argmax(1) == labels[folds[left]]).mean())
            scale = best_scale(there, labels[folds[elsewhere]])
            likelihood.append(-log_loss(here * scale, labels[folds[left]]))
    model = make().fit(inputs, labels)
    copies = (_logits(model, copy, classes) for copy in problem.copies)
    tested, truth = problem.test
    return {
        "pa_folds": float(np.mean(between)),
        "pa_shifts": posterior_agreement(*copies).pa,
        "accuracy": float(np.mean(right)),
        "likelihood": float(np.mean(likelihood)),
        "error": float((model.predict(tested) != truth).mean()),
    }


def _logits(model: Any, inputs: Values, classes: int) -> Values:
    """Logarithms of probabilities; of classes that a fold has not, the least."""
    logits = np.full((len(inputs), classes), -700.0)
    known = np.maximum(model.predict_proba(inputs), 1e-300)
    logits[:, model.classes_] = np.log(known)
    return logits


def log_loss(logits: Values, labels: Integers) -> float:
    """Mean cross-entropy in nats."""
    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


def best_scale(logits: Values, labels: Integers) -> float:
    """The inverse temperature, from e^-5 to e^3, of the least cross-entropy."""
    minimum = minimize_scalar(
        lambda log: log_loss(logits * np.exp(log), labels),
        bounds=(-5.0, 3.0),
        method="bounded",
    )
    return float(np.exp(minimum.x))


# --------------------------------------------------------------------- the networks


def _networks(setting: ChoosingSetting, task: str, seed: int) -> Iterator[Row]:
    random = np.random.default_rng([seed, 0])
    if setting.dataset == "digits":
        train, test = (load_dataset("digits", split) for split in ("train", "test"))
        inputs, labels = _flat(train)
        problem = _problem(setting, inputs, labels, _flat(test), 0.15, random)
    else:
        inputs, labels = make_classification(
            2500,
            10,
            n_informative=5,
            n_redundant=0,
            n_classes=4,
            class_sep=2.0,
            flip_y=0.0,
            random_state=seed,
        )
        inputs = StandardScaler().fit(inputs[:500]).transform(inputs)
        rest = inputs[500:], labels[500:]
        problem = _problem(setting, inputs[:500], labels[:500], rest, 0.3, random)
    option, candidates = FAMILIES[task]
    starts = count(1000 * seed) if task.endswith("own starts") else repeat(seed)
    for candidate, value in candidates.items():
        options = {option: value}

        def make(options: dict[str, Any] = options) -> Any:
            return perceptron(setting.epochs, next(starts), options)

        yield {"candidate": candidate, **_judge(problem, make, seed)}


def perceptron(epochs: int, seed: int, options: dict[str, Any]) -> MLPClassifier:
    """A network with one hidden layer, but for the options, before its training."""
    usual = {
        "hidden_layer_sizes": (64,),
        "alpha": 0.0,
        "learning_rate_init": 0.005,
        "batch_size": 50,
        "max_iter": epochs,
        "tol": 0.0,
        "n_iter_no_change": epochs,
    }
    return MLPClassifier(**{**usual, **options}, random_state=seed)


def _flat(data: Dataset) -> tuple[Values, Integers]:
    return data.images.flatten(1).double().numpy(), data.labels.numpy()


# ------------------------------------------------------- where the true order is known


def matching(first: Values, second: Values) -> Integers:
    """Return which column of the second scores goes with each of the first, (N, k).

    The sum of the products of their posteriors is largest.
    """
    posteriors = [np.exp(log_softmax(side, axis=1)) for side in (first, second)]
    _, columns = linear_sum_assignment(posteriors[0].T @ posteriors[1], maximize=True)
    return np.asarray(columns)


def _between_folds(scores: Callable[[int, int], Values]) -> Row:
    """Agreement of two clusterings on the third fold, and how often they are one."""
    agreement, same = [], []
    for left in range(3):
        first, second = (scores(k, left) for k in range(3) if k != left)
        result = posterior_agreement(first, second[:, matching(first, second)])
        agreement.append(result.pa)
        same.append(1 - result.mismatch)
    return {"pa_folds": float(np.mean(agreement)), "stability": float(np.mean(same))}


def _folds_of_groups(setting: ChoosingSetting, seed: int) -> tuple[list[Values], int]:
    """Three to six round groups in the plane, in three parts; and their number."""
    random = np.random.default_rng([seed, 1])
    true = 3 + seed % 4
    centers = np.zeros((0, 2))
    while len(centers) < true:
        drawn = random.uniform(0, 13, size=2)
        if all(np.linalg.norm(centers - drawn, axis=1) > 4.5):
            centers = np.vstack([centers, drawn])
    member = random.integers(true, size=setting.count)
    points = centers[member] + random.normal(size=(setting.count, 2))
    return np.array_split(points, 3), true


def _groups(setting: ChoosingSetting, task: str, seed: int) -> Iterator[Row]:
    folds, true = _folds_of_groups(setting, seed)
    everything, mixed = np.concatenate(folds), task == "mixture"
    kind: Any = partial(KMeans, n_init=5)
    if mixed:
        kind = partial(GaussianMixture, n_init=3, reg_covar=1e-3)
    for order in ORDERS:
        parts = (*folds, everything)
        *models, fitted = (kind(order, random_state=seed).fit(part) for part in parts)

        def scores(fold: int, left: int, models: list[Any] = models) -> Values:
            if mixed:
                chances = models[fold].predict_proba(folds[left])
                return np.log(np.maximum(chances, 1e-300))
            return -(np.asarray(models[fold].transform(folds[left])) ** 2)

        row = {"candidate": order, "true": true, **_between_folds(scores)}
        if mixed:
            held = [models[i].score(folds[j]) for i, j in permutations(range(3), 2)]
            row["likelihood"] = float(np.mean(held))
            row["bic"] = -float(fitted.bic(everything))
        else:
            row["silhouette"] = float(silhouette_score(everything, fitted.labels_))
        yield row


def _polynomial(setting: ChoosingSetting, _: str, seed: int) -> Iterator[Row]:
    """Two classes in the plane, on either side of a curve of degree 2 to 4."""
    random = np.random.default_rng([seed, 2])
    true = 2 + seed % 3
    inputs = random.uniform(-1, 1, size=(4000, 2))
    # A polynomial of Chebyshev.
    side = inputs[:, 1] - np.cos(true * np.arccos(inputs[:, 0])) * 0.6
    labels = (side > 0).astype(np.int64)
    test = inputs[1000:], labels[1000:]
    problem = _problem(setting, inputs[:1000], labels[:1000], test, 0.05, random)
    for order in range(1, 8):
        make = partial(_of_degree, order)
        yield {"candidate": order, "true": true, **_judge(problem, make, seed)}


def _of_degree(degree: int) -> Any:
    return make_pipeline(
        PolynomialFeatures(degree, include_bias=False),
        StandardScaler(),
        LogisticRegression(C=100.0, max_iter=1000),
    )


_KINDS: Final = {"mixture": _groups, "clusters": _groups, "polynomial": _polynomial}
