"""The agreement kernel J = C - D, evaluated in chunks with bounded rounding.

With the logits of each of m views shifted so that the largest of each sample is 0
(x^v = F^v - max F^v), prior pi and inverse temperature beta,

    C_i(beta) = log sum_j pi_j^(1-m) exp(beta sum_v x^v_ij)      (convex)
    D_i(beta) = sum_v log sum_j exp(beta x^v_ij)                 (convex)
    J(beta)   = mean_i [C_i(beta) - D_i(beta)]

One pass over the data takes one exponential per class, sample and view: the joint
term is their product. A pass returns the values, the slopes and the power sums
from which :mod:`robustbook.agreement._bounds` builds its upper bounds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_prior, check_views

#: Unit roundoff of float64: every operation is exact up to this relative error.
UNIT_ROUNDOFF = 2.0**-53
#: Entries per work buffer: on CPU the five of them fit into a shared cache.
CHUNK_ENTRIES = {"cpu": 2**17, "cuda": 2**22}
#: Problems of at most this many entries keep their shifted logits in float64.
KEPT_ENTRIES = 2**21
#: A product of exponentials of at least exp(-this) has kept its leading terms:
#: what underflows (below exp(-745)) is smaller by exp(-170) at least.
LARGEST_EXPONENT = 575.0
#: Logits of a typical sample must differ by this: their squares must not underflow.
SMALLEST_SCALE = 1e-130
#: Weights of classes, pi_j^(1-m), beyond this are refused: their sums could overflow.
LARGEST_WEIGHT = 1e100


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

    ``joint`` holds the power sums of the product of all posteriors, ``marginals``
    those of each view's own.
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
    marginals: tuple[PowerSums, ...]


class Kernel:
    """J for two or more checked arrays: statistics once, then :meth:`evaluate`."""

    def __init__(self, *views: Tensor, prior: Tensor | None = None) -> None:
        self.views = views
        self.num_views = len(views)
        self.prior = prior
        self.num_samples, self.num_classes = views[0].shape
        self.device = device = views[0].device
        self.uniform = prior is None or bool((prior == prior[0]).all())
        ones = torch.ones(self.num_classes, dtype=torch.float64, device=device)
        self._ones = ones
        others = self.num_views - 1
        if prior is None:
            self._weights = ones * self.num_classes**others
        else:
            self._weights = reduce(operator.mul, [1.0 / prior] * others)
        # A rare class may lead by its weight where its product is far smaller.
        ratio = float(self._weights.max() / self._weights.min())
        self._largest_exponent = LARGEST_EXPONENT - math.log(ratio)
        #: No sample's contribution exceeds this, at any beta.
        self.cap = math.log(float(self._weights.max()))
        #: J(0): all posteriors are uniform. Zero without a prior, never below.
        total = math.fsum(self._weights.tolist())
        self.value_at_zero = math.log(total / self.num_classes**self.num_views)
        entries = CHUNK_ENTRIES.get(device.type, CHUNK_ENTRIES["cuda"])
        self._rows = min(self.num_samples, max(1, entries // self.num_classes))
        self._buffers = torch.empty(
            (5, self._rows, self.num_classes), dtype=torch.float64, device=device
        )
        # Small problems are shifted once and for all; large ones chunk by chunk,
        # at every pass, so that no copy of the input is ever held.
        self._kept: list[Tensor] | None = None
        if views[0].numel() <= KEPT_ENTRIES:
            wide = [view.double() for view in views]
            self._kept = [view - view.amax(1, keepdim=True) for view in wide]
        self._collect()

    @classmethod
    def checked(cls, *views: Any, prior: Any) -> Kernel:
        """The kernel of what a caller passed."""
        checked = check_views(*views)
        num_classes, device = checked[0].shape[1], checked[0].device
        weights = check_prior(prior, num_classes, device)
        rarest = 1.0 / num_classes if weights is None else float(weights.min())
        if -(len(views) - 1) * math.log(rarest) > math.log(LARGEST_WEIGHT) + 1e-9:
            raise ValueError(
                f"views: expected at most {1 + _most_others(rarest)} with classes as "
                f"rare as {rarest:g}, got {len(views)}"
            )
        return cls(*checked, prior=weights)

    def _collect(self) -> None:
        """One pass without exponentials: maxima, ties, mismatches, scales."""
        views = self.num_views
        columns = torch.empty(
            (2 * views + 3, self.num_samples), dtype=torch.float64, device=self.device
        )
        self._tops, self._depth = columns[:views], columns[views]
        ties = columns[views + 1 : -2]
        joint_limit, spread = columns[-2:]
        mismatches = 0
        for rows in self._chunks():
            joint, x, tied, all_tied, _ = self._scratch(rows)
            for place, view in enumerate(self.views):
                if self._kept is None:
                    self._tops[place, rows] = view[rows].amax(1)
                first = self._load(place, rows, joint if place == 0 else x)
                if place == 0:
                    start = first
                elif place == 1:
                    torch.add(start, first, out=joint)
                else:
                    joint.add_(first)
                # Only entries that equal the maximum exactly are 0 after the shift.
                torch.eq(first, 0.0, out=tied if place else all_tied)
                torch.mv(tied if place else all_tied, self._ones, out=ties[place, rows])
                if place:
                    all_tied.mul_(tied)
            self._depth[rows] = joint.amax(1).neg_()
            torch.mv(joint, self._ones, out=spread[rows])
            torch.mv(all_tied, self._weights, out=joint_limit[rows])
            mismatches += self._mismatches(rows, ties[:, rows])
        #: Share of samples on which not all predictions (first argmax) coincide.
        self.mismatch = mismatches / self.num_samples
        #: The slope of C, and so of J, for beta to infinity is minus this.
        self.depth = self.mean(self._depth)
        # A sample with constant logits in all views but one contributes exactly 0 at
        # every beta when the prior is uniform: its convex parts are equal. Leave it
        # out.
        idle = (ties == self.num_classes).sum(0) >= views - 1
        some_idle = self.uniform and bool(idle.any())
        self._active = ~idle if some_idle else None
        self.everything_idle = some_idle and bool(idle.all())
        limit = ties.prod(0).log_()
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

    def _mismatches(self, rows: slice, ties: Tensor) -> int:
        """Samples of a chunk whose first argmax is not the same in all views."""
        # Without ties, predictions agree exactly if the joint maximum is 0.
        tied = (ties > 1.0).any(0)
        differ = self._depth[rows] > 0.0
        if bool(tied.any()):
            first, *others = (view[rows][tied].argmax(1) for view in self.views)
            differ[tied] = torch.stack([other != first for other in others]).any(0)
        return int(differ.sum())

    def evaluate(self, beta: float) -> Evaluation:
        """Value, slope, curvature and power sums of J at a finite beta >= 0."""
        views = self.num_views
        new = torch.empty(
            (3 * views + 4, self.num_samples), dtype=torch.float64, device=self.device
        )
        per_sample, sums = new[0], new[1:]
        totals: list[Tensor] = []
        for rows in self._chunks():
            joint, x, weight, product, term = self._scratch(rows)
            part = sums[:, rows]
            for place in range(views):
                first = self._load(place, rows, x if place else joint)
                own = weight if place else product
                torch.mul(first, beta, out=own).exp_()
                own_sums = part[3 * place : 3 * place + 3]
                self._power_sums(first, own, self._ones, term, own_sums)
                if place == 0:
                    start = first
                    continue
                product.mul_(own)
                torch.add(start if place == 1 else joint, first, out=joint)
            depth = self._depth[rows]
            joint.add_(depth[:, None])
            # The joint weights peak at exp(-beta depth); lift them back to 1.
            lost = depth * beta > self._largest_exponent
            if bool(lost.any()):
                product[lost] = (joint[lost] * beta).exp()
            log_lift = torch.where(lost, 0.0, depth * beta)
            self._power_sums(joint, product, self._weights, term, part[-3:])
            part[-3:] *= log_lift.exp()
            # Rows: the weights of each view, then the joint ones.
            zeroth, first, second = part[0::3], part[1::3], part[2::3]
            concave = reduce(operator.mul, zeroth[:-1]).log_()
            convex = zeroth[-1].log().sub_(depth, alpha=beta)
            means = first / zeroth
            spreads = (second / zeroth).addcmul_(means, means, value=-1.0)
            slope_c = means[-1] - depth
            slope_d = reduce(operator.add, means[:-1])
            bend = reduce(operator.sub, spreads[:-1], spreads[-1])
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
            joint=PowerSums(*sums[-3:]),
            marginals=tuple(
                PowerSums(*sums[place : place + 3]) for place in range(0, 3 * views, 3)
            ),
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
        added exactly. Up to m + 1 sums over classes meet: one for each view and the
        joint one. Here u = 2^-53.
        """
        sums = (self.num_views + 1) * (self.num_classes + 1500)
        return UNIT_ROUNDOFF * (sums + self._rows + 100)

    def _rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the m + 1 sums over classes become absolute errors
        of their logarithms. The logarithms themselves, the sum of the logits over
        the views and the sum over the rows of a chunk round relative to their sizes.
        """
        sums = (self.num_views + 1) * (self.num_classes + 1500) + 100
        rows = (self._rows + 16 + 2 * self.num_views) * (1.0 + self.cap + size)
        return UNIT_ROUNDOFF * (sums + rows)

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, self.num_samples, self._rows):
            yield slice(start, min(start + self._rows, self.num_samples))

    def _scratch(self, rows: slice) -> Tensor:
        """The work buffers, cut to one chunk."""
        return self._buffers[:, : rows.stop - rows.start]

    def _load(self, place: int, rows: slice, out: Tensor) -> Tensor:
        """Shifted logits of one view and chunk, in `out` unless they are kept."""
        if self._kept is not None:
            return self._kept[place][rows]
        return out.copy_(self.views[place][rows]).sub_(self._tops[place, rows, None])

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

    def totals(self, *columns: Tensor) -> list[float]:
        """Sums over samples of per-sample columns."""
        return [float(column.sum()) for column in columns]


def _most_others(rarest: float) -> int:
    return int((math.log(LARGEST_WEIGHT) + 1e-9) / -math.log(rarest))
