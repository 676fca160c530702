"""Recipes of the committed models, and the command that trains them."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import check_count
from robustbook._store import SCHEMA, data_directory, read_json
from robustbook._store.files import check_writable
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model, logits_of, save_checkpoint
from robustbook.scores import accuracy
from robustbook.training._loop import Loop, Scores, shuffled_batches
from robustbook.training._losses import (
    Loss,
    adversarial_loss,
    cross_entropy_loss,
    gradient_norm_loss,
    mirror_and_shift,
)
from robustbook.training._resume import data_sums
from robustbook.training._schedules import trapezoid
from robustbook.training._train import train_classifier

__all__ = ["GRADIENT_PENALTIES", "RECIPES", "LongTraining", "Recipe", "retrain"]
__all__ += ["train_recipe"]


@dataclass(frozen=True)
class LongTraining:
    """What a training of hours has beyond a plain one; it is in bfloat16, too.

    Attributes
    ----------
    step_size : float
        Step of the attack, in [0, 1] pixel units.
    momentum, weight_decay : float
        Of stochastic gradient descent, with Nesterov's momentum.
    warm_up : float
        Epochs in which the learning rate rises to its peak.
    cool_down : float
        Share of all epochs, at the end, in which it falls to zero.
    averaging : float
        What the averaged weights keep of themselves in a step.
    padding : int
        Pixels by which an image is shifted at most; 0 for none, and no mirroring.
    held_out : int
        Images at the end of the training set that are not trained on; accuracy and
        robust accuracy on them are shown after every epoch.
    """

    step_size: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warm_up: float = 1.0
    cool_down: float = 0.5
    averaging: float = 0.998
    padding: int = 4
    held_out: int = 200


@dataclass(frozen=True)
class Recipe:
    """How a committed model is trained.

    Attributes
    ----------
    model : str
        Name of the model.
    arch : str
        Its architecture.
    epochs : int
        Passes over the training set.
    lr : float
        Peak learning rate of Adam.
    noise_std : float
        Standard deviation of the noise that is added to the training images.
    adversarial_eps : float
        Size of the ℓ∞ perturbations of adversarial training, in [0, 1] pixel
        units; 0 for plain training.
    adversarial_steps : int
        Gradient steps to each of them.
    gradient_penalty : float
        Weight of the squared norm of the cross-entropy's gradient by the pixels;
        0 for none.
    batch_size : int
        Samples in a step.
    options : tuple of (str, value)
        Options of the architecture.
    seeds : int
        Training seeds 0, 1, ... of the committed models: as many.
    long : LongTraining, optional
        What a training of hours has beyond a plain one.
    """

    model: str
    arch: str
    epochs: int
    lr: float
    noise_std: float = 0.0
    adversarial_eps: float = 0.0
    adversarial_steps: int = 0
    gradient_penalty: float = 0.0
    batch_size: int = 64
    options: tuple[tuple[str, Any], ...] = ()
    seeds: int = 2
    long: LongTraining | None = None

    @property
    def loss(self) -> Loss:
        """What training minimizes."""
        if self.adversarial_eps > 0:
            eps, steps = self.adversarial_eps, self.adversarial_steps
            step = None if self.long is None else self.long.step_size
            return adversarial_loss(eps=eps, steps=steps, step_size=step)
        if self.gradient_penalty > 0:
            return gradient_norm_loss(weight=self.gradient_penalty)
        return cross_entropy_loss

    def described(self) -> dict[str, Any]:
        """Fields for a checkpoint; those of a procedure that is not used are left out.

        So a new procedure does not change the files of models that do without it.
        """
        fields = asdict(self)
        if self.adversarial_eps == 0:
            del fields["adversarial_eps"], fields["adversarial_steps"]
        if self.gradient_penalty == 0:
            del fields["gradient_penalty"]
        if self.batch_size == 64:
            del fields["batch_size"]
        if self.long is None:
            del fields["long"]
        del fields["options"]  # a field of the checkpoint itself
        del fields["seeds"]
        return fields


def _convolutions(channels: int, size: int) -> tuple[tuple[str, Any], ...]:
    """Options of a small network: three convolutions of stride 2, one linear layer."""
    layers = [[16, 4, 2, 1], [32, 4, 2, 1], [64, 4, 2, 1]]
    return (
        ("channels", channels),
        ("size", size),
        ("convolutions", layers),
        ("linear", [10]),
    )


#: Weights of the gradient-norm penalty: those of the average-case paper, and larger.
GRADIENT_PENALTIES: Final = {
    "grad1e-4": 1e-4,
    "grad1e-3": 1e-3,
    "grad1e-2": 1e-2,
    "grad1e-1": 1e-1,
    "grad1": 1.0,
}


def _family(plain: Recipe, *, twice: Sequence[str] | None = None) -> tuple[Recipe, ...]:
    """The same model without and with each gradient-norm penalty.

    ``twice`` names the suffixes with the plain model's number of seeds; the others
    are trained once. All have that number by default.
    """
    return plain, *(
        replace(
            plain,
            model=f"{plain.model}-{suffix}",
            gradient_penalty=weight,
            seeds=plain.seeds if twice is None or suffix in twice else 1,
        )
        for suffix, weight in GRADIENT_PENALTIES.items()
    )


_DIGITS: Final = Recipe("digits-cnn", "small-cnn", epochs=40, lr=0.003, seeds=5)
_GRAY: Final = Recipe(
    "mnist-cnn",
    "conv-net",
    epochs=3,
    lr=0.003,
    batch_size=128,
    options=_convolutions(1, 28),
)

#: What ``python -m robustbook.training NAME`` trains.
RECIPES: Final[dict[str, tuple[Recipe, ...]]] = {
    "digits": (
        Recipe("digits-linear", "linear", epochs=60, lr=0.01, seeds=5),
        _DIGITS,
        replace(_DIGITS, model="digits-cnn-noise", noise_std=0.3),
        replace(
            _DIGITS,
            model="digits-cnn-adv",
            adversarial_eps=0.15,
            adversarial_steps=10,
        ),
        *_family(_DIGITS)[1:],
    ),
    "mnist": _family(_GRAY),
    "fashion-mnist": _family(
        replace(_GRAY, model="fashion-mnist-cnn"), twice=["grad1e-1"]
    ),
    "cifar10": _family(
        Recipe(
            "cifar10-cnn",
            "conv-net",
            epochs=6,
            lr=0.003,
            batch_size=128,
            options=_convolutions(3, 32),
        )
    ),
    "cifar10-adversarial": (
        Recipe(
            "cifar10-preact-adv",
            "preact-resnet",
            epochs=32,
            lr=0.1,
            adversarial_eps=10 / 255,
            adversarial_steps=2,
            batch_size=128,
            options=(("widths", [48, 96, 128]), ("blocks", [1, 1, 1])),
            long=LongTraining(step_size=7 / 255),
            seeds=1,
        ),
    ),
}

#: Data sets of recipes with another name.
_DATASETS: Final = {"cifar10-adversarial": "cifar10"}

#: Where accuracy is measured, if not on the whole test part: what all loaders have.
_TEST_SPLITS: Final = {"cifar10": "test1000"}


def train_recipe(
    recipe: Recipe,
    model: nn.Module,
    dataset: Dataset,
    *,
    seed: int,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> list[float]:
    """Train a model in place as a recipe says; return the mean loss of each epoch.

    It goes on from `checkpoint`. Parameters and errors are those of
    :func:`train_classifier`; there must be more images than are held out.
    """
    options = recipe.long
    if options is None:
        return train_classifier(
            model,
            dataset,
            epochs=recipe.epochs,
            lr=recipe.lr,
            seed=seed,
            noise_std=recipe.noise_std,
            loss=recipe.loss,
            batch_size=recipe.batch_size,
            checkpoint=checkpoint,
            progress=progress,
        )
    size = len(dataset) - options.held_out
    if size < 1:
        raise ValueError(
            f"dataset: expected more than the {options.held_out} images that are "
            f"held out, got {len(dataset)}"
        )
    device = torch.device("cpu")
    batches = -(-size // recipe.batch_size)
    steps = recipe.epochs * batches
    held_out = dataset.subset(range(size, len(dataset)))
    loop = Loop(
        model=model,
        objective=recipe.loss,
        batches=shuffled_batches(
            dataset.subset(range(size)),
            recipe.batch_size,
            device,
            partial(_augmented, padding=options.padding),
        ),
        optimizer=torch.optim.SGD(
            model.parameters(),
            lr=recipe.lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=True,
        ),
        rates=trapezoid(
            recipe.lr,
            steps,
            rise=max(1, round(options.warm_up * batches)),
            fall=max(1, round(options.cool_down * steps)),
        ),
        epochs=recipe.epochs,
        seed=seed,
        device=device,
        identity=lambda: {
            "recipe": {k: v for k, v in recipe.described().items() if k != "epochs"},
            "dataset": data_sums([dataset]),
        },
        autocast=True,
        averaging=options.averaging,
        scores=_robustness(held_out, recipe.adversarial_eps) if held_out else None,
    )
    history = loop.run(checkpoint=checkpoint, progress=progress)
    return [row["loss"] for row in history.rows]


def _augmented(images: Tensor, *, padding: int, generator: torch.Generator) -> Tensor:
    if padding:
        images = mirror_and_shift(images, padding, generator=generator)
    return images.contiguous(memory_format=torch.channels_last)


def _robustness(data: Dataset, eps: float) -> Scores:
    """Accuracy without and with an attack by PGD of ten steps."""

    def scores(model: nn.Module) -> tuple[dict[str, float], dict[str, float]]:
        from robustbook.attacks import pgd

        images, labels = data.images, data.labels
        attacked = pgd(model, images, labels, eps=eps, steps=10, progress=False)
        return {
            "held out/accuracy": accuracy(logits_of(model, images), labels),
            "held out/robust": attacked.robust_accuracy(),
        }, {}

    return scores


# --------------------------------------------------------------------- command


def retrain(
    name: str,
    *,
    output: Path | None = None,
    models: Sequence[str] | None = None,
    num_seeds: int | None = None,
    epochs: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train the checkpoints of a data set and write them with their registry.

    Nothing is replaced before the last one is trained. When it is stopped, the same
    call goes on after the last full epoch, from hidden files in the folder.

    Parameters
    ----------
    name : str
        A key of :data:`RECIPES`.
    output : Path, optional
        Folder to write to; the project's ``data/checkpoints`` by default.
    models : sequence of str, optional
        Models to train, without their seeds; the others are left as they are. All
        by default.
    num_seeds : int, optional
        Training seeds 0, 1, ... for each model; by default those of its recipe:
        five for digits, one or two for the larger data sets.
    epochs : int, optional
        Fewer epochs than the recipes say, for a trial.
    progress : bool, default True
        Show a progress bar and one line for each checkpoint.

    Returns
    -------
    dict
        The registry that was written. Entries of other data sets, and of models
        that were not to be trained, are kept.

    Raises
    ------
    ValueError
        If there are no recipes of that name, no such model among them, `num_seeds`
        is less than 1, or a hidden file is of another training.
    OSError
        If nothing can be written to the folder.
    """
    if num_seeds is not None:
        check_count("num_seeds", num_seeds)
    recipes = _chosen(name, models)
    folder = data_directory() / "checkpoints" if output is None else Path(output)
    check_writable(folder, what="output", remedy="name another one")
    dataset = _DATASETS.get(name, name)
    entries = _other_entries(folder, dataset, recipes)
    train = load_dataset(dataset, "train")
    test = load_dataset(dataset, _TEST_SPLITS.get(dataset, "test"))
    common = {
        "dataset": dataset,
        "command": _command(name, num_seeds, epochs),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    # Beside what they replace: an interrupted writing must not leave new weights
    # under old sums.
    with tempfile.TemporaryDirectory(prefix=".training-", dir=folder) as temporary:
        scratch = Path(temporary)
        for recipe, seed in _runs(recipes, num_seeds):
            run = f"{recipe.model}-s{seed}"
            model = build_model(recipe.arch, seed=seed, options=dict(recipe.options))
            losses = train_recipe(
                recipe if epochs is None else replace(recipe, epochs=epochs),
                model,
                train,
                seed=seed,
                checkpoint=_resume_file(folder, run),
                progress=progress,
            )
            measured = accuracy(logits_of(model, test.images), test.labels)
            description = {
                "model": recipe.model,
                "arch": recipe.arch,
                "options": dict(recipe.options),
                "seed": seed,
                "recipe": recipe.described(),
                "train_loss": round(losses[-1], 6),
                "test_accuracy": round(measured, 6),
                **common,
            }
            entries[run] = _saved(model, scratch / f"{run}.safetensors", description)
            if progress:
                print(f"{run}: test accuracy {measured:.4f}", flush=True)
        content = {"schema": SCHEMA, "checkpoints": dict(sorted(entries.items()))}
        (scratch / _REGISTRY).write_text(
            json.dumps(content, indent=1) + "\n", encoding="utf-8"
        )
        for path in sorted(scratch.iterdir(), key=lambda path: path.name == _REGISTRY):
            path.replace(folder / path.name)
    for recipe, seed in _runs(recipes, num_seeds):
        _resume_file(folder, f"{recipe.model}-s{seed}").unlink(missing_ok=True)
    return content


_REGISTRY: Final = "registry.json"


def _chosen(name: str, models: Sequence[str] | None) -> list[Recipe]:
    """The recipes to train."""
    if name not in RECIPES:
        raise ValueError(f"name: expected one of {', '.join(RECIPES)}; got {name!r}")
    known = [recipe.model for recipe in RECIPES[name]]
    chosen = known if models is None else list(models)
    if not chosen or not set(chosen) <= set(known):
        raise ValueError(f"models: expected some of {', '.join(known)}; got {chosen}")
    return [recipe for recipe in RECIPES[name] if recipe.model in chosen]


def _runs(recipes: list[Recipe], num_seeds: int | None) -> list[tuple[Recipe, int]]:
    """What is trained, one after the other."""
    return [
        (recipe, seed)
        for recipe in recipes
        for seed in range(recipe.seeds if num_seeds is None else num_seeds)
    ]


def _other_entries(
    folder: Path, dataset: str, recipes: list[Recipe]
) -> dict[str, dict[str, Any]]:
    """What the registry has of other data sets and models."""
    path = folder / _REGISTRY
    if not path.is_file():
        return {}
    present = read_json(path, remedy="delete it, and all are trained anew")
    trained = {(dataset, recipe.model) for recipe in recipes}
    return {
        run: entry
        for run, entry in present.get("checkpoints", {}).items()
        if (entry["dataset"], entry["model"]) not in trained
    }


def _command(name: str, num_seeds: int | None, epochs: int | None) -> str:
    words = f"python -m robustbook.training {name}"
    if num_seeds is not None:
        words += f" --seeds {num_seeds}"
    return words if epochs is None else f"{words} --epochs {epochs}"


def _resume_file(folder: Path, run: str) -> Path:
    return folder / f".{run}.resume"


def _saved(model: nn.Module, path: Path, description: dict[str, Any]) -> dict[str, Any]:
    """Write a checkpoint, and return its entry of the registry."""
    sha256 = save_checkpoint(model, path, description=description)
    size = path.stat().st_size
    return {"file": path.name, "sha256": sha256, "bytes": size, **description}
