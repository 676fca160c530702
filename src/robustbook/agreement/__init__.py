"""Posterior agreement: the measure, solved exactly, and what belongs to it.

Start with :func:`posterior_agreement`. The theory is in Chapters 4 to 6, the
solver in Chapter 7, hard decisions in Chapter 8.
"""

from typing import TYPE_CHECKING, Any

from robustbook.agreement._adam import AdamTrace, adam_agreement
from robustbook.agreement._calibration import Calibration, calibrate_beta
from robustbook.agreement._gaussian import gaussian_agreement
from robustbook.agreement._hard_decisions import symmetric_channel_capacity
from robustbook.agreement._loss import agreement_loss
from robustbook.agreement._measure import (
    agreement_curve,
    compare_agreement,
    gibbs_posterior,
    posterior_agreement,
)
from robustbook.agreement._paired_accuracy import (
    PairedAccuracy,
    PairedAccuracyDifference,
    compare_paired_accuracy,
    paired_accuracy,
)
from robustbook.agreement._pairing import pair_by_label, pair_nearest, pair_optimal
from robustbook.agreement._result import (
    Agreement,
    AgreementComparison,
    CertifiedAgreement,
)
from robustbook.agreement._soft_labels import SoftLabelAgreement, soft_label_agreement
from robustbook.agreement._sweep import (
    AgreementDecomposition,
    ContributionGroup,
    decompose_agreement,
    shift_by_ratio,
)
from robustbook.agreement._temperatures import log_probabilities, posterior_overlap
from robustbook.agreement.solver import CertificateError

if TYPE_CHECKING:
    from robustbook.agreement._metric import PosteriorAgreement

__all__ = [
    "AdamTrace",
    "Agreement",
    "AgreementComparison",
    "AgreementDecomposition",
    "Calibration",
    "CertificateError",
    "CertifiedAgreement",
    "ContributionGroup",
    "PairedAccuracy",
    "PairedAccuracyDifference",
    "PosteriorAgreement",
    "SoftLabelAgreement",
    "adam_agreement",
    "agreement_curve",
    "agreement_loss",
    "calibrate_beta",
    "compare_agreement",
    "compare_paired_accuracy",
    "decompose_agreement",
    "gaussian_agreement",
    "gibbs_posterior",
    "log_probabilities",
    "pair_by_label",
    "pair_nearest",
    "pair_optimal",
    "paired_accuracy",
    "posterior_agreement",
    "posterior_overlap",
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
