"""Posterior agreement as a torchmetrics metric: batches in, exact measure out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_choice,
    check_logit_pair,
    check_positive,
    check_prior,
)
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision
from robustbook.agreement._docs import SHARED
from robustbook.agreement._measure import posterior_agreement
from robustbook.agreement._result import Agreement, axes_for, plot_measurements

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

mend_torchvision()
with extra("metric"):
    from torchmetrics import Metric

NAMES: Final = ("pa", "beta", "standard_error", "hard_part", "confidence_part")
NOTHING: Final = (
    "PosteriorAgreement: expected at least one update before compute, got none"
)
ONE_VALUE: Final = (
    "PosteriorAgreement: expected one number, got a dict of five; make the metric with "
    'value="pa"'
)


class _Values(dict[str, Tensor]):
    """What the metric computes; says what to do where one number is wanted."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise TypeError(ONE_VALUE)


@SHARED.fill
class PosteriorAgreement(Metric):
    """Posterior agreement over batches and processes.

    The measure needs all pairs at once (its temperature is shared), so the logits
    are kept and, under distributed data parallelism, gathered; unequal shards are
    fine. Source: the thesis, section 3.6.3, with the exact solver of Chapter 7.

    Parameters
    ----------
    {prior} {tol}
    value : {"pa", "beta", "standard_error", "hard_part", "confidence_part"}, optional
        What to compute, as one tensor: for arithmetic such as ``metric + 1``, and for
        :class:`torchmetrics.MetricTracker`. All of them in a dict if left out.
    **kwargs
        Passed to :class:`torchmetrics.Metric`.

    Raises
    ------
    TypeError, ValueError
        By :meth:`update` and :meth:`compute`, as :func:`posterior_agreement`.

    Examples
    --------
    >>> metric = PosteriorAgreement()
    >>> metric.update(torch.eye(3), torch.eye(3))
    >>> metric.update(torch.eye(3), torch.eye(3)[[1, 0, 2]])
    >>> round(float(metric.compute()["pa"]), 4)
    0.231
    """

    is_differentiable = False
    full_state_update = False

    logits: list[Tensor]
    shifted_logits: list[Tensor]

    def __init__(
        self,
        *,
        prior: Any = None,
        tol: float = 1e-9,
        value: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tol = check_positive("tol", tol)
        if prior is not None:
            weights = as_tensor("prior", prior)
            prior = check_prior(weights, weights.numel(), weights.device)
        self.prior = prior
        self.value = None if value is None else check_choice("value", value, NAMES)
        self.add_state("logits", default=[], dist_reduce_fx="cat")
        self.add_state("shifted_logits", default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether a larger `value` is better; without one nothing can be tracked."""
        if self.value is None:
            raise TypeError(ONE_VALUE)
        return {"beta": None, "standard_error": False}.get(self.value, True)

    def update(self, logits: Any, shifted_logits: Any) -> None:
        """Add a batch of paired logits, shapes (n, K); n may be 0.

        Raises
        ------
        TypeError, ValueError
            If the batch is not as :func:`posterior_agreement` wants it, or has
            another number of classes than the batches before.
        """
        if (batch := self._checked(logits, shifted_logits)) is not None:
            # Copies: the caller may fill the same buffer with the next batch.
            self.logits.append(batch[0].clone())
            self.shifted_logits.append(batch[1].clone())

    def forward(self, logits: Any, shifted_logits: Any) -> Any:
        """Add a batch and return its own values: NaN for a batch without samples.

        Raises
        ------
        TypeError, ValueError, CertificateError
            As :meth:`update` and :meth:`compute`; the batch is then not added.
        """
        # torchmetrics sets the state aside for a while, and loses it in an error.
        before = {
            name: [*attribute] if isinstance(attribute, list) else attribute
            for name, attribute in vars(self).items()
        }
        try:
            if self._is_synced or self.dist_sync_on_step:
                return super().forward(logits, shifted_logits)
            if self._checked(logits, shifted_logits) is not None:
                return super().forward(logits, shifted_logits)
        except BaseException:  # an interruption, too
            vars(self).update(before)
            raise
        self.update(logits, shifted_logits)
        self._forward_cache = self._selected(dict.fromkeys(NAMES, torch.nan))
        return self._forward_cache

    def compute(self) -> Any:
        """Return the measure, for loggers.

        Returns
        -------
        dict of str to Tensor, or Tensor
            Scalars: ``pa``, ``standard_error``, ``hard_part`` and
            ``confidence_part`` (nats per sample) and ``beta`` (1 / logit); with a
            `value`, that one.

        Raises
        ------
        ValueError, CertificateError
            If there was no update with samples; as :func:`posterior_agreement`.
        """
        result = self._solve()
        return self._selected({name: getattr(result, name) for name in NAMES})

    def agreement(self) -> Agreement:
        """Return the full :class:`Agreement` of what was gathered so far."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn,
            should_sync=self._to_sync,
            should_unsync=self._should_unsync,
        ):
            return self._solve()

    def to_frame(self) -> DataFrame:
        """Return the numbers of :meth:`agreement` as one row of a pandas table."""
        return self.agreement().to_frame()

    @SHARED.fill
    def plot(self, val: Any = None, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw the measure, or several over the steps of training.

        Parameters
        ----------
        val : dict or Tensor, or a list of them, optional
            What :meth:`compute` or :meth:`forward` returned; of what was gathered so
            far if left out. Of dicts, ``pa`` is drawn with intervals of 95 %.
        {ax}

        Returns
        -------
        {figure} {axes}

        {ImportError}
        """
        val = self.compute() if val is None else val
        several = val if isinstance(val, Sequence) else [val]
        if all(isinstance(values, dict) for values in several):
            return plot_measurements(several, ax)
        figure, axes = axes_for(ax)
        self._plot(val, axes)
        axes.set_ylabel(self.value or "")
        return figure, axes

    def _checked(
        self, logits: Any, shifted_logits: Any
    ) -> tuple[Tensor, Tensor] | None:
        """The batch, if it has samples and goes with those before."""
        both = as_tensor("logits", logits), as_tensor("shifted_logits", shifted_logits)
        if all(batch.ndim == 2 and len(batch) == 0 for batch in both):
            return None  # as a last shard may be
        first, second = check_logit_pair(*both)
        if isinstance(self.logits, list) and self.logits:
            classes = self.logits[0].shape[1]
            if first.shape[1] != classes:
                raise ValueError(
                    f"logits: expected {classes} classes, as in earlier batches, got "
                    f"{first.shape[1]}"
                )
        return first, second

    def _selected(self, numbers: dict[str, float]) -> Any:
        values = {
            name: torch.tensor(number, dtype=torch.float64, device=self.device)
            for name, number in numbers.items()
        }
        return _Values(values) if self.value is None else values[self.value]

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Agree on shape and type before the tensors are gathered.

        A gather takes the bytes as they come: shards without samples, or in another
        precision, would be misread or hang.
        """
        group = kwargs.get("process_group", self.process_group)
        batches = [*_batches(self.logits), *_batches(self.shifted_logits)]
        kinds = [(batch.shape[1], batch.dtype) for batch in batches]
        shards: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(shards, kinds, group=group)
        classes = {kind[0] for shard in shards for kind in shard}
        dtypes = [kind[1] for shard in shards for kind in shard]
        if len(classes) > 1:
            raise ValueError(
                f"logits: expected the same number of classes in every process, got "
                f"{sorted(classes)}"
            )
        if not classes:
            raise ValueError(NOTHING)
        widest = functools.reduce(torch.promote_types, dtypes)
        empty = torch.empty((0, classes.pop()), dtype=widest, device=self.device)
        for name in ("logits", "shifted_logits"):
            batches = [batch.to(widest) for batch in _batches(getattr(self, name))]
            setattr(self, name, [torch.cat([empty, *batches])])
        super()._sync_dist(*args, **kwargs)

    def _solve(self) -> Agreement:
        if len(self.logits) == 0:
            raise ValueError(NOTHING)
        first = torch.cat(_batches(self.logits))
        second = torch.cat(_batches(self.shifted_logits))
        return posterior_agreement(first, second, prior=self.prior, tol=self.tol)


def _batches(state: list[Tensor] | Tensor) -> list[Tensor]:
    """A synchronized state is one tensor already."""
    return [state] if isinstance(state, Tensor) else state
