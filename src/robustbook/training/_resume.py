"""The file from which a stopped training goes on."""

from __future__ import annotations

import inspect
import io
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.files import atomic_write, check_writable
from robustbook._store.sums import code_sum, tensor_sum
from robustbook.datasets import Dataset

_FORMAT: Final = 3
#: The modules that train, whose sum is in the file.
CODE: Final = ("robustbook.training._train", "robustbook.training._retrain")
#: Fields of a history that are kept.
HISTORY: Final = ("rows", "weights", "watched")
_KEYS: Final = frozenset(
    ("format", "identity", "initial", "rates", "generator", "model", "optimizer")
) | {*HISTORY}


def check_place(path: Path) -> None:
    """Refuse a path before the first epoch that could not be written after it."""
    if path.is_dir() or not path.name:
        raise ValueError(f"checkpoint: expected a file's path, got the folder {path}")
    check_writable(path.parent, what="checkpoint", remedy="name a file elsewhere")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a training atomically."""
    content = io.BytesIO()  # so that a full disk is an OSError, not torch's own
    torch.save({"format": _FORMAT, **state}, content)
    try:
        with atomic_write(path) as file:
            file.write(content.getbuffer())
    except OSError as error:
        raise OSError(
            f"checkpoint: {path} cannot be written ({error.strerror or error}); the "
            "epochs before this one are kept: make room and run it again to go on"
        ) from error


def read_state(path: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote; nothing that is unpickled can run code."""
    try:
        content = io.BytesIO(path.read_bytes())
        # torch does not look at the sums in its own files.
        damaged = zipfile.ZipFile(content).testzip()
        content.seek(0)
        state: dict[str, Any] = torch.load(
            content, map_location="cpu", weights_only=True
        )
        wanted = _KEYS if state.get("format") == _FORMAT else {"format", "identity"}
        if damaged or not wanted <= state.keys():
            raise KeyError(damaged, *(wanted - state.keys()))
    except PermissionError:
        raise  # a file that must not be read is not a damaged one
    except Exception as error:  # torch raises whatever the damage leads to
        raise ValueError(
            f"checkpoint: expected a file that a training wrote, got {path}, which "
            f"cannot be read ({type(error).__name__}); delete it to start again"
        ) from error
    return state


def differences(state: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Keys in which the identity of a stored training differs from this one."""
    if state["format"] != _FORMAT:
        return ["format"]
    stored = state["identity"]
    return [key for key in identity if identity[key] != stored.get(key)]


def described(part: Any, outer: frozenset[int] = frozenset()) -> Any:
    """Describe a part of a training by plain values that distinguish it.

    Of a data set they are the sums of all images and labels; of functions and objects
    the sum of their code and what they hold.
    """
    if id(part) in outer:  # a function may hold itself
        return "itself"
    inner = partial(described, outer=outer | {id(part)})
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, Mapping):
        return {str(name): inner(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [inner(value) for value in part]
    if isinstance(part, Dataset):
        return [tensor_sum(part.images), tensor_sum(part.labels)]
    if isinstance(part, Tensor):
        return tensor_sum(part)
    if isinstance(part, partial):
        return inner([part.func, part.args, part.keywords])
    code = code_sum(part)
    if isinstance(part, nn.Module):
        return code  # training changes its weights
    if inspect.isroutine(part):
        cells = [
            cell.cell_contents for cell in getattr(part, "__closure__", None) or ()
        ]
        kept = ("__defaults__", "__kwdefaults__")
        return [code, *inner([cells, *(getattr(part, name, None) for name in kept)])]
    words: Any = type(part).__repr__
    if words is object.__repr__:  # which names an address
        return [code, inner(getattr(part, "__dict__", {}))]
    return [repr(part), code]
