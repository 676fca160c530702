"""The agreement kernel J = C - D, evaluated in chunks with bounded rounding.

With the logits of each of m views shifted so that the largest of each sample is 0
(x^v = F^v - max F^v), prior pi and inverse temperature beta,

    C_i(beta) = log sum_j pi_j^(1-m) exp(beta sum_v x^v_ij)      (convex)
    D_i(beta) = sum_v log sum_j exp(beta x^v_ij)                 (convex)
    J(beta)   = mean_i [C_i(beta) - D_i(beta)]

One pass over the data takes one exponential per class, sample and view: the joint
term is their product. A pass returns the values, the slopes and the moments
from which :mod:`robustbook.agreement.solver._bounds` builds its upper bounds.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Final

import torch
from torch import Tensor

from robustbook._checks.arguments import LARGEST_LOGIT
from robustbook.agreement.solver._columns import (
    SUMMED,
    columns_of,
    exponential,
    power_sums,
)
from robustbook.agreement.solver._evaluation import (
    MOMENTS,
    Evaluation,
    Moments,
    spreads,
)
from robustbook.agreement.solver._first_pass import first_pass
from robustbook.agreement.solver._shards import ALONE, Reduction, Shards
from robustbook.agreement.solver._streams import InMemory, Source
from robustbook.agreement.solver._sums import (
    UNIT_ROUNDOFF,
    add_up,
    median,
    place_of_largest,
    relative_error,
    sum_without,
    terms,
    together,
)
from robustbook.agreement.solver._votes import Pattern, share_of_split

#: Entries of one view in a chunk: on a CPU, the buffers fit into a core's cache.
CHUNK_ENTRIES = {"cpu": 2**17, "cuda": 2**22}
#: Problems of at most this many entries keep their shifted logits in float64.
KEPT_ENTRIES = 2**18
#: Problems of at most this many entries keep power sums of each sample.
SMALL_ENTRIES = 2**18
#: A product of exponentials of at least exp(-this) has kept its leading terms:
#: what underflows (below exp(-745)) is smaller by exp(-170) at least.
LARGEST_EXPONENT = 575.0
#: Logits of a typical sample must differ by this: their squares must not underflow.
SMALLEST_SCALE = 1e-130
#: Weights of classes, pi_j^(1-m), beyond this are refused: their sums could overflow.
LARGEST_WEIGHT = 1e100
#: Logarithms of weights beyond this may overflow in single precision.
LARGEST_LOG_WEIGHT: Final = 60.0
#: Evaluations in one pass over logits that are not in memory.
STREAMED_BATCH: Final = 6
#: About so many entries, and at least so many samples, make a smaller problem whose
#: solution says where to evaluate a large one.
SAMPLE_ENTRIES: Final = 2**14
SAMPLE_ROWS: Final = 256


class Kernel:
    """J for checked arrays: statistics once, then :meth:`evaluate`.

    `counts` says how often each sample counts. With soft `labels` (N, K), rows that sum
    to 1, one view is measured against them: C_i = log sum_j K q_ij exp(beta x_ij). The
    samples may come from a `source`
    instead of arrays, and be those of one of several `shards`: then every number here
    is that of all of them, and every tensor holds the samples of this process.
    """

    def __init__(
        self,
        *views: Tensor,
        prior: Tensor | None = None,
        counts: Tensor | None = None,
        labels: Tensor | None = None,
        source: Source | None = None,
        shards: Shards = ALONE,
    ) -> None:
        self.source = InMemory(views) if source is None else source
        self.shards = shards
        self.prior = prior
        self.num_views = self.source.num_views
        self.num_classes = self.source.num_classes
        self.device = self.source.device
        self.counts = counts
        #: K q, where answers of one view are compared with soft labels q.
        self.labels = None if labels is None else labels * self.num_classes
        self.uniform = labels is None
        if prior is not None:
            self.uniform = bool((prior == prior[0]).all())
        self.ones = self.new(self.num_classes).fill_(1.0)
        others = self.num_views - 1
        if prior is None:
            self.weights = self.ones * self.num_classes**others
        else:
            self.weights = reduce(operator.mul, [1.0 / prior] * others)
        # A rare class may lead by its weight where its product is far smaller.
        low, high = float(self.weights.min()), float(self.weights.max())
        #: J never exceeds this, nor, without labels, does a sample's contribution.
        self.cap = math.log(high)
        if self.labels is not None:
            low, high = float(self.labels[self.labels > 0].min()), self.num_classes
            self.cap = float(self.labels.amax(1).log().mean())
        self.largest_exponent = LARGEST_EXPONENT - math.log(high / low)
        self.largest_log = max(abs(math.log(low)), math.log(high * self.num_classes))
        #: J(0): all posteriors are uniform. Zero without a prior, never below.
        self.total_weight = math.fsum(self.weights.tolist())
        self.surplus = self.total_weight / low - 1.0
        self.value_at_zero = math.log(
            self.total_weight / self.num_classes**self.num_views
        )
        self._make_room()
        self._summarize()

    def _make_room(self) -> None:
        """Buffers for a chunk; small problems are shifted once and for all."""
        entries = CHUNK_ENTRIES.get(self.device.type, CHUNK_ENTRIES["cuda"])
        self._chunk = max(1, entries // self.num_classes)
        if self.source.num_samples is not None:
            self._chunk = min(max(1, self.source.num_samples), self._chunk)
        #: The shifted logits of all samples, where they are few.
        self.kept: Tensor | None = None
        arrays = self.source.views if isinstance(self.source, InMemory) else ()
        if arrays and arrays[0].numel() <= KEPT_ENTRIES:
            self.kept = self.new(self.num_views + 1, *arrays[0].shape)
        self._rooms: dict[tuple[int, torch.dtype], Tensor] = {}
        #: How many evaluations a pass is worth.
        self._own_batch = 1 if arrays else STREAMED_BATCH

    def room(
        self, place: int, samples: int, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """A buffer for numbers of each view and of their sum, (m + 1, n, K)."""
        shape = self.num_views + 1, samples, self.num_classes
        key = place, dtype
        if key not in self._rooms:
            size = shape[0] * self._chunk * shape[2]
            self._rooms[key] = torch.empty(size, dtype=dtype, device=self.device)
        return self._rooms[key][: math.prod(shape)].view(shape)

    def _summarize(self) -> None:
        """One pass without exponentials: maxima, ties, votes, scales, and beta = 0."""
        some = max(SAMPLE_ROWS, SAMPLE_ENTRIES // self.num_classes)
        # Of a problem that is small, or not surveyed anyway, none need be kept.
        known = self.source.num_samples if self.shards is ALONE else None
        needless = known is not None and known <= 8 * some
        needless = needless or self.labels is not None or self.counts is not None
        kept = 0 if needless else math.ceil(some / self.shards.size)

        def look() -> tuple[float, int, int, bool, Counter[Pattern]]:
            self.first = own = first_pass(self, kept)
            size = len(own.depth)
            total = float(size if self.counts is None else self.counts.sum())
            idle = own.everything_idle
            return total, own.longest, self._own_batch, idle, own.votes

        summaries = self.shards.gather(look)
        self.passes = 1
        sizes, rows, batches, idle, votes = zip(*summaries, strict=True)
        #: N, all shards together.
        self.num_samples = round(math.fsum(sizes))
        #: Whether power sums of each sample are kept between evaluations.
        self.small = self.num_samples * self.num_classes <= SMALL_ENTRIES
        self.small = self.small or self.counts is not None
        #: Whether a few samples cost little beside all, and float32 holds the weights.
        self.surveyed = not (self.small or needless) and self.num_samples > 8 * some
        self.surveyed = self.surveyed and self.largest_log <= LARGEST_LOG_WEIGHT
        #: How many evaluations a pass is worth.
        self.batch = max(batches)
        # Bounds on rounding depend on it, and must be the same everywhere.
        self._row_terms = terms(max(rows))
        self.relative_error = relative_error(
            self.num_views, self.num_classes, self._row_terms
        )
        self.everything_idle = all(idle)
        #: How often each pattern of predictions occurs, as `_votes` has them.
        self.votes: Counter[Pattern] = sum(votes, Counter())
        first = self.first
        #: The slope of C, and so of J, for beta to infinity is minus this.
        self.depth = self.mean(first.depth)
        (self.deepest,) = self.largest(first.depth)
        #: The floor that D falls to for beta to infinity.
        self.concave_limit = self.mean(first.concave_limit)
        #: J at infinity, per sample; None where the supremum is not there.
        self.limit = first.limit if self.depth == 0.0 else None
        #: Mean distance of a logit from the largest, in a typical sample: a first
        #: guess of where things happen.
        self.scale = median(first.distances, self.shards) / self.num_classes or 1.0
        if self.scale < SMALLEST_SCALE:
            raise ValueError(
                f"logits: expected differences of at least {SMALLEST_SCALE:g} within a "
                f"typical sample, got {self.scale:g}; multiply all logits by one "
                f"constant first (posterior agreement does not change)"
            )
        #: The evaluation at beta = 0, which needs no other pass.
        self.start = self._evaluation_at_zero()

    @cached_property
    def ranges(self) -> Tensor:
        """Distances of the smallest logits from the largest, (m, N): one more pass."""
        size = self.num_views, len(self.first.depth)
        ranges = self.new(*size)

        def local() -> list[float]:
            for rows, x in self.stacks():
                torch.neg(x[:-1].amin(2), out=ranges[:, rows])
            return [0.0]

        self.shards.reduce(local)
        self.passes += self.kept is None
        return ranges if self.first.active is None else ranges * self.first.active

    @cached_property
    def widest(self) -> Tensor:
        """Of each sample the place of the view with the largest range, (1, N)."""
        return place_of_largest(self.ranges)

    @cached_property
    def narrow(self) -> Tensor:
        """Of each sample the sum of the ranges of all views but the widest."""
        return sum_without(self.ranges, self.widest)

    @property
    def mismatch(self) -> float:
        """Share of samples on which not all predictions (first argmax) coincide."""
        return share_of_split(self.votes, by_class=self.prior is not None)

    def _evaluation_at_zero(self) -> Evaluation:
        first, how = self.first, [math.fsum] * SUMMED
        sums, per_sample = first.sums, self.new(len(first.depth))

        def local() -> list[float]:
            parts = [
                columns_of(
                    self,
                    0.0,
                    rows,
                    sums[..., rows],
                    first.depth[rows],
                    per_sample[rows],
                )
                for rows in first.slices
            ]
            return together(parts, how)

        numbers = self.shards.reduce(local, how)
        first.sums = sums[..., :0]
        return self._evaluation(0.0, numbers, per_sample, sums)

    def of_some(self) -> Kernel:
        """The kernel of some of the samples, in memory, which is not surveyed again."""
        kernel = Kernel(*self.first.some, prior=self.prior, shards=self.shards)
        kernel.surveyed = False
        return kernel

    def evaluate(self, beta: float) -> Evaluation:
        """Value, slope, curvature and moments of J at a finite beta >= 0."""
        return self.evaluate_all([beta])[0]

    def evaluate_all(
        self,
        betas: Sequence[float],
        *,
        columns: bool = True,
        moments: bool = False,
        samples: bool = True,
    ) -> list[Evaluation]:
        """The same at several inverse temperatures in one pass.

        With `moments` of all samples, with `columns` those of each; without `samples`
        no contributions.
        """
        how: list[Reduction] = [math.fsum] * SUMMED
        if moments:
            # A pass of their own, before this one.
            _ = self.narrow
            how += MOMENTS
        size = len(self.first.depth)
        height, width = self.num_views + 1, size if columns else self._chunk
        # Rows of columns that are not kept are overwritten by the next ones.
        kept = [self.new(3, height, width) for _ in (betas if columns else betas[:1])]
        sums = kept if columns else kept * len(betas)
        per_sample = [self.new(size if samples else self._chunk) for _ in betas]

        def local() -> list[float]:
            parts: list[list[Tensor]] = [[] for _ in betas]
            for rows, x in self.stacks():
                first = slice(rows.stop - rows.start)
                for place, beta in enumerate(betas):
                    weight = exponential(self, rows, x, beta)
                    part = sums[place][..., rows if columns else first]
                    own = per_sample[place][rows if samples else first]
                    power_sums(self, x, weight, part)
                    totals = columns_of(
                        self, beta, rows, part, self.first.depth[rows], own
                    )
                    if moments:
                        totals = torch.cat([totals, self._spreads(rows, part)])
                    parts[place].append(totals)
            self.passes += 1
            return [number for part in parts for number in together(part, how)]

        numbers = self.shards.reduce(local, how * len(betas))
        step = len(how)
        return [
            self._evaluation(
                beta,
                numbers[step * place : step * (place + 1)],
                per_sample[place] if samples else None,
                sums[place] if columns else None,
            )
            for place, beta in enumerate(betas)
        ]

    def _evaluation(
        self,
        beta: float,
        numbers: Sequence[float],
        per_sample: Tensor | None,
        columns: Tensor | None,
    ) -> Evaluation:
        """What the sums over all samples say."""
        c, d, slope_of_c, slope_of_d, curvature = (
            total / self.num_samples for total in numbers[:SUMMED]
        )
        if math.isnan(c) or math.isnan(d):
            raise ValueError(
                "logits: expected the same finite numbers in every pass, got NaN "
                "in a later one; measure again when nobody changes them"
            )
        moments = None
        if len(numbers) > SUMMED:
            moments = Moments.of(numbers[SUMMED:], self.num_samples)
        # |C| of a sample is at most this, on average.
        size = self.largest_log + beta * self.depth
        return Evaluation(
            beta=beta,
            value=c - d,
            slope=slope_of_c - slope_of_d,
            curvature=curvature,
            convex=c,
            concave=d,
            concave_slope=slope_of_d,
            rounding=self.rounding(size + d),
            slope_rounding=self.relative_error * (abs(slope_of_c) + abs(slope_of_d)),
            moments=moments,
            per_sample=per_sample,
            columns=columns,
        )

    def stacks(self) -> Iterator[tuple[slice, Tensor]]:
        """The shifted logits of each chunk: of all views, and of their sum."""
        if self.kept is not None:
            for rows in self.first.slices:
                yield rows, self.kept[:, rows]
            return
        for rows, chunk in self.chunks():
            x = self.room(0, rows.stop - rows.start)
            self.shift(chunk, self.first.tops[:, rows], x)
            self.lift(x[-1], self.first.depth[rows])
            yield rows, x

    def shift(self, chunk: Sequence[Tensor], tops: Tensor, x: Tensor) -> None:
        """Fill x with the views of a chunk, of largest logit 0, and with their sum."""
        for place, view in enumerate(chunk):
            x[place].copy_(view).sub_(tops[place, :, None])
        if len(chunk) == 1:
            x[1] = x[0]
            return
        torch.add(x[0], x[1], out=x[-1])
        for view in x[2:-1]:
            x[-1].add_(view)

    def lift(self, joint: Tensor, depth: Tensor) -> None:
        """Add the depth to the sum of the views: of each sample the largest is 0."""
        joint.add_(depth[:, None])
        if self.labels is not None:
            # Classes without a label do not count; nothing may overflow there.
            joint.clamp_(-LARGEST_LOGIT, 0.0)

    def weigh(self, joint: Tensor, rows: slice) -> None:
        """Multiply terms of the sum of all views by the weights of their classes."""
        if self.labels is not None:
            joint.mul_(self.labels[rows])
        elif not self.uniform:
            joint.mul_(self.weights)

    def _spreads(self, rows: slice, columns: Tensor) -> Tensor:
        counts = None if self.counts is None else self.counts[rows]
        widest, narrow = self.widest[:, rows], self.narrow[rows]
        return spreads(columns, widest, narrow, counts)

    def moments_of(self, point: Evaluation) -> Moments:
        """Moments of an evaluation, from those of each sample if it has none."""
        if point.moments is None:
            columns = point.columns
            assert columns is not None

            def local() -> list[float]:
                slices = self.first.slices
                parts = [self._spreads(rows, columns[..., rows]) for rows in slices]
                return together(parts, MOMENTS)

            numbers = self.shards.reduce(local, MOMENTS)
            point.moments = Moments.of(numbers, self.num_samples)
        return point.moments

    def rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the m + 1 sums over classes become absolute errors
        of their logarithms. The logarithms themselves, the sum of the logits over
        the views and the sum over the rows of a chunk round relative to their sizes.
        """
        rows = self._row_terms + 16 + 2 * self.num_views
        return self.relative_error + UNIT_ROUNDOFF * rows * (1.0 + self.cap + size)

    def chunks(self) -> Iterator[tuple[slice, Sequence[Tensor]]]:
        """Slices of the samples, and their logits."""
        start = 0
        for block in self.source.blocks():
            length = len(block[0])
            for low in range(0, length, self._chunk):
                high = min(low + self._chunk, length)
                rows = slice(start + low, start + high)
                yield rows, [view[low:high] for view in block]
            start += length

    def new(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device=self.device)

    def mean(self, column: Tensor) -> float:
        """Mean over all samples of a per-sample column."""

        def local() -> list[float]:
            own = column if self.counts is None else column * self.counts
            parts = [add_up(own[None, rows]) for rows in self.first.slices]
            return together(parts, [math.fsum])

        return self.shards.reduce(local)[0] / self.num_samples

    def totals(self, *columns: Tensor) -> Sequence[float]:
        """Sums over all samples of per-sample columns."""
        if self.counts is not None:
            columns = tuple(column * self.counts for column in columns)
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
