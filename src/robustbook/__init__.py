"""Measure the robustness of classifiers under shift, without trusting accuracy.

The package that the book *Robustness, Measured* runs on. Start with
:func:`robustbook.agreement.posterior_agreement`, or on the command line with
``robustbook score clean.npy shifted.npy``.

A module such as ``robustbook.agreement`` is imported when it is first used, so that
``import robustbook`` and the command line start fast.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

__version__ = "0.2.0.dev0"

__all__ = ["__version__"]


def __getattr__(name: str) -> ModuleType:
    """Import a public module of the package when it is asked for."""
    if name in __dir__():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = [module.name for module in iter_modules(__path__)]
    return [*__all__, *(name for name in modules if not name.startswith("_"))]
