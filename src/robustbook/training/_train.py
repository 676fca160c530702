"""Training of one classifier on one data set, or of a learner on several domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import (
    check_choice,
    check_count,
    check_labels,
    check_non_negative,
    check_positive,
)
from robustbook.datasets import Dataset
from robustbook.models import resolve_device
from robustbook.scores import accuracy
from robustbook.training._learners import Learner
from robustbook.training._loop import (
    History,
    Loop,
    Scores,
    as_floats,
    cosine,
    domain_batches,
    shuffled_batches,
)
from robustbook.training._losses import Loss, add_gaussian_noise, cross_entropy_loss

#: Scores of a pair of samples: a function of logits (n, K), shifted logits (n, K) and
#: labels (n,) that returns numbers by name. :func:`robustbook.selection.pair_scores`
#: is one.
Measure = Callable[[Tensor, Tensor, Tensor], Mapping[str, float]]

#: Images evaluated at once: few enough for the caches of a processor.
_EVALUATED: Final = 128


def train_classifier(
    model: nn.Module,
    dataset: Dataset,
    *,
    epochs: int,
    lr: float,
    seed: int,
    noise_std: float = 0.0,
    loss: Loss | Learner = cross_entropy_loss,
    batch_size: int = 64,
    checkpoint: Path | str | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> list[float]:
    """Train a classifier, and return the mean loss of each epoch, in nats.

    Adam, with a learning rate that falls to zero along half a cosine. The result
    depends on the model's initial weights, on `seed` and on the options, not on the
    state of the global generator.

    Parameters
    ----------
    model : torch.nn.Module
        The model, changed in place; in evaluation mode afterwards.
    dataset : Dataset
        Training images and labels, at least one.
    epochs : int
        Passes over the data.
    lr : float
        Learning rate at the start.
    seed : int
        Seed of the order, the noise and the random numbers of the loss.
    noise_std : float, default 0.0
        Standard deviation of Gaussian noise added to every training image,
        drawn anew each time; the result is clipped to [0, 1].
    loss : Loss or Learner, default cross_entropy_loss
        A function of model, images, labels and generator, such as
        :func:`adversarial_loss` and ``gradient_norm_loss`` make; or a learner, such
        as :func:`defense` makes, for which the data set is the only domain.
    batch_size : int, default 64
        Samples in a step.
    checkpoint, device, progress
        As for :func:`train_domains`, which raises the same exceptions.

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> from robustbook.models import build_model
    >>> data = load_dataset("digits", "train").subset(range(256))
    >>> model = build_model("linear", seed=0)
    >>> losses = train_classifier(
    ...     model, data, epochs=3, lr=0.01, seed=0, progress=False
    ... )
    >>> len(losses), losses[-1] < losses[0], model.training
    (3, True, False)
    """
    epochs = check_count("epochs", epochs)
    batch_size = check_count("batch_size", batch_size)
    lr = check_positive("lr", lr)
    noise_std = check_non_negative("noise_std", noise_std)
    if len(dataset) == 0:
        raise ValueError(f"dataset: expected at least one image, got {dataset!r}")
    target = resolve_device(device)
    model.to(target)
    noise = partial(add_gaussian_noise, std=noise_std) if noise_std > 0 else None
    loop = Loop(
        model=model,
        objective=loss,
        batches=shuffled_batches(dataset, batch_size, device=target, change=noise),
        optimizer=torch.optim.Adam(model.parameters(), lr=lr),
        rates=cosine(lr, epochs * -(-len(dataset) // batch_size)),
        epochs=epochs,
        seed=seed,
        identity={
            "batch_size": batch_size,
            "noise_std": noise_std,
            "dataset": [dataset],
        },
    )
    history = loop.run(checkpoint=checkpoint, progress=progress)
    return [row["loss"] for row in history.rows]


def train_domains(
    model: nn.Module,
    learner: Learner | Loss,
    domains: Sequence[Dataset],
    *,
    epochs: int,
    lr: float,
    seed: int,
    pairs: Mapping[str, tuple[Dataset, Dataset]] | None = None,
    tests: Mapping[str, Dataset] | None = None,
    measure: Measure | None = None,
    keep: Sequence[str] = (),
    watch: Mapping[str, Callable[[nn.Module], Tensor]] | None = None,
    optimizer: str = "adam",
    batch_size: int = 64,
    checkpoint: Path | str | None = None,
    device: str = "cpu",
    precision: str = "auto",
    progress: bool = True,
) -> History:
    """Train on several source domains, measure every epoch, and return the history.

    All criteria are recorded for every epoch, so selections by different criteria
    are compared on the same weights. On one machine the result is the same to the last
    bit, whatever the state of the global generator; on a GPU the rounding of some sums
    depends on their order.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place: it ends with the weights of the last epoch, in evaluation
        mode.
    learner : Learner or Loss
        The objective: :class:`ERM`, :class:`IRM`, :class:`LISA`; or a loss such as
        :func:`adversarial_loss`, over the images of all domains together.
    domains : sequence of Dataset
        The source domains. Images are float32 in [0, 1], or uint8, which are divided
        by 255 when they are used and take a quarter of the memory.
    epochs : int
        Passes over the largest domain; smaller ones are repeated.
    lr : float
        Learning rate, constant.
    seed : int
        Seed of the order of the samples and of the random numbers of the learner.
    pairs : mapping of str to (Dataset, Dataset), optional
        Validation pairs: row i of both must be the same sample, or the same class.
    tests : mapping of str to Dataset, optional
        Sets on which accuracy is recorded.
    measure : Measure, optional
        Scores of the pairs; by default "accuracy", the mean over the two samples.
    keep : sequence of str
        Criteria, columns of the history, whose best weights are kept.
    watch : mapping of str to callable, optional
        Values to record after each epoch: functions of the model, which is in
        evaluation mode, such as the features of some images.
    optimizer : {"adam", "sgd"}, default "adam"
        The latter with momentum 0.9.
    batch_size : int, default 64
        Samples of each domain in a step.
    checkpoint : Path or str, optional
        File to which everything is written after each epoch, and from which training
        goes on if it is there: on the same processor with as many threads, the result
        is to the last bit that of a run without interruption, or of one with so many
        epochs from the beginning. The model must have the weights with which that
        training began, or those in the file.
    device : str, default "cpu"
        Where to train; "auto" means a CUDA device if there is one.
    precision : {"auto", "float32", "bfloat16"}, default "auto"
        "bfloat16" is mixed precision, "auto" means it on a CUDA device that has it.
        Evaluation is in float32 always.
    progress : bool, default True
        Show a progress bar.

    Raises
    ------
    ValueError
        If an argument is not one of those above, or the checkpoint is damaged or of
        another training: other options, data, initial weights or code.
    FloatingPointError
        If the loss is no longer a finite number.
    OSError
        If the checkpoint cannot be written; the epochs before are in it.

    Examples
    --------
    >>> from robustbook.datasets import diagvib
    >>> from robustbook.models import build_model
    >>> from robustbook.training import IRM, train_domains
    >>> setup = diagvib.DISCRIMINABILITY
    >>> train = diagvib.draw_all(setup.training, shapes=setup.shapes, count=32)
    >>> domains = [scenes.dataset(size=16) for scenes in train]
    >>> model = build_model(
    ...     "strided-cnn", seed=0, options={"width": 4, "num_classes": 2}
    ... )
    >>> options = {"epochs": 2, "lr": 0.01, "seed": 0, "progress": False}
    >>> history = train_domains(model, IRM(), domains, **options)
    >>> [row["epoch"] for row in history.rows]
    [1, 2]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {model!r}")
    if isinstance(learner, type) or not (hasattr(learner, "loss") or callable(learner)):
        raise TypeError(f"learner: expected one such as ERM(), got {learner!r}")
    if isinstance(keep, str):
        raise TypeError(f"keep: expected a sequence of criteria, got {keep!r}")
    epochs = check_count("epochs", epochs)
    batch_size = check_count("batch_size", batch_size)
    lr = check_positive("lr", lr)
    target = resolve_device(device)
    pairs, tests = dict(pairs or {}), dict(tests or {})
    sources = _check_sets(domains, pairs, tests)
    measure = measure or mean_accuracy
    model.to(target)
    steps = -(-max(map(len, sources)) // batch_size)
    loop = Loop(
        model=model,
        objective=learner,
        batches=domain_batches(sources, batch_size, target),
        optimizer=_optimizer(optimizer, model, lr),
        rates=[lr] * (epochs * steps),
        epochs=epochs,
        seed=seed,
        identity={
            "batch_size": batch_size,
            "measure": measure,
            "domains": sources,
            "pairs": pairs,
            "tests": tests,
        },
        autocast=_is_mixed(precision, target),
        scores=_scores(pairs, tests, measure, target),
        keep=tuple(keep),
        watch=dict(watch or {}),
    )
    return loop.run(checkpoint=checkpoint, progress=progress)


def mean_accuracy(first: Tensor, second: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the mean accuracy over the two samples of a pair, as "accuracy"."""
    return {"accuracy": (accuracy(first, labels) + accuracy(second, labels)) / 2}


def _scores(
    pairs: Mapping[str, tuple[Dataset, Dataset]],
    tests: Mapping[str, Dataset],
    measure: Measure,
    device: torch.device,
) -> Scores:
    sets = [*tests.values(), *(part for pair in pairs.values() for part in pair)]
    each_once = {id(data): data for data in sets}

    def scores(model: nn.Module) -> dict[str, float]:
        logits = {key: _logits(model, data, device) for key, data in each_once.items()}
        row: dict[str, float] = {}
        for name, (first, second) in pairs.items():
            values = measure(logits[id(first)], logits[id(second)], first.labels)
            row |= {f"{name}/{key}": float(value) for key, value in values.items()}
        for name, test in tests.items():
            row[f"test/{name}"] = accuracy(logits[id(test)], test.labels)
        return row

    return scores


@torch.no_grad()
def _logits(model: nn.Module, data: Dataset, device: torch.device) -> Tensor:
    parts = torch.split(data.images, _EVALUATED)
    return torch.cat([model(as_floats(x.to(device))).float().cpu() for x in parts])


def _optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    if check_choice("optimizer", name, ("adam", "sgd")) == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _is_mixed(precision: str, device: torch.device) -> bool:
    check_choice("precision", precision, ("auto", "float32", "bfloat16"))
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"


def _check_sets(
    domains: Sequence[Dataset], pairs: Mapping[str, Any], tests: Mapping[str, Dataset]
) -> list[Dataset]:
    """Refuse data sets that would fail only after an epoch."""
    if isinstance(domains, Dataset):
        raise TypeError(f"domains: expected a sequence of data sets, got {domains}")
    sources = list(domains)
    for data in chain(sources, tests.values(), *pairs.values()):
        if not isinstance(data, Dataset):
            raise TypeError(
                "domains, pairs and tests: expected robustbook.datasets.Dataset, got "
                f"{type(data).__name__}; scenes and photographs have a method dataset()"
            )
        if data.images.dtype not in (torch.float32, torch.uint8) or not len(data):
            raise ValueError(
                "domains, pairs and tests: expected images, float32 in [0, 1] or "
                f"uint8, got {data.images.dtype} in {data}"
            )
        how: Any = {"length": len(data), "num_classes": data.num_classes}
        check_labels("labels", data.labels, **how)
    if len({domain.images.shape[1:] for domain in sources}) != 1:
        raise ValueError(
            "domains: expected at least one, with images of one shape in all of them, "
            f"got {sources}"
        )
    for name, (first, second) in pairs.items():
        if not torch.equal(first.labels, second.labels):
            raise ValueError(
                "pairs: expected two samples of the same classes in the same order "
                f"in {name!r}, got {first} and {second}"
            )
    return sources
