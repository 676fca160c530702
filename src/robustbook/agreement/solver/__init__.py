"""The solver of Chapter 7: the kernel, bounds on it, and the search for its maximum.

:func:`agreement_search` is :func:`robustbook.agreement.posterior_agreement` with all
its steps. To read it: a search (``_search``) cuts the inverse temperatures into
intervals, bounds J over each (``_bounds``, ``_interpolation``) from evaluations
(``_kernel``) of logits that are in memory or not (``_streams``), on one process or
several (``_shards``).
"""

from robustbook.agreement.solver._bounds import IntervalBounds
from robustbook.agreement.solver._kernel import Kernel
from robustbook.agreement.solver._problem import (
    agreement_bounds,
    agreement_search,
    as_views,
    open_kernel,
)
from robustbook.agreement.solver._search import maximize
from robustbook.agreement.solver._shards import ALONE, Shards, shards_of
from robustbook.agreement.solver._trace import CertificateError, SearchTrace, Step
from robustbook.agreement.solver._votes import one_hot_views

__all__ = [
    "ALONE",
    "CertificateError",
    "IntervalBounds",
    "Kernel",
    "SearchTrace",
    "Shards",
    "Step",
    "agreement_bounds",
    "agreement_search",
    "as_views",
    "maximize",
    "one_hot_views",
    "open_kernel",
    "shards_of",
]
