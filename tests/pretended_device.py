"""A device that is not there: as strict as a GPU about what lies where, on the CPU.

Code on it fails where it would on CUDA: where a tensor of the CPU meets one of the
device, where NumPy is given one, where a random generator is of the other device. It
computes what the CPU computes. It is registered for the whole process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretended"
CPU = torch.device("cpu")


class _Module(_DummyBackendModule):
    """What torch asks of ``torch.cuda`` where the device is CUDA."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
_DEVICE = torch.device(NAME, 0)
_aten: Any = torch.ops.aten
#: What moves numbers from one device to another.
_MOVES = {_aten._to_copy.default, _aten.copy_.default}
#: Indices may be on the CPU.
_INDEXING = {
    _aten.index.Tensor,
    _aten.index_put.default,
    _aten.index_put_.default,
    _aten._index_put_impl_.default,
}


class _Generator(torch.Generator):
    """Random numbers of the pretended device, or as usual."""

    _place: torch.device

    def __new__(cls, device: Any = CPU) -> _Generator:
        place = torch.device(device)
        made = super().__new__(cls, CPU if place.type == NAME else place)
        made._place = place
        return made

    @property
    def device(self) -> torch.device:
        return self._place


torch.Generator = _Generator  # type: ignore[misc]


class OnDevice(Tensor):
    """A tensor on the pretended device; ``values`` are its numbers, on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> OnDevice:
        made = Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=values.dtype,
            storage_offset=values.storage_offset(), device=_DEVICE,
        )  # fmt: skip
        made.values = values
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnDevice({self.values})"

    def __format__(self, spec: str) -> str:
        return self.values.__format__(spec)

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert a {NAME} tensor to numpy; use Tensor.cpu()")

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.values.__reduce_ex__(protocol)

    def untyped_storage(self) -> Any:
        return self.values.untyped_storage()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type == "cpu":
            raise RuntimeError(f"Expected a {NAME!r} generator, got cpu ({func})")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        if func not in _MOVES:
            _check_devices(func, args, kwargs)
        if target is not None:
            kwargs["device"] = CPU
        result = func(*tree_map(_values, args), **tree_map(_values, kwargs))
        if func is _aten.copy_.default:
            return args[0]
        if target is not None and torch.device(target).type == "cpu":
            return result
        result = tree_map(lambda x: OnDevice(x) if isinstance(x, Tensor) else x, result)
        return return_and_correct_aliasing(func, args, kwargs, result)


# Foolbox takes a tensor whose class lies in torch.
OnDevice.__module__ = "torch"


def _check_devices(func: Any, args: Any, kwargs: Any) -> None:
    leaves = tree_leaves((args[:1] if func in _INDEXING else args, kwargs))
    for leaf in leaves:
        if isinstance(leaf, Tensor) and not isinstance(leaf, OnDevice) and leaf.ndim:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two "
                f"devices, {_DEVICE} and cpu! ({func})"
            )


def _values(leaf: Any) -> Any:
    return leaf.values if isinstance(leaf, OnDevice) else leaf


def _empty(size: Any, **options: Any) -> Tensor:
    known = {key: options[key] for key in ("dtype",) if options.get(key) is not None}
    return OnDevice(torch.empty(size, device=CPU, **known))


def _empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    known = {key: options[key] for key in ("dtype",) if options.get(key) is not None}
    return OnDevice(torch.empty_strided(size, stride, device=CPU, **known))


def _zeros(size: Any, **options: Any) -> Tensor:
    return torch.ops.aten.zero_(_empty(size, **options))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _values(target).copy_(_values(source))
    return target


_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_efficientzerotensor", _zeros, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
