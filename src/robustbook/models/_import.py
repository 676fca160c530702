"""A model by import path: what a reader brings along."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from torch import nn
from torch.nn.parameter import UninitializedParameter

from robustbook._compat import mend_torchvision

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class _RefusedError(Exception):
    """Why a name is no model."""


def import_model(name: str) -> nn.Module:
    """Import a model, as "package.module:attribute" names it; see `load_model`."""
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
        raise _RefusedError(
            f"importing {where} ends the program ({_in_words(error)}); put what it "
            'does as a program under if __name__ == "__main__"'
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
            raise _RefusedError(
                f"{place} has no attribute {part}{_among(public)}"
            ) from None
        except (Exception, SystemExit) as error:
            raise _RefusedError(
                f"{part} of {place} raises {_in_words(error)}"
            ) from error
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
