"""Posterior agreement as a torchmetrics metric: batches in, exact measure out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_choice,
    check_count,
    check_positive,
    check_prior,
    check_views,
)
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision
from robustbook.agreement._measure import posterior_agreement
from robustbook.agreement._result import Agreement

mend_torchvision()
with extra("metric"):
    from torchmetrics import Metric

_FIELDS: Final = ("pa", "beta", "standard_error", "hard_part", "confidence_part")


class PosteriorAgreement(Metric):
    """Posterior agreement over batches and processes.

    The measure needs all pairs at once (its temperature is shared), so the logits are
    kept. Under distributed data parallelism they stay where they are: the processes
    exchange a few numbers an evaluation; unequal shards are fine. Several shifts or
    models take a metric each, for example in a :class:`torch.nn.ModuleDict`. Source:
    the thesis, section 3.6.3, with the exact solver of Chapter 7.

    Parameters
    ----------
    prior, tol
        As :func:`posterior_agreement` takes them.
    num_views : int, default 2
        Arrays that an update takes: clean and shifted logits, and more.
    value : {"pa", "beta", "standard_error", "hard_part", "confidence_part", "low", \
            "high"}, optional
        The one number to compute, for arithmetic such as ``metric + 1``, for loggers
        and for ``torchmetrics.MetricTracker(metric, maximize=True)``. All of them in
        a dict if left out.
    **kwargs
        Passed to :class:`torchmetrics.Metric`. With ``sync_on_compute=False`` every
        process measures its own samples.

    Examples
    --------
    >>> metric = PosteriorAgreement()
    >>> metric.update(torch.eye(3), torch.eye(3))
    >>> metric.update(torch.eye(3), torch.eye(3)[[1, 0, 2]])
    >>> round(float(metric.compute()["pa"]), 4)
    0.231

    Lightning logs a metric of one value, here from the hooks of a LightningModule::

        def __init__(self):
            super().__init__()
            self.pa = PosteriorAgreement(value="pa")

        def validation_step(self, batch, index):
            self.pa.update(self(batch["clean"]), self(batch["shifted"]))
            self.log("pa", self.pa)
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    def __init__(
        self,
        *,
        prior: Any = None,
        tol: float = 1e-9,
        num_views: int = 2,
        value: str | None = None,
        sync_on_compute: bool = True,
        **kwargs: Any,
    ) -> None:
        # torchmetrics would gather the logits; the measure exchanges sums instead.
        super().__init__(sync_on_compute=False, **kwargs)
        self._across_processes = sync_on_compute
        self.tol = check_positive("tol", tol)
        if prior is not None:
            weights = as_tensor("prior", prior)
            prior = check_prior(weights, weights.numel(), weights.device)
        self.prior = prior
        choices = (*_FIELDS, "low", "high")
        self.value = None if value is None else check_choice("value", value, choices)
        count = check_count("num_views", num_views, minimum=2)
        more = (f"view_{v}" for v in range(2, count))
        self._names = ["logits", "shifted_logits", *more]
        for name in self._names:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, logits: Any, shifted_logits: Any, *more: Any) -> None:
        """Add a batch of logits of the same inputs, shapes (n, K); n may be 0."""
        for name, view in zip(
            self._names, self._checked(logits, shifted_logits, *more), strict=True
        ):
            if len(view):
                # A copy: the caller may fill the same buffer with the next batch.
                getattr(self, name).append(view.clone())

    def forward(self, logits: Any, shifted_logits: Any, *more: Any) -> Any:
        """Add a batch and return its own values: NaN for a batch without samples."""
        batch = self._checked(logits, shifted_logits, *more)
        group = self._group() if self.dist_sync_on_step else None
        empty = group is None and not len(batch[0])
        self._forward_cache = self._values(None if empty else self._solve(batch, group))
        self.update(*batch)
        return self._forward_cache

    def compute(self) -> Any:
        """Return the measure, for loggers.

        Returns
        -------
        dict of str to Tensor, or Tensor
            Scalars: ``pa``, ``standard_error``, ``hard_part``, ``confidence_part``,
            ``low`` and ``high``, the ends of :meth:`Agreement.interval`, (nats per
            sample) and ``beta`` (1 / logit); with a `value`, that one.
        """
        return self._values(self.agreement())

    def agreement(self) -> Agreement:
        """Return the full :class:`Agreement` of the batches so far."""
        group, empty = self._group(), torch.empty((0, 0), device=self.device)
        states = [getattr(self, name) for name in self._names]
        if group is None and not len(states[0]):
            raise ValueError(
                "PosteriorAgreement: expected at least one update before compute, got "
                "none"
            )
        # A state that torchmetrics merged is one tensor already.
        views = [
            state if isinstance(state, Tensor) else torch.cat(state or [empty])
            for state in states
        ]
        return self._solve(views, group)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw one value or a list of them, as the metrics of torchmetrics do."""
        return self._plot(val, ax)

    def _checked(self, *views: Any) -> tuple[Tensor, ...]:
        """The batch, if it goes with those before."""
        if len(views) != len(self._names):
            raise TypeError(
                f"PosteriorAgreement: expected {len(self._names)} arrays, got "
                f"{len(views)}; make the metric with num_views={len(views)}"
            )
        batch = check_views(*views, empty=True)
        earlier = getattr(self, self._names[0])[-1:]
        if len(batch[0]) and len(earlier):
            known, classes = earlier[0].shape[-1], batch[0].shape[1]
            if known != classes:
                raise ValueError(
                    f"logits: expected {known} classes, as in earlier batches, got "
                    f"{classes}"
                )
        return batch

    def _group(self) -> Any:
        """The processes that measure together, or None for this one alone."""
        distributed = torch.distributed
        if (
            not self._across_processes
            or self._is_synced
            or not distributed.is_available()
        ):
            return None
        if not distributed.is_initialized():
            return None
        return self.process_group or distributed.group.WORLD

    def _solve(self, views: Sequence[Tensor], group: Any) -> Agreement:
        return posterior_agreement(*views, prior=self.prior, tol=self.tol, group=group)

    def _values(self, result: Agreement | None) -> Any:
        numbers = {name: getattr(result, name, math.nan) for name in _FIELDS}
        ends = result.interval() if result else (math.nan, math.nan)
        numbers["low"], numbers["high"] = ends
        values = {
            name: torch.tensor(number, dtype=torch.float64, device=self.device)
            for name, number in numbers.items()
        }
        return values if self.value is None else values[self.value]
