"""The sha256 of tensors and models, for the keys of stored results."""

import hashlib
import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.provenance import fingerprint

_PLAIN: Final = (bool, int, float, str, type(None))


def tensor_sum(values: Tensor) -> str:
    """Return the sha256 of a tensor: type, shape and bytes."""
    plain = values.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode())
    digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tensors_sum(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of named tensors, whatever their order."""
    parts = [f"{name} {tensor_sum(tensors[name])}" for name in sorted(tensors)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def model_sum(model: object) -> str:
    """Return the sha256 of a model: its code, its settings and its weights.

    For a module it covers the source of its class and of those of its children (in this
    package also of all that their files import), plain attributes (a switch, a
    temperature, the mode), parameters and buffers. For another callable it covers only
    the source: results that are kept under such a sum need further checks.
    """
    digest = hashlib.sha256(code_sum(model).encode())
    if not isinstance(model, nn.Module):
        return digest.hexdigest()
    for name, module in model.named_modules():
        settings = {
            key: tensor_sum(value) if isinstance(value, Tensor) else value
            for key, value in sorted(vars(module).items())
            if isinstance(value, (*_PLAIN, Tensor))
            or (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value))
        }
        digest.update(f"{name}\0{settings}\0".encode())
    # Buffers, such as those of a normalization, need not be in the state.
    state = {**model.state_dict(), **dict(model.named_buffers())}
    for name, values in sorted(state.items()):
        # get_extra_state may return anything.
        content = tensor_sum(values) if isinstance(values, Tensor) else repr(values)
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def code_sum(model: object) -> str:
    """Return the sha256 of the code of a model, without settings and weights."""
    digest = hashlib.sha256()
    kinds: list[tuple[str, Any]]
    if isinstance(model, nn.Module):
        kinds = [(name, type(module)) for name, module in model.named_modules()]
    else:
        kinds = [("", model if inspect.isroutine(model) else type(model))]
    for name, kind in kinds:
        module_name = str(getattr(kind, "__module__", ""))
        package = module_name.partition(".")[0]
        ours = package == "robustbook"
        code = fingerprint(module_name) if ours else ""
        digest.update(f"{name}\0{code}\0".encode())
        # A user's class may be edited while it is in use.
        fixed = inspect.isclass(kind) and (ours or package == "torch")
        digest.update(_source_of_class(kind) if fixed else _source(kind))
    return digest.hexdigest()


def _source(code: Any) -> bytes:
    """Return the source of a class or function; without one, as in C, its name."""
    # Two lambdas on one line have the same source.
    compiled = getattr(code, "__code__", None)
    parts = compiled and (
        compiled.co_code,
        compiled.co_names,
        [value for value in compiled.co_consts if isinstance(value, _PLAIN)],
    )
    try:
        return f"{inspect.getsource(code)}\0{parts}".encode()
    except (OSError, TypeError):
        return f"{code.__module__}.{code.__qualname__}\0{parts}".encode()


#: Cached, since inspect parses the file of a class.
_source_of_class: Final = lru_cache(_source)
