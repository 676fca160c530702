"""A network on a set of pairs, by every score that needs no label of the shifted set.

Also small trainings among which these scores choose: perceptrons, and networks in the
world of factors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from robustbook import label_free
from robustbook.agreement import gibbs_posterior
from robustbook.datasets import Dataset, load_dataset
from robustbook.datasets.diagvib import SELECTION_HUE, draw_all
from robustbook.models import build_model, logits_of
from robustbook.scores import accuracy
from robustbook.studies._shifted_logits import HALF
from robustbook.studies.choosing import FAMILIES, perceptron
from robustbook.studies.run import Row, significant
from robustbook.training import ERM, IRM, LISA, Learner, train_domains

LEARNERS: Final[Mapping[str, Learner]] = {"ERM": ERM(), "IRM": IRM(), "LISA": LISA()}


class Pairs(NamedTuple):
    """Logits of a labeled source, of clean and of shifted inputs, and labels."""

    source: Any
    source_labels: Any
    clean: Any
    shifted: Any
    labels: Any


def cell(pairs: Pairs, second: Any = None) -> Row:
    """Accuracy and scores of a network on pairs; `second` are another training's."""
    source = pairs.source, pairs.source_labels
    with warnings.catch_warnings():
        # Infinite temperatures and unknown classes are in the rows.
        warnings.simplefilter("ignore")
        row = label_free.score_pairs(pairs.clean, pairs.shifted, calibrated_on=source)
        q, known = (gibbs_posterior(x, row["beta"]) for x in (pairs.shifted, source[0]))
        row["disagreement_bound"] = label_free.disagreement_bound(
            q, (known, pairs.source_labels)
        )
        if second is not None:
            both = q, gibbs_posterior(second, row["beta"])
            agree = label_free.generalization_disagreement
            row["generalization_disagreement"] = agree(*both)
            row["hellinger"] = agree(*both, by="hellinger")
    row["accuracy"] = accuracy(pairs.shifted, pairs.labels)
    return {name: significant(value) for name, value in row.items()}


def network_cells(
    logits: Mapping[str, Any], second: Mapping[str, Any] | None, labels: Any
) -> Iterator[Row]:
    """Return a row for each shift of a network's stored logits.

    `labels` are those of the source and of the images that judge. Under an attack,
    "same_answers_half" is the share of equal answers after half of its steps.
    """
    for shift in logits:
        if shift not in ("source", "clean") and not shift.endswith(HALF):
            pairs = logits["source"], labels[0], logits["clean"], logits[shift]
            other = None if second is None else second[shift]
            row = {"shift": shift, **cell(Pairs(*pairs, labels[1]), other)}
            if f"{shift}{HALF}" in logits:
                before = logits[f"{shift}{HALF}"].argmax(1)
                same = (before == logits["clean"].argmax(1)).mean()
                row["same_answers_half"] = significant(same)
            yield row


def watched(
    model: nn.Module,
    learner: str,
    domains: list[Dataset],
    views: Mapping[str, Tensor],
    epochs: tuple[int, ...],
    lr: float,
    seed: int,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Train, and return the logits of some views after some of the epochs."""
    watch = {
        name: lambda model, images=images: logits_of(model, images)
        for name, images in views.items()
    }
    history = train_domains(
        model,
        LEARNERS[learner],
        domains,
        epochs=epochs[-1],
        lr=lr,
        seed=seed,
        progress=False,
        watch=watch,
    )
    for epoch in epochs:
        yield epoch, {name: kept[epoch - 1] for name, kept in history.watched.items()}


def perceptrons(seed: int, count: int, epochs: int) -> Iterator[Row]:
    """Choose width, penalty or rate for noisy digits, taught with wrong labels.

    A fifth of the labels is drawn anew. A third of the labeled inputs, with its wrong
    labels, calibrates.
    """
    random = np.random.default_rng([seed, 3])
    data = load_dataset("digits", "train")
    order = random.permutation(len(data))
    x, y = data.images.flatten(1).double().numpy()[order], data.labels.numpy()[order]
    known, plain, truth = x[:count], x[count : count + 400], y[count : count + 400]
    drawn = random.integers(10, size=count)
    given = np.where(random.random(count) < 0.2, drawn, y[:count])
    noisy = plain + 0.3 * random.normal(size=plain.shape)
    fitted, source = slice(count // 3, None), slice(count // 3)
    for task in ("width", "penalty", "learning rate"):
        option, candidates = FAMILIES[task]
        for value in candidates.values():
            model = perceptron(epochs, seed, {option: value})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(known[fitted], given[fitted])
            z = [
                np.log(np.maximum(model.predict_proba(part), 1e-300))
                for part in (known[source], plain, noisy)
            ]
            pairs = Pairs(z[0], given[source], z[1], z[2], truth)
            yield {"family": option, "candidate": str(value), **cell(pairs)}


def factor_networks(
    source: str,
    seed: int,
    count: int,
    epochs: tuple[int, ...],
    rates: tuple[float, ...],
) -> Iterator[Row]:
    """Choose learner, rate and epoch in the world of factors, trained on two hues.

    The pairs show the same digit in a training environment and in a test environment.
    """
    setup = SELECTION_HUE
    draw: dict[str, Any] = {"shapes": setup.shapes, "source": source, "seed": seed}
    drawn = draw_all(setup.training, count=count, **draw)
    scenes = draw_all(
        (setup.training[0], *setup.tests),
        count=400,
        split="validation",
        paired=True,
        **draw,
    )
    views = [scene.dataset(size=24) for scene in scenes]
    labels = views[0].labels
    images = {str(place): data.images for place, data in enumerate(views)}
    known, judged = slice(0, 200), slice(200, None)
    options = {"width": 8, "num_classes": len(setup.shapes), "norm": "group"}
    train = [scene.dataset(size=24) for scene in drawn]
    for learner, lr in product(("ERM", "IRM"), rates):
        model = build_model("strided-cnn", seed=seed, options=options)
        for epoch, z in watched(model, learner, train, images, epochs, lr, seed):
            for place in range(1, len(views)):
                pairs = Pairs(
                    z["0"][known],
                    labels[known],
                    z["0"][judged],
                    z[str(place)][judged],
                    labels[judged],
                )
                candidate = f"{learner} {lr} {epoch}"
                yield {"test": place - 1, "candidate": candidate, **cell(pairs)}
