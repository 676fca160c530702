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
from robustbook.agreement._paired_accuracy import as_calibration, paired_accuracy
from robustbook.agreement._result import Agreement

mend_torchvision()
with extra("metric"):
    from torchmetrics import Metric
    from torchmetrics.utilities.distributed import gather_all_tensors

_NUMBERS: Final = ("pa", "beta", "standard_error", "hard_part", "confidence_part")
_ENDS: Final = ("low", "high")
_ESTIMATE: Final = ("paired_accuracy", "paired_accuracy_low", "paired_accuracy_high")


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
    value : str, optional
        The one number of :meth:`compute` to return, for arithmetic such as ``metric +
        1``, for loggers and for ``torchmetrics.MetricTracker(metric, maximize=True)``.
        All of them in a dict if left out.
    calibrated_on : tuple (logits, labels) or Calibration, optional
        As :func:`paired_accuracy` takes it: :meth:`compute` then also estimates the
        accuracy on the inputs of the second view. Several processes gather all logits
        for this estimate.
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
        calibrated_on: Any = None,
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
        self.calibration = None
        self._fields: tuple[str, ...] = _NUMBERS + _ENDS
        if calibrated_on is not None:
            self.calibration = as_calibration(calibrated_on)
            self._fields += _ESTIMATE
        if value is not None:
            check_choice("value", value, self._fields)
        self.value = value
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
        self._forward_cache = self._values(batch, group)
        self.update(*batch)
        return self._forward_cache

    def compute(self) -> Any:
        """Return the measure, for loggers.

        Returns
        -------
        dict of str to Tensor, or Tensor
            Scalars: ``pa``, ``standard_error``, ``hard_part``, ``confidence_part``,
            ``low`` and ``high``, the ends of :meth:`Agreement.interval`, (nats per
            sample) and ``beta`` (1 / logit). With `calibrated_on` also the estimated
            accuracy ``paired_accuracy``, ``paired_accuracy_low`` and
            ``paired_accuracy_high``. With a `value`, only that one.
        """
        group = self._group()
        return self._values(self._all_views(group), group)

    def agreement(self) -> Agreement:
        """Return the full :class:`Agreement` of the batches so far."""
        group = self._group()
        return self._solve(self._all_views(group), group)

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

    def _all_views(self, group: Any) -> list[Tensor]:
        """The batches so far; a process of a group may have none."""
        states = [getattr(self, name) for name in self._names]
        if group is None and not len(states[0]):
            raise ValueError(
                "PosteriorAgreement: expected at least one update before compute, got "
                "none"
            )
        empty = torch.empty((0, 0), device=self.device)
        # A state that torchmetrics merged is one tensor already.
        return [
            state if isinstance(state, Tensor) else torch.cat(state or [empty])
            for state in states
        ]

    def _group(self) -> Any:
        """The processes that measure together, or None for this one alone."""
        alone = self._is_synced or not self._across_processes
        if alone or not torch.distributed.is_available():
            return None
        if not torch.distributed.is_initialized():
            return None
        return self.process_group or torch.distributed.group.WORLD

    def _solve(self, views: Sequence[Tensor], group: Any) -> Agreement:
        return posterior_agreement(*views, prior=self.prior, tol=self.tol, group=group)

    def _values(self, views: Sequence[Tensor], group: Any) -> Any:
        numbers = [math.nan] * len(self._fields)
        if group is not None or len(views[0]):
            result = self._solve(views, group)
            numbers = [getattr(result, name) for name in _NUMBERS]
            numbers += [*result.interval(), *self._estimate(views[:2], group)]
        values = {
            name: torch.tensor(number, dtype=torch.float64, device=self.device)
            for name, number in zip(self._fields, numbers, strict=True)
        }
        return values if self.value is None else values[self.value]

    def _estimate(self, pair: Sequence[Tensor], group: Any) -> list[float]:
        """The estimated accuracy and its interval, if there is a calibration."""
        if self.calibration is None:
            return []
        if group is not None:
            shards = [gather_all_tensors(view.double(), group) for view in pair]
            pair = [torch.cat([rows for rows in of if len(rows)]) for of in shards]
        estimate = paired_accuracy(*pair, calibrated_on=self.calibration)
        return [estimate.value, *estimate.interval]
