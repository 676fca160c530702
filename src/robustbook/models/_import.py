"""A model by import path: what a reader brings along."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from torch import nn
from torch.nn.parameter import UninitializedParameter

from robustbook._compat import mend_torchvision

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_import_path(name: str) -> bool:
    """Whether a model's name is meant as "package.module:attribute"."""
    return ":" in name


def import_model(name: str) -> nn.Module:
    """Import a model, as "package.module:attribute" names it; see `load_model`."""
    if not _PATH.fullmatch(name):
        _refuse(
            name,
            "expected package.module:attribute, Python names with dots in between, "
            "such as mypackage.models:network",
        )
    where, _, attribute = name.partition(":")
    model = _as_module(name, attribute, _attribute(name, _module(name, where)))
    if any(isinstance(one, UninitializedParameter) for one in model.parameters()):
        _refuse(
            name,
            "its weights are not there yet (nn.LazyLinear and the like); show it one "
            "image where it is made",
        )
    return model


def _module(name: str, where: str) -> Any:
    # Before a stranger's file imports it; what else is wrong with it is said there.
    with suppress(Exception):
        mend_torchvision()
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if where == missing or where.startswith(f"{missing}."):
            _refuse(
                name,
                f"no module {missing} found; install it, or run Python where it "
                f"lies: the folder of {missing.split('.')[0]}.py or of the package",
                error,
            )
        _refuse(
            name, f"{where} imports {missing}, which is not installed; install it",
            error,
        )  # fmt: skip
    except SystemExit as error:
        _refuse(
            name,
            f"importing {where} ends the program ({_in_words(error)}); put what it "
            'does as a program under if __name__ == "__main__"',
            error,
        )
    except Exception as error:
        _refuse(name, f"importing {where} raises {_in_words(error)}", error)


def _attribute(name: str, module: Any) -> Any:
    value, place = module, module.__name__
    for part in name.partition(":")[2].split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            names = getattr(value, "__dict__", {})
            public = sorted(key for key in names if not key.startswith("_"))
            _refuse(name, f"{place} has no attribute {part}{_among(public)}")
        except (Exception, SystemExit) as error:
            _refuse(name, f"{part} of {place} raises {_in_words(error)}", error)
        place = f"{place}.{part}"
    return value


def _as_module(name: str, attribute: str, value: Any) -> nn.Module:
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        _refuse(
            name,
            "expected a torch.nn.Module, or a function that returns one, got "
            f"{type(value).__name__}",
        )
    needed = _required(value)
    if needed:
        _refuse(
            name,
            f"{attribute} needs arguments ({', '.join(needed)}); name a function "
            "without any that returns the finished model, its weights loaded",
        )
    try:
        model = value()
    except (Exception, SystemExit) as error:
        _refuse(name, f"{attribute}() raises {_in_words(error)}", error)
    if not isinstance(model, nn.Module):
        _refuse(
            name,
            f"expected {attribute}() to return a torch.nn.Module, got "
            f"{type(model).__name__}",
        )
    return model


def _required(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that have to be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some built-in functions
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _among(names: list[str], most: int = 8) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:most])
    return f"; it has {shown}{', …' if len(names) > most else ''}"


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _refuse(name: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise ValueError(f"name: {name!r}: {why}") from cause
