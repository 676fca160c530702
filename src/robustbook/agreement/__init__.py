"""Posterior agreement, solved exactly: the measure, its intervals and its relatives.

Start with :func:`posterior_agreement`. The theory is in Chapters 4 to 6, the
solver in Chapter 7, hard decisions in Chapter 8. Arguments that are not as described
raise TypeError or ValueError, with a message that names them.
"""

from typing import TYPE_CHECKING, Any

from robustbook.agreement._calibration import Calibration, calibrate_beta
from robustbook.agreement._differences import (
    compare_agreement,
    compare_paired_accuracy,
    interval_of_difference,
    pairs_needed,
)
from robustbook.agreement._groups import interval_by_groups
from robustbook.agreement._measure import adam_agreement, posterior_agreement
from robustbook.agreement._other_answers import gaussian_agreement, soft_label_agreement
from robustbook.agreement._paired_accuracy import PairedAccuracy, paired_accuracy
from robustbook.agreement._paired_accuracy import as_calibration as as_calibration
from robustbook.agreement._result import Agreement
from robustbook.agreement._samples import pair_by_label, pair_nearest, pair_optimal
from robustbook.agreement._samples import shift_by_ratio as shift_by_ratio
from robustbook.agreement._temperatures import (
    agreement_curve,
    agreement_loss,
    gibbs_posterior,
    log_probabilities,
    posterior_overlap,
)
from robustbook.agreement._temperatures import log_posterior as log_posterior
from robustbook.agreement._uncertainty import symmetric_channel_capacity
from robustbook.agreement.solver import CertificateError

if TYPE_CHECKING:
    from robustbook.agreement._metric import PosteriorAgreement

__all__ = [
    "Agreement",
    "Calibration",
    "CertificateError",
    "PairedAccuracy",
    "PosteriorAgreement",
    "adam_agreement",
    "agreement_curve",
    "agreement_loss",
    "calibrate_beta",
    "compare_agreement",
    "compare_paired_accuracy",
    "gaussian_agreement",
    "gibbs_posterior",
    "interval_by_groups",
    "interval_of_difference",
    "log_probabilities",
    "pair_by_label",
    "pair_nearest",
    "pair_optimal",
    "paired_accuracy",
    "pairs_needed",
    "posterior_agreement",
    "posterior_overlap",
    "soft_label_agreement",
    "symmetric_channel_capacity",
]


def __getattr__(name: str) -> Any:
    """Import the metric when it is asked for: torchmetrics takes seconds."""
    if name == "PosteriorAgreement":
        from robustbook.agreement._metric import PosteriorAgreement

        return PosteriorAgreement
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
