"""The agreement kernel J = C - D, evaluated in chunks with bounded rounding.

With logits shifted so that the largest of each sample is 0
(x' = F' - max F', x'' = F'' - max F''), prior pi and inverse temperature beta,

    C_i(beta) = log sum_j exp(beta (x'_ij + x''_ij)) / pi_j      (convex)
    D_i(beta) = log sum_j exp(beta x'_ij) + log sum_j exp(beta x''_ij)  (convex)
    J(beta)   = mean_i [C_i(beta) - D_i(beta)]

One pass over the data takes two exponentials per class and sample: the joint
term is their product. A pass returns the values, the slopes and the power sums
from which :mod:`robustbook.agreement._bounds` builds its upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_logit_pair, check_prior

#: Unit roundoff of float64: every operation is exact up to this relative error.
UNIT_ROUNDOFF = 2.0**-53
#: Entries per work buffer: on CPU the six of them fit into a shared cache.
CHUNK_ENTRIES = {"cpu": 2**17, "cuda": 2**22}
#: Problems of at most this many entries keep their shifted logits in float64.
KEPT_ENTRIES = 2**21
#: A product of two exponentials of at least exp(-this) has kept its leading terms:
#: what underflows (below exp(-745)) is smaller by exp(-170) at least.
LARGEST_EXPONENT = 575.0
#: Logits of a typical sample must differ by this: their squares must not underflow.
SMALLEST_SCALE = 1e-130


@dataclass(frozen=True, eq=False)
class PowerSums:
    """Sums over classes of x^k exp(beta x), k = 0, 1, 2, for each sample.

    All x are at most 0, so as functions of beta the zeroth and second sums fall
    and the first one rises to 0: monotone, which makes interval bounds easy.
    """

    zeroth: Tensor
    first: Tensor
    second: Tensor


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The kernel at one inverse temperature; means over samples unless per-sample.

    ``joint``, ``clean`` and ``shifted`` are the power sums of the product
    posterior and of the two posteriors.
    """

    beta: float
    value: float
    slope: float
    curvature: float
    convex: float
    concave: float
    concave_slope: float
    rounding: float
    slope_rounding: float
    per_sample: Tensor
    joint: PowerSums
    clean: PowerSums
    shifted: PowerSums


class Kernel:
    """J for one pair of checked arrays: statistics once, then :meth:`evaluate`."""

    def __init__(
        self, logits: Tensor, shifted_logits: Tensor, prior: Tensor | None = None
    ) -> None:
        self.logits = logits
        self.shifted_logits = shifted_logits
        self.prior = prior
        self.num_samples, self.num_classes = logits.shape
        self.uniform = prior is None or bool((prior == prior[0]).all())
        device = logits.device
        ones = torch.ones(self.num_classes, dtype=torch.float64, device=device)
        self._ones = ones
        self._weights = ones * self.num_classes if prior is None else 1.0 / prior
        # A rare class may lead by its weight where its product is far smaller.
        ratio = float(self._weights.max() / self._weights.min())
        self._largest_exponent = LARGEST_EXPONENT - math.log(ratio)
        #: No sample's contribution exceeds this, at any beta.
        self.cap = math.log(float(self._weights.max()))
        #: J(0): both posteriors are uniform. Zero without a prior, never below.
        total = math.fsum(self._weights.tolist())
        self.value_at_zero = math.log(total / self.num_classes**2)
        entries = CHUNK_ENTRIES.get(device.type, CHUNK_ENTRIES["cuda"])
        self._rows = min(self.num_samples, max(1, entries // self.num_classes))
        self._buffers = torch.empty(
            (6, self._rows, self.num_classes), dtype=torch.float64, device=device
        )
        # Small problems are shifted once and for all; large ones chunk by chunk,
        # at every pass, so that no copy of the input is ever held.
        self._kept: tuple[Tensor, Tensor] | None = None
        if logits.numel() <= KEPT_ENTRIES:
            first, second = logits.double(), shifted_logits.double()
            self._kept = (
                first - first.amax(1, keepdim=True),
                second - second.amax(1, keepdim=True),
            )
        self._collect()

    @classmethod
    def checked(cls, logits: Any, shifted_logits: Any, prior: Any) -> Kernel:
        """The kernel of what a caller passed."""
        pair = check_logit_pair(logits, shifted_logits)
        return cls(*pair, check_prior(prior, pair[0].shape[1], pair[0].device))

    def _collect(self) -> None:
        """One pass without exponentials: maxima, ties, mismatches, scales."""
        columns = torch.empty(
            (7, self.num_samples), dtype=torch.float64, device=self.logits.device
        )
        self._top, self._shifted_top, self._depth = columns[:3]
        clean_ties, shifted_ties, joint_limit, spread = columns[3:]
        mismatches = 0
        for rows in self._chunks():
            if self._kept is None:
                self._top[rows] = self.logits[rows].amax(1)
                self._shifted_top[rows] = self.shifted_logits[rows].amax(1)
            x, y, first, second, both, joint = self._load(rows)
            torch.add(x, y, out=joint)
            self._depth[rows] = joint.amax(1).neg_()
            torch.mv(joint, self._ones, out=spread[rows])
            # Only entries that equal the maximum exactly are 0 after the shift.
            torch.eq(x, 0.0, out=first)
            torch.eq(y, 0.0, out=second)
            torch.mul(first, second, out=both)
            torch.mv(first, self._ones, out=clean_ties[rows])
            torch.mv(second, self._ones, out=shifted_ties[rows])
            torch.mv(both, self._weights, out=joint_limit[rows])
            mismatches += self._mismatches(rows, clean_ties, shifted_ties)
        #: Share of samples whose predictions (first argmax) differ.
        self.mismatch = mismatches / self.num_samples
        #: The slope of C, and so of J, for beta to infinity is minus this.
        self.depth = self.mean(self._depth)
        # A sample with constant logits contributes exactly 0 at every beta when
        # the prior is uniform: its two convex parts are equal. Leave it out.
        idle = (clean_ties == self.num_classes) | (shifted_ties == self.num_classes)
        some_idle = self.uniform and bool(idle.any())
        self._active = ~idle if some_idle else None
        self.everything_idle = some_idle and bool(idle.all())
        limit = (clean_ties * shifted_ties).log_()
        if self._active is not None:
            limit *= self._active
        #: The floor that D falls to for beta to infinity.
        self.concave_limit = self.mean(limit)
        #: J at infinity, per sample; None where the supremum is not there.
        self.limit: Tensor | None = None
        if self.depth == 0.0:
            per_sample = joint_limit.log_() - limit
            if self._active is not None:
                per_sample = torch.where(self._active, per_sample, 0.0)
            self.limit = per_sample
        live = spread[spread < 0.0]
        #: Mean distance of a logit from the largest, in a typical sample: a first
        #: guess of where things happen.
        self.scale = -float(live.median()) / self.num_classes if len(live) else 1.0
        if self.scale < SMALLEST_SCALE:
            raise ValueError(
                f"logits: expected differences of at least {SMALLEST_SCALE:g} within a "
                f"typical sample, got {self.scale:g}; multiply all logits by one "
                f"constant first (posterior agreement does not change)"
            )

    def _mismatches(self, rows: slice, ties: Tensor, shifted_ties: Tensor) -> int:
        """Pairs of a chunk whose first argmax differ."""
        # Without ties, predictions agree exactly if the joint maximum is 0.
        tied = (ties[rows] > 1.0) | (shifted_ties[rows] > 1.0)
        differ = self._depth[rows] > 0.0
        if bool(tied.any()):
            clean, shifted = self.logits[rows][tied], self.shifted_logits[rows][tied]
            differ[tied] = clean.argmax(1) != shifted.argmax(1)
        return int(differ.sum())

    def evaluate(self, beta: float) -> Evaluation:
        """Value, slope, curvature and power sums of J at a finite beta >= 0."""
        new = torch.empty(
            (10, self.num_samples), dtype=torch.float64, device=self.logits.device
        )
        per_sample, sums = new[0], new[1:]
        totals: list[Tensor] = []
        for rows in self._chunks():
            x, y, ex, ey, product, term = self._load(rows)
            torch.mul(x, beta, out=ex).exp_()
            torch.mul(y, beta, out=ey).exp_()
            torch.mul(ex, ey, out=product)
            depth = self._depth[rows]
            part = sums[:, rows]
            self._power_sums(x, ex, self._ones, term, part[0:3])
            self._power_sums(y, ey, self._ones, term, part[3:6])
            joint = torch.add(x, y, out=ex).add_(depth[:, None])
            # The joint weights peak at exp(-beta depth); lift them back to 1.
            lost = depth * beta > self._largest_exponent
            if bool(lost.any()):
                product[lost] = (joint[lost] * beta).exp()
            log_lift = torch.where(lost, 0.0, depth * beta)
            self._power_sums(joint, product, self._weights, term, part[6:9])
            part[6:9] *= log_lift.exp()
            concave = (part[0] * part[3]).log_()
            convex = part[6].log().sub_(depth, alpha=beta)
            # Rows: the clean, the shifted and the joint weights.
            zeroth, first, second = part[0::3], part[1::3], part[2::3]
            means = first / zeroth
            spreads = (second / zeroth).addcmul_(means, means, value=-1.0)
            slope_c = means[2] - depth
            slope_d = means[0] + means[1]
            bend = spreads[2] - spreads[0] - spreads[1]
            if self._active is not None:
                keep = self._active[rows]
                for column in (convex, concave, slope_c, slope_d, bend):
                    column *= keep
                # Weights of a point mass: no spread, nothing to bound.
                part[:, ~keep] = 0.0
                part[0::3, ~keep] = 1.0
            torch.sub(convex, concave, out=per_sample[rows])
            columns = (per_sample[rows], concave, slope_c, slope_d, bend, convex.abs_())
            totals.append(torch.stack(columns).sum(1))
        # Chunk sums are added exactly, so only the sums inside a chunk round.
        value, d, slope_of_c, slope_of_d, curvature, size = (
            math.fsum(column) / self.num_samples
            for column in torch.stack(totals).T.tolist()
        )
        unit = self.relative_error
        return Evaluation(
            beta=beta,
            value=value,
            slope=slope_of_c - slope_of_d,
            curvature=curvature,
            convex=value + d,
            concave=d,
            concave_slope=slope_of_d,
            rounding=self._rounding(size + d),
            slope_rounding=unit * (abs(slope_of_c) + abs(slope_of_d)),
            per_sample=per_sample,
            joint=PowerSums(sums[6], sums[7], sums[8]),
            clean=PowerSums(sums[0], sums[1], sums[2]),
            shifted=PowerSums(sums[3], sums[4], sums[5]),
        )

    def limit_rounding(self) -> float:
        """Bound on the rounding error of the limit at infinity."""
        return self._rounding(self.cap)

    def per_sample_at_zero(self) -> Tensor:
        """Contributions at beta = 0: the same number for every sample."""
        return torch.full_like(self._depth, self.value_at_zero)

    @property
    def relative_error(self) -> float:
        """Bound on the relative rounding error of a sum over classes and a chunk.

        All sums have terms of one sign. A term x^k exp(beta x) that does not
        underflow has beta |x| <= 745, so its argument, rounded twice, costs
        1490 u, the exponential and the factors 10 u more; terms that underflow
        are below 1e-307 and are covered by the same figure. Adding K terms in
        any order costs K u, adding the rows of a chunk one u a row; chunks are
        added exactly. Up to three sums over classes meet. Here u = 2^-53.
        """
        return UNIT_ROUNDOFF * (3 * (self.num_classes + 1500) + self._rows + 100)

    def _rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the three sums over classes become absolute errors
        of their logarithms. The logarithms themselves and the sum over the rows of
        a chunk round relative to their sizes.
        """
        sums = 3 * (self.num_classes + 1500) + 100
        rows = (self._rows + 20) * (1.0 + self.cap + size)
        return UNIT_ROUNDOFF * (sums + rows)

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, self.num_samples, self._rows):
            yield slice(start, min(start + self._rows, self.num_samples))

    def _load(self, rows: slice) -> tuple[Tensor, ...]:
        """Shifted logits of one chunk, then four scratch buffers of its shape."""
        x, y, *scratch = self._buffers[:, : rows.stop - rows.start]
        if self._kept is not None:
            return self._kept[0][rows], self._kept[1][rows], *scratch
        x.copy_(self.logits[rows]).sub_(self._top[rows, None])
        y.copy_(self.shifted_logits[rows]).sub_(self._shifted_top[rows, None])
        return x, y, *scratch

    @staticmethod
    def _power_sums(
        x: Tensor, weight: Tensor, classes: Tensor, term: Tensor, out: Tensor
    ) -> None:
        torch.mv(weight, classes, out=out[0])
        torch.mul(weight, x, out=term)
        torch.mv(term, classes, out=out[1])
        torch.mv(term.mul_(x), classes, out=out[2])

    def mean(self, column: Tensor) -> float:
        """Mean of a per-sample column: chunks summed by torch, then exactly."""
        parts = [column[rows].sum() for rows in self._chunks()]
        return math.fsum(torch.stack(parts).tolist()) / self.num_samples
