"""Parts of the estimators, for those who write another one or examine these."""

from robustbook.average_case._estimators import mmse_linearizations
from robustbook.average_case._linearize import (
    Linearization,
    linear_probability,
    linearize,
)
from robustbook.average_case._normal import joint_probability
from robustbook.average_case._problem import (
    MEASURE,
    Problem,
    check_positives,
    draw_normal,
    set_up,
)
from robustbook.average_case._result import squeeze

__all__ = [
    "MEASURE",
    "Linearization",
    "Problem",
    "check_positives",
    "draw_normal",
    "joint_probability",
    "linear_probability",
    "linearize",
    "mmse_linearizations",
    "set_up",
    "squeeze",
]
