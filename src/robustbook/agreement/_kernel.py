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
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial, reduce
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement._evaluation import Evaluation, Moments
from robustbook.agreement._first_pass import first_pass
from robustbook.agreement._shards import ALONE, Reduction, Shards
from robustbook.agreement._streams import InMemory, Source
from robustbook.agreement._votes import Pattern, share_of_split

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
#: Evaluations in one pass over logits that are not in memory.
STREAMED_BATCH: Final = 6
#: About so many of their entries are kept, for a look at the problem in memory.
SOME_ENTRIES = 2**18
#: Numbers that a pass adds up: value, D, slopes of C and D, curvature and |C|.
_SUMMED: Final = 6
#: How the chunks' :class:`Moments` go together.
_MOMENTS: Final[tuple[Reduction, ...]] = (math.fsum, math.fsum, max, max)


class Kernel:
    """J for two or more checked arrays: statistics once, then :meth:`evaluate`.

    `counts` says how often each sample counts. The samples may come from a `source`
    instead of arrays, and be those of one of several `shards`: then every number here
    is that of all of them, and every tensor holds the samples of this process.
    """

    def __init__(
        self,
        *views: Tensor,
        prior: Tensor | None = None,
        counts: Tensor | None = None,
        source: Source | None = None,
        shards: Shards = ALONE,
    ) -> None:
        self.source = InMemory(views) if source is None else source
        self.shards = shards
        self.prior = prior
        self.num_views = self.source.num_views
        self.num_classes = self.source.num_classes
        self.device = device = self.source.device
        self._counts = counts
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
        rows, batches = zip(*shards.gather(self._prepare), strict=True)
        # Bounds on rounding depend on it, and must be the same everywhere.
        self._rows = max(rows)
        #: How many evaluations a pass is worth.
        self.batch = max(batches)
        self._summarize()

    def _prepare(self) -> tuple[int, int]:
        """Make room for a chunk; return its samples, and evaluations a pass."""
        device = self.device
        entries = CHUNK_ENTRIES.get(device.type, CHUNK_ENTRIES["cuda"])
        rows = max(1, entries // self.num_classes)
        if self.source.num_samples is not None:
            rows = min(max(1, self.source.num_samples), rows)
        self._buffers = torch.empty(
            (5, rows, self.num_classes), dtype=torch.float64, device=device
        )
        # Small problems are shifted once and for all; large ones chunk by chunk,
        # at every pass, so that no copy of the input is ever held.
        self._kept: list[Tensor] | None = None
        arrays = self.source.views if isinstance(self.source, InMemory) else ()
        if arrays and arrays[0].numel() <= KEPT_ENTRIES:
            wide = [view.double() for view in arrays]
            self._kept = [view - view.amax(1, keepdim=True) for view in wide]
        return rows, 1 if arrays else STREAMED_BATCH

    def _summarize(self) -> None:
        """One pass without exponentials: maxima, ties, votes, scales."""
        self.passes = 0
        summaries = self.shards.gather(self._look)
        weights, depths, limits, idle, votes = zip(*summaries, strict=True)
        #: N, all shards together.
        self.num_samples = round(math.fsum(weights))
        #: How often each pattern of predictions occurs, as `_votes` has them.
        self.votes: Counter[Pattern] = sum(votes, Counter())
        #: Share of samples on which not all predictions (first argmax) coincide.
        self.mismatch = share_of_split(self.votes, by_class=self.prior is not None)
        #: The slope of C, and so of J, for beta to infinity is minus this.
        self.depth = math.fsum(depths) / self.num_samples
        self.everything_idle = all(idle)
        #: The floor that D falls to for beta to infinity.
        self.concave_limit = math.fsum(limits) / self.num_samples
        #: J at infinity, per sample; None where the supremum is not there.
        self.limit = self._first.limit if self.depth == 0.0 else None
        #: Mean distance of a logit from the largest, in a typical sample: a first
        #: guess of where things happen.
        self.scale = self._median(self._first.distances) / self.num_classes or 1.0
        #: Distance of the largest from the smallest logit (m, N), 0 for idle samples.
        self.ranges = self._first.ranges
        self._tops, self._active = self._first.tops, self._first.active
        self._some = self._first.some
        del self._first
        if self.scale < SMALLEST_SCALE:
            raise ValueError(
                f"logits: expected differences of at least {SMALLEST_SCALE:g} within a "
                f"typical sample, got {self.scale:g}; multiply all logits by one "
                f"constant first (posterior agreement does not change)"
            )

    def _look(self) -> tuple[float, float, float, bool, Counter[Pattern]]:
        """What the samples of this process add."""
        self._first = first = first_pass(
            self._chunks(),
            self._buffers,
            self._weights,
            views=self.num_views,
            shifted=self._kept is not None,
            uniform=self.uniform,
            by_class=self.prior is not None,
            some=max(1, SOME_ENTRIES // self.num_classes) * (self.batch > 1),
        )
        self.passes += 1
        self._slices, self._size, self._depth = first.slices, first.size, first.depth
        total = float(self._size if self._counts is None else self._counts.sum())
        sums = self._sum(first.depth), self._sum(first.concave_limit)
        return total, *sums, first.all_idle, first.votes

    def of_some(self) -> Kernel | None:
        """The kernel of some of the samples, in memory; None where all of them are."""
        if self.batch == 1:
            return None
        return Kernel(*self._some, prior=self.prior, shards=self.shards)

    def _median(self, values: Tensor) -> float:
        """Upper median of positive numbers over all shards, 0 of none.

        Their bits, as integers, are in the same order: three of them an exchange.
        """
        if self.shards is ALONE:
            place = len(values) // 2 + 1
            return float(values.kthvalue(place).values) if len(values) else 0.0
        bits, how = values.view(torch.int64), [math.fsum] * 7
        (count,) = self.shards.reduce(lambda: [float(len(bits))])
        low = 0
        for place in range(60, -1, -3):
            cuts = [low + (digit << place) for digit in range(1, 8)]
            below = self.shards.reduce(partial(_below, bits, cuts), how)
            low += sum(number <= count // 2 for number in below) << place
        return float(torch.tensor(low).view(torch.float64)) if count else 0.0

    def evaluate(self, beta: float) -> Evaluation:
        """Value, slope, curvature and power sums of J at a finite beta >= 0."""
        return self.evaluate_all([beta])[0]

    def evaluate_all(
        self, betas: Sequence[float], *, columns: bool = True, samples: bool = True
    ) -> list[Evaluation]:
        """The same at several of them in one pass.

        Without `columns` there are no power sums, only their moments, without `samples`
        no contributions.
        """
        how: list[Reduction] = [math.fsum] * _SUMMED
        if not columns:
            how += _MOMENTS
        height, chunk_size = 3 * self.num_views + 3, self._buffers.shape[1]
        width = self._size if columns else chunk_size
        sums = [self._new(height, width) for _ in betas]
        per_sample = [self._new(self._size if samples else chunk_size) for _ in betas]

        def local() -> list[float]:
            parts: list[list[Tensor]] = [[] for _ in betas]
            for rows, chunk in self._chunks():
                first = slice(rows.stop - rows.start)
                for v, beta in enumerate(betas):
                    own = per_sample[v][rows if samples else first]
                    part = sums[v][:, rows if columns else first]
                    sizes = self._fill(beta, rows, chunk, own, part)
                    if not columns:
                        sizes = torch.cat([sizes, self._spreads(rows, part)])
                    parts[v].append(sizes)
            self.passes += 1
            return [number for part in parts for number in _together(part, how)]

        numbers = self.shards.reduce(local, how * len(betas))
        step = len(how)
        points = []
        for v, beta in enumerate(betas):
            own = numbers[step * v : step * (v + 1)]
            value, d, slope_of_c, slope_of_d, curvature, size_of_c = (
                total / self.num_samples for total in own[:_SUMMED]
            )
            if math.isnan(value):
                raise ValueError(
                    "logits: expected the same finite numbers in every pass, got NaN "
                    "in a later one; measure again when nobody changes them"
                )
            relative = self.relative_error
            points.append(
                Evaluation(
                    beta=beta,
                    value=value,
                    slope=slope_of_c - slope_of_d,
                    curvature=curvature,
                    convex=value + d,
                    concave=d,
                    concave_slope=slope_of_d,
                    rounding=self.rounding(size_of_c + d),
                    slope_rounding=relative * (abs(slope_of_c) + abs(slope_of_d)),
                    moments=None if columns else self._moments(own[_SUMMED:]),
                    per_sample=per_sample[v] if samples else None,
                    sums=sums[v] if columns else None,
                )
            )
        return points

    def _fill(
        self,
        beta: float,
        rows: slice,
        chunk: Sequence[Tensor],
        per_sample: Tensor,
        part: Tensor,
    ) -> Tensor:
        """Columns of one chunk, and what they add up to."""
        joint, x, weight, product, term = self._buffers[:, : rows.stop - rows.start]
        for place, view in enumerate(chunk):
            first = view
            if self._kept is None:
                first = x if place else joint
                first.copy_(view).sub_(self._tops[place, rows, None])
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
        torch.sub(convex, concave, out=per_sample)
        columns = torch.stack(
            (per_sample, concave, slope_c, slope_d, bend, convex.abs_())
        )
        if self._counts is not None:
            columns *= self._counts[rows]
        return columns.sum(1)

    @cached_property
    def _widest(self) -> Tensor:
        return place_of_largest(self.ranges)

    @cached_property
    def narrow(self) -> Tensor:
        """Of each sample the sum of the ranges of all views but the widest."""
        return sum_without(self.ranges, self._widest)

    def _spreads(self, rows: slice, part: Tensor) -> Tensor:
        """The numbers of :class:`Moments` of one chunk."""
        widest, narrow = self._widest[:, rows], self.narrow[rows]
        squares = part[2::3] / part[0::3]
        own = squares.gather(0, widest)[0].sqrt_().add_(narrow)
        blend = narrow * (1.0 - 1.0 / part[0::3].gather(0, widest)[0])
        columns = torch.stack((squares.sum(0), blend))
        if self._counts is not None:
            columns *= self._counts[rows]
        return torch.cat([columns.sum(1), torch.stack([squares.max(), own.max()])])

    def _moments(self, numbers: Sequence[float]) -> Moments:
        size, blend, square, mixed = numbers
        return Moments(size / self.num_samples, blend / self.num_samples, square, mixed)

    def moments_of(self, point: Evaluation) -> Moments:
        """Moments of an evaluation, from its power sums if it has none."""
        if point.moments is None:
            sums = point.sums
            assert sums is not None

            def local() -> list[float]:
                parts = [self._spreads(rows, sums[:, rows]) for rows in self._slices]
                return _together(parts, _MOMENTS)

            point.moments = self._moments(self.shards.reduce(local, _MOMENTS))
        return point.moments

    @property
    def relative_error(self) -> float:
        """Bound on the relative rounding error of a sum over classes and a chunk.

        All sums have terms of one sign. A term x^k exp(beta x) that does not underflow
        has beta |x| <= 745, so its argument, rounded twice, costs 1490 u, the
        exponential and the factors 10 u more; terms that underflow are below 1e-307 and
        are covered by the same figure. Adding K terms in any order costs K u, adding
        the rows of a chunk one u a row; chunks are added exactly. Up to m + 1 sums over
        classes meet: one for each view and the joint one. Here u = 2^-53.
        """
        sums = (self.num_views + 1) * (self.num_classes + 1500)
        return UNIT_ROUNDOFF * (sums + self._rows + 100)

    def rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the m + 1 sums over classes become absolute errors
        of their logarithms. The logarithms themselves, the sum of the logits over
        the views and the sum over the rows of a chunk round relative to their sizes.
        """
        sums = (self.num_views + 1) * (self.num_classes + 1500) + 100
        rows = (self._rows + 16 + 2 * self.num_views) * (1.0 + self.cap + size)
        return UNIT_ROUNDOFF * (sums + rows)

    def _chunks(self) -> Iterator[tuple[slice, Sequence[Tensor]]]:
        """Slices of the samples, and their logits (shifted if they are kept)."""
        step, start = self._buffers.shape[1], 0
        blocks = self.source.blocks() if self._kept is None else [self._kept]
        for block in blocks:
            length = len(block[0])
            for low in range(0, length, step):
                high = min(low + step, length)
                rows = slice(start + low, start + high)
                yield rows, [view[low:high] for view in block]
            start += length

    def _new(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device=self.device)

    @staticmethod
    def _power_sums(
        x: Tensor, weight: Tensor, classes: Tensor, term: Tensor, out: Tensor
    ) -> None:
        torch.mv(weight, classes, out=out[0])
        torch.mul(weight, x, out=term)
        torch.mv(term, classes, out=out[1])
        torch.mv(term.mul_(x), classes, out=out[2])

    def _sum(self, column: Tensor) -> float:
        """Sum of a column of this process: chunks summed by torch, then exactly."""
        if self._counts is not None:
            column = column * self._counts
        parts = [column[rows].sum() for rows in self._slices]
        return math.fsum(torch.stack(parts).tolist()) if parts else 0.0

    def mean(self, column: Tensor) -> float:
        """Mean over all samples of a per-sample column."""
        return self.shards.reduce(lambda: [self._sum(column)])[0] / self.num_samples

    def totals(self, *columns: Tensor) -> Sequence[float]:
        """Sums over all samples of per-sample columns."""
        if self._counts is not None:
            columns = tuple(column * self._counts for column in columns)
        how = [math.fsum] * len(columns)
        return self.shards.reduce(
            lambda: [float(column.sum()) for column in columns], how
        )

    def largest(self, *columns: Tensor) -> Sequence[float]:
        """Maxima over all samples of per-sample columns."""
        return self.shards.reduce(
            lambda: [float(c.max()) if len(c) else -math.inf for c in columns],
            [max] * len(columns),
        )

    @property
    def surplus(self) -> float:
        """Sum of the weights of the classes over the least of them, less 1."""
        return float(self._weights.sum() / self._weights.min()) - 1.0


def _below(values: Tensor, cuts: Sequence[int]) -> list[float]:
    return [float((values < cut).sum()) for cut in cuts]


def _together(parts: Sequence[Tensor], how: Sequence[Reduction]) -> list[float]:
    """What the chunks give: added exactly, so only the sums inside a chunk round."""
    if not parts:
        return [0.0 if one is math.fsum else -math.inf for one in how]
    columns = torch.stack(list(parts)).T.tolist()
    return [one(column) for one, column in zip(how, columns, strict=True)]


def place_of_largest(rows: Tensor) -> Tensor:
    """Places (1, N) of the largest entries of columns (m, N), where argmax is slow."""
    place = torch.zeros_like(rows[:1], dtype=torch.int64)
    top = rows[0]
    for row in range(1, len(rows)):
        place[0, rows[row] > top] = row
        top = torch.maximum(top, rows[row])
    return place


def sum_without(rows: Tensor, place: Tensor) -> Tensor:
    """Sums of columns (m, N) without one entry each: differences of sums may cancel."""
    return rows.scatter(0, place, 0.0).sum(0)


def check_weights(num_views: int, num_classes: int, prior: Tensor | None) -> None:
    """Refuse more views than the weights of the classes, pi^(1-m), allow."""
    rarest = 1.0 / num_classes if prior is None else float(prior.min())
    most = int((math.log(LARGEST_WEIGHT) + 1e-9) / -math.log(rarest))
    if num_views - 1 > most:
        raise ValueError(
            f"views: expected at most {most + 1}, with classes as rare as {rarest:g}, "
            f"got {num_views}"
        )
