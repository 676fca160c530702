"""Posterior agreement with soft labels, and of regressions."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_logits,
    check_positive,
    check_real,
)
from robustbook.agreement._uncertainty import standard_error_of_mean
from robustbook.agreement.solver import Kernel, maximize


@dataclass(frozen=True, eq=False)
class CertifiedAgreement:
    """A posterior agreement of regressions or with soft labels.

    Attributes
    ----------
    pa, upper_bound : float
        Posterior agreement and the proven upper bound on it, in nats per sample.
    beta : float
        Inverse temperature of the maximum; may be ``inf``.
    per_sample : Tensor, shape (N,)
        Contribution of every sample at ``beta``; the mean is ``pa``.
    """

    pa: float
    beta: float
    upper_bound: float
    per_sample: Tensor = field(repr=False)

    @property
    def gap(self) -> float:
        """``upper_bound - pa``: at most ``tol``; 0 where both are infinite."""
        return 0.0 if self.pa == self.upper_bound else self.upper_bound - self.pa

    @property
    def standard_error(self) -> float:
        """Standard error of ``pa`` over the sampling of samples; NaN for one."""
        return standard_error_of_mean(self.per_sample)


def soft_label_agreement(
    logits: Any, soft_labels: Any, *, tol: float = 1e-6
) -> CertifiedAgreement:
    r"""Posterior agreement of a model with soft labels, such as the votes of people.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log K \sum_{j=1}^K q_{ij} \, p_{ij}(\beta),

    where p is the model's Gibbs posterior and q stays as it is. If every q is one-hot,
    J is concave, and PA is log K minus the cross-entropy of the labels after
    temperature scaling. Otherwise J may have several hills, and the maximum is
    certified by branch and bound: J is the kernel of a single view whose weights
    differ between samples. Source: Chapter 39; not in the papers.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the model.
    soft_labels : Tensor or array, shape (N, K)
        Probabilities or counts of votes, at least 0; each row is divided by its sum.
    tol : float, default 1e-6
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.

    Returns
    -------
    CertifiedAgreement
        ``pa`` is at most log K plus the mean logarithm of the largest soft label.

    Raises
    ------
    CertificateError
        If the gap cannot be closed to `tol`.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    >>> votes = torch.tensor([[9, 1, 0], [0, 3, 7]])
    >>> result = soft_label_agreement(logits, votes)
    >>> f"{result.pa:.3f} nats at beta = {result.beta:.2f}"
    '0.537 nats at beta = 2.37'
    """
    scores = check_logits("logits", logits).double()
    labels = as_tensor("soft_labels", soft_labels).to(scores.device).double()
    if labels.shape != scores.shape:
        raise ValueError(
            f"soft_labels: expected shape {tuple(scores.shape)} as logits, got "
            f"{tuple(labels.shape)}"
        )
    if not bool((labels >= 0).all() and labels.isfinite().all()):
        raise ValueError("soft_labels: expected finite numbers of at least 0")
    sums = labels.sum(1, keepdim=True)
    if not bool((sums > 0).all()):
        row = int((sums[:, 0] <= 0).nonzero()[0])
        raise ValueError(f"soft_labels: expected a positive sum, got 0 in row {row}")
    accepted = check_positive("tol", tol)
    # A power of two in all logits changes nothing but the unit of beta.
    largest = float((scores.amax(1) - scores.amin(1)).max())
    unit = 2.0 ** (-math.frexp(largest)[1] if largest else 0)
    trace = maximize(Kernel(scores * unit, labels=labels / sums), accepted)
    return CertifiedAgreement(
        trace.value, trace.beta * unit, trace.upper_bound, trace.per_sample
    )


def gaussian_agreement(
    predictions: Any, shifted: Any, *, scale: float, center: float = 0.0
) -> CertifiedAgreement:
    r"""Posterior agreement of regressions under the squared risk.

    A hypothesis names a value t for each sample, at the risk (t - f)^2 / 2, where f is
    the model's prediction; the prior of t is Gaussian. In units of the prior's scale,
    let A be the mean of (f' + f'')^2 / 2, B that of (f' - f'')^2 / 2, and r = beta
    scale^2. Then

    .. math::

       J = \tfrac12 \log\frac{(1+r)^2}{1+2r} + \frac{A r^2}{1+2r}
           - \frac{(A+B) r^2}{2(1+r)}.

    J rises to its only maximum, the root of a cubic, if B < 1 + A, and is never above
    0 otherwise. Several outputs are independent coordinates that share beta: A and B
    are then sums over the outputs. For another risk, take the values of a grid as
    classes: ``posterior_agreement(-(t - f).abs(), -(t - g).abs())``. Source: Chapter
    37; not in the papers.

    Parameters
    ----------
    predictions, shifted : Tensor or array, shape (N,) or (N, d)
        Predictions on the clean and on the shifted inputs, in the same order.
    scale : float
        Standard deviation of the prior, in units of the predictions: how far the values
        to be predicted spread.
    center : float, default 0
        Mean of the prior.

    Returns
    -------
    CertifiedAgreement
        With ``upper_bound`` equal to ``pa``, as the maximum is known in closed form.
        ``pa`` is ``inf`` where no prediction changes; ``beta`` is in units of 1/risk.

    Examples
    --------
    >>> clean = torch.linspace(-2, 2, 50)
    >>> noisy = clean + 0.3 * torch.cos(7 * clean)
    >>> f"{gaussian_agreement(clean, noisy, scale=1).pa:.3f} nats"
    '1.760 nats'
    """
    width = check_positive("scale", scale)
    middle = check_real("center", center)
    first = _check_predictions("predictions", predictions)
    second = _check_predictions("shifted", shifted)
    if first.shape != second.shape:
        raise ValueError(
            f"shifted: expected shape {tuple(first.shape)} as predictions, got "
            f"{tuple(second.shape)}"
        )
    first, second = (first - middle) / width, (second - middle) / width
    outputs = first.shape[1]
    total = 0.5 * (first + second).square().sum(1)
    apart = 0.5 * (first - second).square().sum(1)
    sharpness = gaussian_maximizer(
        float(total.mean()) / outputs, float(apart.mean()) / outputs
    )
    per_sample = gaussian_kernel(sharpness, total, apart, outputs)
    pa = math.inf if math.isinf(sharpness) else max(0.0, float(per_sample.mean()))
    return CertifiedAgreement(pa, sharpness / width**2, pa, per_sample)


def gaussian_kernel(r: float, total: Tensor, apart: Tensor, outputs: int) -> Tensor:
    """Contribution of each sample at r = beta scale^2, without cancellation."""
    if math.isinf(r):
        return torch.full_like(total, math.inf)
    spread = math.log1p(r * r / (1 + 2 * r))
    # A r^2 / (1 + 2r) - A r^2 / (2 (1 + r)) = A r^2 / (2 (1 + r) (1 + 2r)).
    gain = total * (0.5 * (r / (1 + r)) * (r / (1 + 2 * r)))
    return 0.5 * outputs * spread + gain - apart * (0.5 * r * (r / (1 + r)))


def gaussian_maximizer(total: float, apart: float) -> float:
    """The maximizer of J: 0 if J only falls, infinity if it never does."""
    if apart == 0.0:
        return math.inf
    if apart >= 1.0 + total:
        return 0.0
    coefficients = (
        -2 * apart,
        2 - 6 * apart,
        3 + 1.5 * total - 4.5 * apart,
        1 + total - apart,
    )
    # Cauchy's bound on the roots of a polynomial; the signs change once.
    end = 1 + max(abs(c) for c in coefficients[1:]) / (2 * apart)
    if not math.isfinite(end):
        return math.inf
    return float(
        brentq(np.poly1d(coefficients), 0.0, end, xtol=1e-14, rtol=1e-14, maxiter=1000)
    )


def _check_predictions(name: str, predictions: Any) -> Tensor:
    """Predictions of shape (N, d) in float64; d is 1 for those of shape (N,)."""
    tensor = as_tensor(name, predictions).double()
    if tensor.ndim not in (1, 2) or not tensor.numel():
        raise ValueError(
            f"{name}: expected shape (N,) or (N, d), got {tuple(tensor.shape)}"
        )
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    return tensor.reshape(len(tensor), -1)
