"""Classifiers: small architectures, and the project's own checkpoints.

The checkpoints live in ``data/checkpoints`` as safetensors files beside
``registry.json``, which holds the sha256 of each, the command that trained it
and its test accuracy. All models take images with pixels in [0, 1] and return
logits; normalization, where there is any, is a layer of the model.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store import (
    DataUnavailableError,
    data_directory,
    read_json,
    sha256_of,
)
from robustbook._validation import check_count

__all__ = [
    "LinearClassifier",
    "SmallCNN",
    "build_model",
    "checkpoint_entry",
    "list_models",
    "load_model",
    "logits_of",
    "register_architecture",
    "resolve_device",
    "training_runs",
]

_METADATA_KEY: Final = "robustbook"


class LinearClassifier(nn.Module):
    """Logistic regression on the pixels.

    Parameters
    ----------
    channels, size : int
        Channels and side of the images.
    num_classes : int
        The number of classes K.

    Examples
    --------
    >>> LinearClassifier()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, *, channels: int = 1, size: int = 8, num_classes: int = 10
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(channels * size * size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        logits: Tensor = self.linear(images.flatten(1))
        return logits


class SmallCNN(nn.Module):
    """Two 3x3 convolutions with ReLU, a 2x2 maximum, one linear layer.

    Parameters
    ----------
    channels, size : int
        Channels and side of the images; the side must be even.
    width : int
        Channels after the first convolution; twice as many after the second.
    num_classes : int
        The number of classes K.

    Examples
    --------
    >>> SmallCNN()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int = 1,
        size: int = 8,
        width: int = 16,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"size: expected an even number, got {size}")
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.linear = nn.Linear(2 * width * (size // 2) ** 2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        hidden = torch.relu(self.conv1(images))
        hidden = self.pool(torch.relu(self.conv2(hidden)))
        logits: Tensor = self.linear(hidden.flatten(1))
        return logits


_ARCHITECTURES: Final[dict[str, Callable[..., nn.Module]]] = {
    "linear": LinearClassifier,
    "small-cnn": SmallCNN,
}


def register_architecture(name: str, factory: Callable[..., nn.Module]) -> None:
    """Make an architecture known to :func:`build_model` and to checkpoints.

    Parameters
    ----------
    name : str
        A new name.
    factory : callable
        Returns the module; takes its options as keywords.

    Raises
    ------
    ValueError
        If the name is taken by another factory.

    Examples
    --------
    >>> register_architecture("linear", LinearClassifier)
    """
    if _ARCHITECTURES.get(name, factory) is not factory:
        raise ValueError(f"name: an architecture {name!r} is registered already")
    _ARCHITECTURES[name] = factory


def build_model(
    arch: str, *, seed: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build an untrained model whose initial weights depend on the seed only.

    Parameters
    ----------
    arch : str
        Name of a registered architecture: "linear", "small-cnn".
    seed : int
        Seed of the initial weights. The global generator is left as it was.
    options : mapping, optional
        Keyword options of the architecture.

    Returns
    -------
    torch.nn.Module
        The model, in training mode.

    Raises
    ------
    ValueError
        If there is no such architecture.

    Examples
    --------
    >>> model = build_model("small-cnn", seed=0, options={"width": 4})
    >>> sum(p.numel() for p in model.parameters())
    1626
    """
    if arch not in _ARCHITECTURES:
        raise ValueError(
            f"arch: expected one of {', '.join(_ARCHITECTURES)}; got {arch!r}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _ARCHITECTURES[arch](**(options or {}))


# ----------------------------------------------------------------- checkpoints


_ENTRY_KEYS: Final = frozenset(
    ("model", "file", "sha256", "arch", "options", "seed", "command")
)


def _checkpoints(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of a registry, which the caller must not change."""
    path = folder / "registry.json"
    modified = path.stat().st_mtime_ns if path.is_file() else 0
    return _read_checkpoints(path, modified)


@lru_cache(maxsize=8)
def _read_checkpoints(path: Path, modified: int) -> dict[str, dict[str, Any]]:
    remedy = (
        "restore it from the repository, or retrain with "
        "`python -m robustbook.training digits`"
    )
    entries = read_json(path, remedy=remedy).get("checkpoints")
    if not isinstance(entries, dict):
        raise DataUnavailableError(f"{path}: expected a table of checkpoints; {remedy}")
    for run, entry in entries.items():
        missing = _ENTRY_KEYS - (entry.keys() if isinstance(entry, dict) else set())
        if missing:
            raise DataUnavailableError(
                f"{path}: {run} lacks {', '.join(sorted(missing))}; {remedy}"
            )
    return entries


def _folder(directory: Path | str | None) -> Path:
    if directory is None:
        return data_directory() / "checkpoints"
    return Path(directory)


def list_models(*, directory: Path | str | None = None) -> list[str]:
    """Return the names of all checkpoints.

    Parameters
    ----------
    directory : Path or str, optional
        A folder of checkpoints with its registry.json; the project's by default.

    Returns
    -------
    list of str
        Names with their training seed, such as "digits-cnn-s0".

    Examples
    --------
    >>> list_models()[:2]
    ['digits-cnn-noise-s0', 'digits-cnn-noise-s1']
    """
    return sorted(_checkpoints(_folder(directory)))


def training_runs(name: str, *, directory: Path | str | None = None) -> list[str]:
    """Return the checkpoints of one model that differ in the training seed only.

    Parameters
    ----------
    name : str
        A model without a seed: "digits-linear", "digits-cnn", "digits-cnn-noise".
    directory : Path or str, optional
        A folder of checkpoints with its registry.json; the project's by default.

    Returns
    -------
    list of str
        Their names, by seed.

    Raises
    ------
    ValueError
        If there is no such model.

    Examples
    --------
    >>> training_runs("digits-cnn")[:3]
    ['digits-cnn-s0', 'digits-cnn-s1', 'digits-cnn-s2']
    """
    checkpoints = _checkpoints(_folder(directory))
    runs = [run for run, entry in checkpoints.items() if entry["model"] == name]
    if not runs:
        models = sorted({entry["model"] for entry in checkpoints.values()})
        raise ValueError(f"name: expected one of {', '.join(models)}; got {name!r}")
    return sorted(runs, key=lambda run: int(checkpoints[run]["seed"]))


def checkpoint_entry(
    name: str, *, directory: Path | str | None = None
) -> dict[str, Any]:
    """Return what the registry says of a checkpoint.

    Parameters
    ----------
    name : str
        A checkpoint ("digits-cnn-s3"), or a model ("digits-cnn"), which stands
        for its first training seed.
    directory : Path or str, optional
        A folder of checkpoints with its registry.json; the project's by default.

    Returns
    -------
    dict
        Keys name, model, file, sha256, bytes, arch, options, dataset, seed,
        recipe, command, test_accuracy, versions.

    Raises
    ------
    ValueError
        If there is no such checkpoint.

    Examples
    --------
    >>> checkpoint_entry("digits-cnn")["name"]
    'digits-cnn-s0'
    """
    folder = _folder(directory)
    checkpoints = _checkpoints(folder)
    run = name
    if name not in checkpoints:
        models = sorted({entry["model"] for entry in checkpoints.values()})
        if name not in models:
            raise ValueError(
                f"name: expected a model ({', '.join(models)}) or one of its "
                f"training seeds, such as {models[0]}-s1; got {name!r}"
            )
        run = training_runs(name, directory=directory)[0]
    return {"name": run, **copy.deepcopy(checkpoints[run])}


def load_model(
    name: str, *, device: str = "cpu", directory: Path | str | None = None
) -> nn.Module:
    """Load a trained model, ready to be evaluated.

    Parameters
    ----------
    name : str
        A checkpoint ("digits-cnn-s3"), or a model ("digits-linear",
        "digits-cnn", "digits-cnn-noise"), which stands for its first training
        seed.
    device : str, default "cpu"
        Where to put it; "auto" means a CUDA device if there is one.
    directory : Path or str, optional
        A folder of checkpoints with its registry.json; the project's by default.

    Returns
    -------
    torch.nn.Module
        The model in evaluation mode, its parameters frozen. It takes images
        with pixels in [0, 1] and returns logits.

    Raises
    ------
    ValueError
        If there is no such model.
    DataUnavailableError
        If the file is missing or its sha256 is not that of the registry.

    Examples
    --------
    >>> model = load_model("digits-cnn")
    >>> model.training, model(torch.zeros(1, 1, 8, 8)).shape
    (False, torch.Size([1, 10]))
    """
    from safetensors.torch import load_file

    entry = checkpoint_entry(name, directory=directory)
    path = _folder(directory) / entry["file"]
    if not path.is_file():
        raise DataUnavailableError(
            f"{entry['name']}: {path} is missing; restore it from the repository, "
            f"or retrain with `{entry['command']}`"
        )
    actual = sha256_of(path)
    if actual != entry["sha256"]:
        raise DataUnavailableError(
            f"{entry['name']}: {path}: expected sha256 {entry['sha256'][:12]}..., "
            f"got {actual[:12]}...; restore the file from the repository"
        )
    model = build_model(entry["arch"], seed=0, options=entry["options"])
    model.load_state_dict(load_file(path))
    return model.requires_grad_(False).eval().to(resolve_device(device))


def save_checkpoint(
    model: nn.Module, path: Path, *, description: Mapping[str, Any]
) -> str:
    """Write a model to a safetensors file; the same model gives the same bytes.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    path : Path
        Where to write.
    description : mapping
        What to store beside the weights; must be JSON.

    Returns
    -------
    str
        The sha256 of the file.
    """
    from safetensors.torch import save_file

    state = {
        key: value.detach().cpu().contiguous()
        for key, value in model.state_dict().items()
    }
    # One metadata key: safetensors writes several in no fixed order.
    metadata = {_METADATA_KEY: json.dumps(dict(description), sort_keys=True)}
    save_file(state, path, metadata=metadata)
    return sha256_of(path)


def checkpoint_metadata(path: Path) -> dict[str, Any]:
    """Read what :func:`save_checkpoint` stored beside the weights.

    Parameters
    ----------
    path : Path
        A file that :func:`save_checkpoint` wrote.

    Returns
    -------
    dict
        The description.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        content: dict[str, Any] = json.loads(file.metadata()[_METADATA_KEY])
    return content


# ------------------------------------------------------------------ evaluation


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into a CUDA device if there is one, else the CPU.

    Parameters
    ----------
    device : str
        "auto", or anything that ``torch.device`` takes.

    Returns
    -------
    torch.device
        The device.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


@torch.no_grad()
def logits_of(model: nn.Module, images: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Evaluate a model on images, batch by batch.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier. It is evaluated in evaluation mode, and each of its modules
        is left in the mode in which it was.
    images : Tensor, shape (n, C, H, W)
        Images with pixels in [0, 1], on any device.
    batch_size : int, default 1024
        Images evaluated at once.

    Returns
    -------
    Tensor, shape (n, K)
        Logits, on the CPU.

    Raises
    ------
    ValueError
        If there is no image or `batch_size` is less than 1.

    Examples
    --------
    >>> logits_of(load_model("digits-linear"), torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """
    check_count("batch_size", batch_size)
    if len(images) == 0:
        raise ValueError(
            f"images: expected at least one image, got shape {tuple(images.shape)}"
        )
    parameter = next(model.parameters(), None)
    device = images.device if parameter is None else parameter.device
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        return torch.cat(
            [
                model(images[start : start + batch_size].to(device)).cpu()
                for start in range(0, len(images), batch_size)
            ]
        )
    finally:
        for module, training in modes:
            module.training = training
