r"""Agreement of a model with soft labels: one side fixed, one inverse temperature.

With q the soft labels and p(beta) the model's Gibbs posterior,

    J(beta) = mean_i log(K sum_j q_ij p_ij(beta)).

It is C - D with C = log K + mean_i log sum_j q_ij exp(beta x_ij) and
D = mean_i log sum_j exp(beta x_ij), both convex, so that chords of C and tangents of D
bound J over an interval, as for two models (Chapter 7).
"""

import heapq
import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_logits, check_positive
from robustbook.agreement._docs import SHARED
from robustbook.agreement._result import CertifiedAgreement
from robustbook.agreement._search import CertificateError

#: Evaluations after which the search gives up.
_MOST: Final = 10_000
_GROWTH: Final = 4.0
_EPSILON: Final = torch.finfo(torch.float64).eps


class SoftLabelAgreement(CertifiedAgreement):
    """Posterior agreement of a model with soft labels: a :class:`CertifiedAgreement`.

    From 0 to log K plus the mean of the logarithm of the largest soft label; ``beta``
    is in units of 1/logit.
    """


@SHARED.fill
def soft_label_agreement(
    logits: Any, soft_labels: Any, *, tol: float = 1e-6
) -> SoftLabelAgreement:
    r"""Posterior agreement of a model with soft labels, such as the votes of people.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log K \sum_{j=1}^K q_{ij} \, p_{ij}(\beta),

    where p is the model's Gibbs posterior and q stays as it is. If every q is one-hot,
    J is concave, and PA is log K minus the cross-entropy of the labels after
    temperature scaling. Otherwise J may have several hills, and the maximum is
    certified by branch and bound. Returns a :class:`SoftLabelAgreement`. Source:
    Chapter 37; not in the papers.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the model.
    soft_labels : Tensor or array, shape (N, K)
        Probabilities or counts of votes, at least 0; each row is divided by its sum.
    tol : float, default 1e-6
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    >>> votes = torch.tensor([[9, 1, 0], [0, 3, 7]])
    >>> result = soft_label_agreement(logits, votes)
    >>> f"{result.pa:.3f} nats at beta = {result.beta:.2f}"
    '0.537 nats at beta = 2.37'
    """
    scores = check_logits("logits", logits).double()
    labels = _rows_that_sum_to_one(soft_labels, scores)
    return _Search(scores, labels, check_positive("tol", tol)).run()


def _rows_that_sum_to_one(soft_labels: Any, logits: Tensor) -> Tensor:
    labels = as_tensor("soft_labels", soft_labels).to(logits.device).double()
    if labels.shape != logits.shape:
        raise ValueError(
            f"soft_labels: expected shape {tuple(logits.shape)} as logits, got "
            f"{tuple(labels.shape)}"
        )
    if not bool((labels >= 0).all() and labels.isfinite().all()):
        raise ValueError("soft_labels: expected finite numbers of at least 0")
    sums = labels.sum(1, keepdim=True)
    if not bool((sums > 0).all()):
        row = int((sums[:, 0] <= 0).nonzero()[0])
        raise ValueError(f"soft_labels: expected a positive sum, got 0 in row {row}")
    return labels / sums


class _Point(NamedTuple):
    """J = C - D at an inverse temperature, and the slope of D."""

    beta: float
    convex: float
    concave: float
    slope: float
    per_sample: Tensor

    @property
    def value(self) -> float:
        return self.convex - self.concave

    @property
    def slack(self) -> float:
        """Allowance for rounding."""
        return 16 * _EPSILON * (1 + abs(self.convex) + abs(self.concave))


class _Search:
    """Best-first branch and bound over [0, infinity]."""

    def __init__(self, logits: Tensor, labels: Tensor, tol: float) -> None:
        # Of each sample the largest logit is 0: C and D fall, and nothing overflows.
        self.logits = logits - logits.amax(1, keepdim=True)
        self.log_labels = labels.log()
        self.tol = tol
        self.log_k = math.log(labels.shape[1])
        self.cap = self.log_k + float(labels.amax(1).log().mean())
        leading = self.logits == 0
        ties = leading.sum(1).double().log()
        #: How fast C falls in the end, at least 0, and what D falls to.
        best = self.logits.masked_fill(labels == 0, -math.inf).amax(1)
        self.depth = -float(best.mean())
        self.floor = float(ties.mean())
        self.limit = self.log_k + (labels * leading).sum(1).log() - ties
        self.best = (0.0, 0.0, torch.zeros_like(ties))
        self.count = 0
        self.queue: list[tuple[float, int, _Point, _Point | None]] = []

    def run(self) -> SoftLabelAgreement:
        self._offer(math.inf, float(self.limit.mean()), self.limit)
        self._push(self._evaluate(0.0), None)
        while -self.queue[0][0] > self.best[1] + self.tol:
            _, _, left, right = heapq.heappop(self.queue)
            beta = self._between(left, right)
            if self.count == _MOST or not left.beta < beta < (
                math.inf if right is None else right.beta
            ):
                raise CertificateError(
                    f"soft-label agreement: the gap could not be closed to "
                    f"tol={self.tol:g} at beta={left.beta:g}; set a larger tol"
                )
            middle = self._evaluate(beta)
            self._push(left, middle)
            self._push(middle, right)
        beta, value, each = self.best
        return SoftLabelAgreement(value, beta, max(value, -self.queue[0][0]), each)

    def _offer(self, beta: float, value: float, per_sample: Tensor) -> None:
        if value > self.best[1]:
            self.best = (beta, min(value, self.cap), per_sample)

    def _evaluate(self, beta: float) -> _Point:
        self.count += 1
        tempered = beta * self.logits
        joint = self.log_k + (tempered + self.log_labels).logsumexp(1)
        own = tempered.logsumexp(1)
        slope = ((tempered - own[:, None]).exp() * self.logits).sum(1)
        convex, concave, steep = (float(part.mean()) for part in (joint, own, slope))
        point = _Point(beta, convex, concave, steep, joint - own)
        self._offer(beta, point.value, point.per_sample)
        return point

    def _push(self, left: _Point, right: _Point | None) -> None:
        bound = self._tail(left) if right is None else _chord_tangent(left, right)
        item = (-min(bound, self.cap), self.count, left, right)
        heapq.heappush(self.queue, item)

    def _tail(self, last: _Point) -> float:
        """Bound beyond `last`: C falls by `depth`, D over its tangent and its floor."""
        if -last.slope <= self.depth:
            return last.value + last.slack
        step = (last.concave - self.floor) / -last.slope
        return last.convex - self.floor - self.depth * step + last.slack

    def _between(self, left: _Point, right: _Point | None) -> float:
        if right is None:
            scale = max(-float(self.logits.mean()), 1e-300)
            return _GROWTH * left.beta if left.beta else 1 / scale
        if not left.beta:
            return right.beta / _GROWTH
        if right.beta > 2 * left.beta:
            product = left.beta * right.beta
            if product < math.inf:
                return math.sqrt(product)
            return math.sqrt(left.beta) * math.sqrt(right.beta)
        return 0.5 * (left.beta + right.beta)


def _chord_tangent(left: _Point, right: _Point) -> float:
    """Bound between two points: C is under its chord, D over its tangents."""
    width = right.beta - left.beta
    chord = (right.convex - left.convex) / width
    rise, fall = chord - left.slope, chord - right.slope
    slack = left.slack + right.slack
    if rise <= 0 or fall >= 0:
        return (left if rise <= 0 else right).value + slack
    step = (right.value - left.value - fall * width) / (rise - fall)
    return left.value + rise * min(max(step, 0.0), width) + slack
