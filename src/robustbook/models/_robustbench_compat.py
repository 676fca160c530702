"""Let robustbench 1.1.1 import, with what is installed beside it.

It imports ``autoattack``, but depends on ``pyautoattack``, whose interface differs; and
``pkg_resources``, which setuptools 81 dropped. Both mends do nothing where the real
module is installed. They can go when robustbench imports what it depends on.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision


class _AutoAttack:
    """The interface of ``autoattack.AutoAttack`` over pyautoattack."""

    def __init__(
        self,
        model: nn.Module,
        norm: str = "Linf",
        eps: float = 0.3,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: tuple[str, ...] | list[str] = (),
        version: str = "standard",
        is_tf_model: bool = False,
        device: Any = "cuda",
        log_path: Any = None,
    ) -> None:
        from pyautoattack import AutoAttack

        if is_tf_model:
            raise NotImplementedError("is_tf_model: expected False, got True")
        self._attack = AutoAttack(
            model,
            attacks=list(attacks_to_run) or None,
            device=device,
            eps=eps,
            norm=norm,
            seed=seed,
            version=version,
        )
        self._attack.verbose = verbose

    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        return_labels: bool = False,
        state_path: Path | None = None,
    ) -> Any:
        images, labels = self._attack.run_standard_evaluation(
            x_orig, y_orig, batch_size=bs, state_path=state_path
        )
        return (images, labels) if return_labels else images


def _resource_filename(package: str, name: str) -> str:
    module = sys.modules[package]
    assert module.__file__ is not None
    return str(Path(module.__file__).parent / name)


def _module(name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


def _absent(name: str) -> bool:
    # A module that we made has no specification, and to ask for it would raise.
    return name not in sys.modules and importlib.util.find_spec(name) is None


def import_robustbench() -> Any:
    """Import robustbench, mended; raise ModuleNotFoundError where there is none."""
    if "robustbench" in sys.modules:
        return sys.modules["robustbench"]
    mend_torchvision()
    with extra("robustbench"):
        for name in ("robustbench", "pyautoattack", "torchvision"):
            if not importlib.util.find_spec(name):
                raise ModuleNotFoundError(name=name)
    if _absent("autoattack"):
        state = importlib.import_module("pyautoattack.state")
        _module("autoattack", AutoAttack=_AutoAttack, __path__=[])
        _module("autoattack.state", EvaluationState=state.EvaluationState)
    if _absent("pkg_resources"):
        _module("pkg_resources", resource_filename=_resource_filename)
    with warnings.catch_warnings():
        # Of its dependencies, about names that robustbench uses.
        warnings.simplefilter("ignore")
        return importlib.import_module("robustbench")
