"""Measure the robustness of classifiers under shift, without trusting accuracy.

The package that the book *Robustness, Measured* runs on. Start with
:func:`robustbook.agreement.posterior_agreement`, or on the command line with
``robustbook score clean.npy shifted.npy``.

Importing this package imports nothing else, so that the command line answers at
once: take what you need from its modules.
"""

__version__ = "0.2.0.dev0"

__all__ = ["__version__"]
