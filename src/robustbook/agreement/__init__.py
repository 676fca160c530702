"""Posterior agreement: the measure, solved exactly, and what belongs to it.

Start with :func:`posterior_agreement`. The theory is in Chapters 4 to 6, the
solver in Chapter 7, hard decisions in Chapter 8.
"""

from typing import TYPE_CHECKING, Any

from robustbook.agreement._adam import AdamTrace, adam_agreement
from robustbook.agreement._bounds import IntervalBounds
from robustbook.agreement._continuous import (
    ContinuousAgreement,
    continuous_agreement,
    gaussian_agreement,
)
from robustbook.agreement._loss import agreement_loss
from robustbook.agreement._measure import (
    agreement_bounds,
    agreement_curve,
    agreement_search,
    compare_agreement,
    gibbs_posterior,
    posterior_agreement,
    symmetric_channel_capacity,
)
from robustbook.agreement._pairing import (
    pair_by_label,
    pair_canonical,
    pair_nearest,
    pair_optimal,
)
from robustbook.agreement._result import (
    Agreement,
    AgreementComparison,
    CertifiedAgreement,
)
from robustbook.agreement._search import CertificateError, SearchTrace, Step
from robustbook.agreement._soft_labels import SoftLabelAgreement, soft_label_agreement
from robustbook.agreement._sweep import (
    AgreementDecomposition,
    ContributionGroup,
    decompose_agreement,
    shift_by_ratio,
)

if TYPE_CHECKING:
    from robustbook.agreement._metric import PosteriorAgreement

__all__ = [
    "AdamTrace",
    "Agreement",
    "AgreementComparison",
    "AgreementDecomposition",
    "CertificateError",
    "CertifiedAgreement",
    "ContinuousAgreement",
    "ContributionGroup",
    "IntervalBounds",
    "PosteriorAgreement",
    "SearchTrace",
    "SoftLabelAgreement",
    "Step",
    "adam_agreement",
    "agreement_bounds",
    "agreement_curve",
    "agreement_loss",
    "agreement_search",
    "compare_agreement",
    "continuous_agreement",
    "decompose_agreement",
    "gaussian_agreement",
    "gibbs_posterior",
    "pair_by_label",
    "pair_canonical",
    "pair_nearest",
    "pair_optimal",
    "posterior_agreement",
    "shift_by_ratio",
    "soft_label_agreement",
    "symmetric_channel_capacity",
]


def __getattr__(name: str) -> Any:
    """Import the metric when it is asked for: torchmetrics takes seconds."""
    if name == "PosteriorAgreement":
        from robustbook.agreement._metric import PosteriorAgreement

        return PosteriorAgreement
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
