"""Classifiers that people run, on files and texts that people have.

Load a labeled sample with :func:`load_files` or :func:`load_translations`, a
classifier with :func:`load_classifier` (``pip install "robustbook[deployed]"``), and
let :func:`measure_shifts` say how often it is still right after each shift, with labels
and without.
"""

from robustbook.deployed._classifiers import load_classifier
from robustbook.deployed._measure import measure_shifts
from robustbook.deployed._sample import Sample as Sample
from robustbook.deployed._sample import load_files
from robustbook.deployed._shifts import TEXT_SHIFTS, apply_shift
from robustbook.deployed._translations import load_translations

__all__ = [
    "TEXT_SHIFTS",
    "apply_shift",
    "load_classifier",
    "load_files",
    "load_translations",
    "measure_shifts",
]
