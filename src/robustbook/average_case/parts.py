"""What the estimators are made of, for those who make another or examine these."""

from robustbook.average_case._estimators import mmse_linearizations
from robustbook.average_case._linearize import (
    Linearization,
    linear_probability,
    linearize,
)
from robustbook.average_case._problem import MEASURE, Problem, draw_normal, set_up

__all__ = [
    "MEASURE",
    "Linearization",
    "Problem",
    "draw_normal",
    "linear_probability",
    "linearize",
    "mmse_linearizations",
    "set_up",
]
