"""Average-case robustness: the probability that a prediction survives Gaussian noise.

Start with :func:`monte_carlo` or, for an error bar at fewer calls,
:func:`control_variate`. Chapter 18 defines the measure, Chapter 19 derives the
linearized estimates, Chapter 20 the unbiased one.
"""

from robustbook.average_case._estimators import linear_exact, mmse, taylor
from robustbook.average_case._normal import orthant_probability
from robustbook.average_case._result import Robustness
from robustbook.average_case._sampling import control_variate, monte_carlo
from robustbook.average_case._sigmoid import mv_sigmoid
from robustbook.average_case._splitting import splitting

__all__ = [
    "Robustness",
    "control_variate",
    "linear_exact",
    "mmse",
    "monte_carlo",
    "mv_sigmoid",
    "orthant_probability",
    "splitting",
    "taylor",
]
