"""Parts of the estimators, for those who write another one or examine these."""

from robustbook.average_case._linearize import Linearization as Linearization
from robustbook.average_case._linearize import linear_probability as linear_probability
from robustbook.average_case._linearize import linearize as linearize
from robustbook.average_case._normal import joint_probability as joint_probability
from robustbook.average_case._problem import MEASURE as MEASURE
from robustbook.average_case._problem import Problem as Problem
from robustbook.average_case._problem import check_positives as check_positives
from robustbook.average_case._problem import draw_normal as draw_normal
from robustbook.average_case._problem import set_up as set_up
from robustbook.average_case._result import squeeze as squeeze
from robustbook.average_case._sigmoid import softmax_proxy as softmax_proxy
