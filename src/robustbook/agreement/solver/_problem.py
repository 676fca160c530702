"""Everything about a problem that does not depend on the inverse temperature.

One pass over the data without exponentials: the logits of each sample are shifted so
that the largest is 0, maxima and ties are counted, and the limit of J for beta to
infinity follows. All later passes go over the same chunks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import LARGEST_LOGIT
from robustbook.agreement.solver._sources import EvenRows, Source
from robustbook.agreement.solver._sums import (
    ALONE,
    Numbers,
    Reduction,
    Shards,
    Votes,
    add_up,
    count_votes,
    relative_error,
    terms,
    together,
)

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
#: Logarithms of weights beyond this may overflow in single precision.
LARGEST_LOG_WEIGHT = 60.0
#: Evaluations in one pass over logits that are not in memory.
STREAMED_BATCH = 6
#: About so many entries, and at least so many samples, make a smaller problem whose
#: solution says where to evaluate a large one.
SAMPLE_ENTRIES = 2**12
SAMPLE_ROWS = 256
#: A median of at least so many samples of each process, or of all.
MEDIAN_ROWS = 2**12


class TooSimilarError(ValueError):
    """The logits of a typical sample differ too little to set the scale."""


class Problem:
    """Checked arrays of logits, and the numbers that one pass over them gives.

    `counts` says how often each sample counts. With soft `labels` (N, K), rows that sum
    to 1, one view is measured against them: C_i = log sum_j K q_ij exp(beta x_ij). The
    samples may come from a `source` instead of arrays, and be those of one of several
    `shards`: then every number here is that of all of them, and every tensor holds the
    samples of this process.
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
        self.source = Source(views) if source is None else source
        self.shards, self.prior, self.counts = shards, prior, counts
        self.num_views = self.source.num_views
        self.num_classes = self.source.num_classes
        self.device = self.source.device
        self._weigh_classes(labels)
        size = self.source.num_samples
        entries = CHUNK_ENTRIES.get(self.device.type, CHUNK_ENTRIES["cuda"])
        self.chunk = max(1, min(entries // self.num_classes, size or entries))
        self._rooms: dict[tuple[int, torch.dtype], Tensor] = {}
        rows = max(SAMPLE_ROWS, SAMPLE_ENTRIES // self.num_classes)
        # A problem that is known to be small, or is not surveyed anyway, has no use for
        # a subsample.
        small = shards is ALONE and size is not None and size <= 8 * rows
        needless = small or labels is not None or counts is not None
        wanted = 0 if needless else math.ceil(rows / shards.size)
        self.passes = 1
        summaries = shards.gather(lambda: self._first_pass(wanted))
        sizes, longest, batches, idle, votes = zip(*summaries, strict=True)
        #: N, all shards together.
        self.num_samples = round(math.fsum(sizes))
        #: Whether power sums of each sample are kept between evaluations.
        self.small = self.num_samples * self.num_classes <= SMALL_ENTRIES
        self.small = self.small or counts is not None
        #: Whether a subsample costs little beside all, and float32 holds the weights.
        self.surveyed = not (self.small or needless) and self.num_samples > 8 * rows
        self.surveyed = self.surveyed and self.largest_log <= LARGEST_LOG_WEIGHT
        #: How many evaluations are made in one pass.
        self.batch = max(batches)
        self.everything_idle = all(idle)
        #: How often views vote for the same classes.
        self.votes: Counter[Votes] = sum(votes, Counter())
        # Bounds on rounding depend on it, and must be the same everywhere.
        self.row_terms = terms(max(longest))
        self.relative_error = relative_error(
            self.num_views, self.num_classes, self.row_terms
        )
        self._summarize()

    def _weigh_classes(self, labels: Tensor | None) -> None:
        """Set the weights of the classes in C, and the bounds on J that follow."""
        classes, others = self.num_classes, self.num_views - 1
        self.ones = self.new(classes).fill_(1.0)
        #: K q, where answers of one view are compared with soft labels q.
        self.labels = None if labels is None else labels * classes
        weights = [float(classes**others)] * classes
        if self.prior is not None:
            weights = [math.prod([1.0 / p] * others) for p in self.prior.tolist()]
        self.uniform = labels is None and len(set(weights)) == 1
        self.weights = torch.tensor(weights, dtype=torch.float64, device=self.device)
        # A rare class may lead by its weight where its product is far smaller.
        low, high, total = min(weights), max(weights), math.fsum(weights)
        #: J never exceeds this, nor, without labels, does a sample's contribution.
        self.cap = math.log(high)
        if self.labels is not None:
            low, high = float(self.labels[self.labels > 0].min()), classes
            self.cap = float(self.labels.amax(1).log().mean())
        self.largest_exponent = LARGEST_EXPONENT - math.log(high / low)
        self.largest_log = max(abs(math.log(low)), math.log(high * classes))
        #: The sum of all weights over the least, less 1.
        self.surplus = total / low - 1.0
        #: J(0): all posteriors are uniform. Zero without a prior, never below.
        self.value_at_zero = math.log(total / classes**self.num_views)

    def _first_pass(self, wanted: int) -> tuple[int, int, int, bool, Counter[Votes]]:
        """Look at all samples of this process once; keep a subsample of about `wanted`.

        Columns of the samples are set: ``tops`` (m, N), the largest logits; ``depths``,
        how far the largest sum of all shifted logits is below 0; ``limits`` and
        ``concave_limits``, J and D at infinity; ``active``, which samples are not idle,
        or None if none is. ``sums``, shape (3, m + 1, N), has the sums over the classes
        of 1, x and x^2.
        """
        views, votes = self.num_views, Counter[Votes]()
        shapes = (views,), (views,), (), (), (3, views + 1)
        parts = [tuple(self.new(*shape, 0) for shape in shapes)]
        subsample = EvenRows((self.new(0, self.num_classes),) * views, wanted)
        self.slices: list[slice] = []
        in_memory = sum(view.numel() for view in self.source.views[:1])
        #: The shifted logits of each chunk, where there are few samples.
        self.kept: list[Tensor] | None = [] if 0 < in_memory <= KEPT_ENTRIES else None
        for rows, chunk in self._chunks():
            part, patterns = self._look(rows, chunk)
            parts.append(part)
            votes += patterns
            self.slices.append(rows)
            subsample.add(rows.start, chunk)
        self.subsample = subsample.rows
        self.tops, ties, self.depths, limits, self.sums = (
            column[1] if len(column) == 2 else torch.cat(column, -1)
            for column in zip(*parts, strict=True)
        )
        # A sample with constant logits in all views but one contributes exactly 0 at
        # every beta when the prior is uniform, as its convex parts are equal.
        idle = (ties == self.num_classes).sum(0) >= views - 1
        self.active = ~idle if self.uniform and bool(idle.any()) else None
        self.concave_limits = ties.prod(0).log_()
        self.limits = limits.log() - self.concave_limits
        if self.active is not None:
            self.concave_limits *= self.active
            self.limits = torch.where(self.active, self.limits, 0.0)
        size = len(self.depths)
        silent = size == 0 or (self.uniform and bool(idle.all()))
        longest = max((rows.stop - rows.start for rows in self.slices), default=1)
        total = size if self.counts is None else int(self.counts.sum())
        batch = 1 if self.source.views else STREAMED_BATCH
        return total, longest, batch, silent, votes

    def _look(
        self, rows: slice, chunk: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Counter[Votes]]:
        """Columns of one chunk: tops, ties, depths, limits, sums at beta = 0."""
        samples = rows.stop - rows.start
        tops = torch.stack([view.amax(1) for view in chunk]).double()
        if self.kept is None:
            x = self.room(0, samples)
        else:
            x = self.new(self.num_views + 1, *chunk[0].shape)
            self.kept.append(x)
        self._shift(chunk, tops, x)
        # Only entries that equal the maximum exactly are 0 after the shift, and the sum
        # of all views where all are.
        tied, joint = torch.eq(x, 0.0, out=self.room(1, samples)), x[-1]
        if self.labels is not None:
            joint[self.labels[rows] == 0.0] = -torch.inf
        depths = joint.amax(1).neg_()
        self._lift(joint, depths)
        self.weigh(tied[-1], rows)
        counted = tied @ self.ones
        ties, limits = counted[:-1], counted[-1]
        # At beta = 0 the weights are those of the classes, 1 if they are alike.
        sums = self.new(3, self.num_views + 1, samples)
        if self.uniform:
            limits = limits * self.weights[0]
            sums[0], sums[1] = self.num_classes, x @ self.ones
            sums[2] = torch.mul(x, x, out=tied) @ self.ones
        else:
            self.weigh(tied.fill_(1.0)[-1], rows)
            self.power_sums(x, tied, sums)
        votes = count_votes(chunk, ties, depths, by_class=self.prior is not None)
        return (tops, ties, depths, limits, sums), votes

    def _summarize(self) -> None:
        """Turn columns of the first pass into numbers of all samples."""
        #: The slope of C, and so of J, for beta to infinity is minus this.
        depth, concave_limit = self.totals(self.depths, self.concave_limits)
        self.depth = depth / self.num_samples
        (self.deepest,) = self.largest(self.depths)
        #: The floor that D falls to for beta to infinity.
        self.concave_limit = concave_limit / self.num_samples
        #: J at infinity, per sample; None where the supremum is not there.
        self.limit = self.limits if self.depth == 0.0 else None
        distances = -self.sums[1, :-1].sum(0)
        some = distances[:: 1 + len(distances) // MEDIAN_ROWS]
        positive = torch.cat(self.shards.gather(lambda: some[some > 0.0].cpu()))
        typical = (
            positive.kthvalue(len(positive) // 2 + 1).values if len(positive) else 0
        )
        #: Mean distance of a logit from the largest, in a typical sample: a first
        #: guess of where things happen.
        self.scale = float(typical) / self.num_classes or 1.0
        if self.scale < SMALLEST_SCALE:
            raise TooSimilarError(
                f"logits: expected differences of at least {SMALLEST_SCALE:g} within a "
                f"typical sample, got {self.scale:g}; multiply all logits by one "
                f"constant first (posterior agreement does not change)"
            )

    def power_sums(self, x: Tensor, weights: Tensor, sums: Tensor) -> None:
        """Sums of x^k times the weights, k = 0, 1, 2; the weights are overwritten."""
        sums[0] = weights @ self.ones
        for out in sums[1:]:
            out.copy_(weights.mul_(x) @ self.ones)

    def weigh(self, joint: Tensor, rows: slice) -> None:
        """Multiply terms of the sum of all views by the weights of their classes."""
        if self.labels is not None:
            joint.mul_(self.labels[rows])
        elif not self.uniform:
            joint.mul_(self.weights)

    def stacks(self) -> Iterator[tuple[slice, Tensor]]:
        """The shifted logits of each chunk: of all views, and of their sum."""
        if self.kept is not None:
            yield from zip(self.slices, self.kept, strict=True)
            return
        for rows, chunk in self._chunks():
            x = self.room(0, rows.stop - rows.start)
            self._shift(chunk, self.tops[:, rows], x)
            self._lift(x[-1], self.depths[rows])
            yield rows, x

    def _chunks(self) -> Iterator[tuple[slice, Sequence[Tensor]]]:
        """Slices of the samples, and their logits."""
        start = 0
        for block in self.source.blocks():
            length = len(block[0])
            for low in range(0, length, self.chunk):
                high = min(low + self.chunk, length)
                rows = slice(start + low, start + high)
                yield rows, [view[low:high] for view in block]
            start += length

    def _shift(self, chunk: Sequence[Tensor], tops: Tensor, x: Tensor) -> None:
        """Fill x with the views of a chunk, of largest logit 0, and with their sum."""
        for place, view in enumerate(chunk):
            if view.dtype == x.dtype:
                torch.sub(view, tops[place, :, None], out=x[place])
            else:
                x[place].copy_(view).sub_(tops[place, :, None])
        if len(chunk) == 1:
            x[1] = x[0]
            return
        torch.add(x[0], x[1], out=x[-1])
        for view in x[2:-1]:
            x[-1].add_(view)

    def _lift(self, joint: Tensor, depths: Tensor) -> None:
        """Add the depth to the sum of the views: of each sample the largest is 0."""
        joint.add_(depths[:, None])
        if self.labels is not None:
            # Classes without a label do not count; nothing may overflow there.
            joint.clamp_(-LARGEST_LOGIT, 0.0)

    def room(
        self, place: int, samples: int, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """A buffer for numbers of each view and of their sum, (m + 1, n, K)."""
        shape = self.num_views + 1, samples, self.num_classes
        key = place, dtype
        if key not in self._rooms:
            size = shape[0] * self.chunk * shape[2]
            self._rooms[key] = torch.empty(size, dtype=dtype, device=self.device)
        return self._rooms[key][: math.prod(shape)].view(shape)

    def new(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device=self.device)

    def reduce_chunks(
        self,
        chunks: Callable[[], Iterable[Any]],
        numbers: Callable[..., Tensor],
        how: Sequence[Reduction],
    ) -> Numbers:
        """Numbers of each chunk, added up (or their maxima) over chunks and shards."""
        return self.shards.reduce(
            lambda: together([numbers(*chunk) for chunk in chunks()], how), how
        )

    def rows(self) -> Iterator[tuple[slice]]:
        """The chunks of a pass over columns of the samples alone."""
        return ((rows,) for rows in self.slices)

    def mean(self, column: Tensor) -> float:
        """Mean over all samples of a per-sample column."""
        return self.totals(column)[0] / self.num_samples

    def totals(self, *columns: Tensor) -> Numbers:
        """Sums over all samples of per-sample columns."""
        table = torch.stack(columns)
        table = table if self.counts is None else table * self.counts
        return self.reduce_chunks(
            self.rows, lambda rows: add_up(table[:, rows]), (math.fsum,) * len(columns)
        )

    def largest(self, *columns: Tensor) -> Numbers:
        """Maxima over all samples of per-sample columns."""
        return self.shards.reduce(
            lambda: [float(c.max()) if len(c) else -math.inf for c in columns],
            [max] * len(columns),
        )
