"""The command that trains the committed models again."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from robustbook._checks.arguments import check_choice, check_count
from robustbook._store import SCHEMA, data_directory, read_json
from robustbook._store.files import check_writable
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model, logits_of, save_checkpoint
from robustbook.scores import accuracy
from robustbook.training._loop import (
    Loop,
    Scores,
    as_floats,
    shuffled_batches,
    trapezoid,
)
from robustbook.training._losses import mirror_and_shift
from robustbook.training._recipes import RECIPES, Recipe
from robustbook.training._train import train_classifier

#: The data sets of recipes whose name differs.
_DATASETS: Final = {"cifar10-adversarial": "cifar10", "cifar10-held-out": "cifar10"}

#: Splits on which accuracy is measured instead of the test split.
_TEST_SPLITS: Final = {"cifar10": "test1000"}

_REGISTRY: Final = "registry.json"

#: Images whose patches set whitening filters, and the least variance along one.
_WHITENED: Final = 5000
_SMALLEST_VARIANCE: Final = 5e-5

#: Held-out images on which a long training is watched after each epoch.
_WATCHED: Final = 200


def retrain(
    name: str,
    *,
    output: Path | None = None,
    models: Sequence[str] | None = None,
    num_seeds: int | None = None,
    epochs: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train the checkpoints of a key of :data:`RECIPES` and write their registry.

    Entries of other models are kept. No file is replaced before the last model is
    trained. Stopped, the same call goes on from hidden files in the folder.
    """
    if num_seeds is not None:
        check_count("num_seeds", num_seeds)
    recipes = _chosen(name, models)
    folder = data_directory() / "checkpoints" if output is None else Path(output)
    check_writable(folder, what="output", remedy="name another one")
    dataset = _DATASETS.get(name, name)
    entries = _other_entries(folder, dataset, recipes)
    command = f"python -m robustbook.training {name}"
    for option, value in (("seeds", num_seeds), ("epochs", epochs)):
        command += "" if value is None else f" --{option} {value}"
    train = load_dataset(dataset, "train")
    test = load_dataset(dataset, _TEST_SPLITS.get(dataset, "test"))
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    trained: dict[str, tuple[nn.Module, dict[str, Any]]] = {}
    for recipe in recipes:
        for seed in range(recipe.seeds if num_seeds is None else num_seeds):
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
            if recipe.long is not None:
                _round(model, recipe.long.stored_as)
            test_accuracy = accuracy(logits_of(model, test.images), test.labels)
            description = {
                "model": recipe.model, "arch": recipe.arch,
                "options": dict(recipe.options), "dataset": dataset, "seed": seed,
                "recipe": recipe.described(), "command": command,
                "train_loss": round(losses[-1], 6),
                "test_accuracy": round(test_accuracy, 6), "versions": versions,
            }  # fmt: skip
            trained[run] = model, description
            if progress:
                print(f"{run}: test accuracy {test_accuracy:.4f}")
    content = _written(folder, trained, entries)
    for run in trained:
        _resume_file(folder, run).unlink(missing_ok=True)
    return content


def _chosen(name: str, models: Sequence[str] | None) -> list[Recipe]:
    check_choice("name", name, RECIPES)
    known = [recipe.model for recipe in RECIPES[name]]
    chosen = known if models is None else list(models)
    if not chosen or not set(chosen) <= set(known):
        raise ValueError(f"models: expected some of {', '.join(known)}; got {chosen}")
    return [recipe for recipe in RECIPES[name] if recipe.model in chosen]


def _other_entries(
    folder: Path, dataset: str, recipes: list[Recipe]
) -> dict[str, dict[str, Any]]:
    """Entries of the registry for other data sets and models."""
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


def _resume_file(folder: Path, run: str) -> Path:
    return folder / f".{run}.resume"


def _written(
    folder: Path,
    trained: dict[str, tuple[nn.Module, dict[str, Any]]],
    entries: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Write the models and the registry, which is moved to its place last."""
    # In the same folder: an interrupted writing must not leave new weights
    # under old sums.
    with tempfile.TemporaryDirectory(prefix=".training-", dir=folder) as temporary:
        paths = []
        for run, (model, description) in trained.items():
            path = Path(temporary, f"{run}.safetensors")
            long = description["recipe"].get("long") or {}
            stored_as = long.get("stored_as", "float32")
            sha256 = save_checkpoint(
                model, path, description=description, dtype=stored_as
            )
            written = {"sha256": sha256, "bytes": path.stat().st_size}
            entries[run] = {"file": path.name, **written, **description}
            paths.append(path)
        content = {"schema": SCHEMA, "checkpoints": dict(sorted(entries.items()))}
        paths.append(Path(temporary, _REGISTRY))
        paths[-1].write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        for path in paths:
            path.replace(folder / path.name)
    return content


def train_recipe(
    recipe: Recipe,
    model: nn.Module,
    data: Dataset,
    *,
    seed: int,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> list[float]:
    """Train a model in place as a recipe says; return the mean loss of each epoch."""
    if recipe.long is not None:
        loop = _long_loop(recipe, model, data, seed)
        history = loop.run(checkpoint=checkpoint, progress=progress)
        return [row["loss"] for row in history.rows]
    return train_classifier(
        model, data, epochs=recipe.epochs, lr=recipe.lr, seed=seed,
        noise_std=recipe.noise_std, loss=recipe.loss, batch_size=recipe.batch_size,
        checkpoint=checkpoint, progress=progress,
    )  # fmt: skip


def _long_loop(recipe: Recipe, model: nn.Module, data: Dataset, seed: int) -> Loop:
    options = recipe.long
    assert options is not None
    size = len(data) - options.held_out
    if size < 1:
        raise ValueError(
            f"dataset: expected more than the {options.held_out} images that are "
            f"held out, got {len(data)}"
        )
    source, held_out = data.subset(range(size)), data.subset(range(size, len(data)))
    if options.whitened:
        _whiten(model.get_submodule("whiten"), source.images[:_WHITENED])
    change = partial(_augmented, padding=options.padding)
    batches = -(-size // recipe.batch_size)
    steps = recipe.epochs * batches
    return Loop(
        model=model,
        objective=recipe.loss,
        batches=shuffled_batches(source, recipe.batch_size, change=change),
        optimizer=torch.optim.SGD(
            model.parameters(), lr=recipe.lr, momentum=options.momentum,
            weight_decay=options.weight_decay, nesterov=True,
        ),
        rates=trapezoid(
            recipe.lr, steps, rise=max(1, round(options.warm_up * batches)),
            fall=max(1, round(options.cool_down * steps)),
        ),
        epochs=recipe.epochs,
        seed=seed,
        # How many epochs may change, as long as the rates do not.
        identity={"recipe": repr(replace(recipe, epochs=0)), "dataset": [data]},
        autocast=True,
        averaging=options.averaging,
        scores=_robustness(held_out, recipe.adversarial_eps) if held_out else None,
    )  # fmt: skip


def _augmented(images: Tensor, *, padding: int, generator: torch.Generator) -> Tensor:
    if padding:
        images = mirror_and_shift(images, padding, generator=generator)
    return images.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def _whiten(convolution: nn.Module, images: Tensor) -> None:
    """Set the filters to the principal directions of patches, with both signs.

    Each is divided by the standard deviation along it, and stays as it is in training.
    """
    assert isinstance(convolution, nn.Conv2d)
    shape = convolution.weight.shape
    patches = functional.unfold(as_floats(images), shape[-1]).transpose(1, 2)
    patches = patches.flatten(0, 1).double()
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((patches - mean).T))
    # Signs of eigenvectors are the library's choice: their largest entry is positive.
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    filters = (vectors * largest.sign() / (values + _SMALLEST_VARIANCE).sqrt()).T
    both = torch.cat([filters, -filters])
    convolution.weight.copy_(both.reshape(shape))
    convolution.weight.requires_grad_(False)
    assert convolution.bias is not None
    convolution.bias.copy_(-both @ mean)


def _round(model: nn.Module, stored_as: str) -> None:
    """Round the weights as the file does, so that accuracy is that of the file."""
    dtype = getattr(torch, stored_as)
    for value in model.state_dict().values():
        if value.is_floating_point():
            value.copy_(value.to(dtype))


def _robustness(data: Dataset, eps: float) -> Scores:
    """Accuracy, and that under PGD of ten steps if `eps` is positive."""
    watched = data.subset(range(min(_WATCHED, len(data))))

    def scores(model: nn.Module) -> dict[str, float]:
        from robustbook.attacks import pgd

        images, labels = watched.images, watched.labels
        row = {"held out/accuracy": accuracy(logits_of(model, images), labels)}
        if eps > 0:
            attacked = pgd(model, images, labels, eps=eps, steps=10, progress=False)
            row["held out/robust"] = attacked.robust_accuracy()
        return row

    return scores
