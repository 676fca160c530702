"""Posterior agreement as a torchmetrics metric: batches in, exact measure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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

_OF_AGREEMENT: Final = ("pa", "beta", "standard_error", "hard_part", "confidence_part")
NAMES: Final = (*_OF_AGREEMENT, "low", "high")
ONE_VALUE: Final = (
    "PosteriorAgreement: expected one number, got a dict of several; make the metric "
    'with value="pa"'
)


class _Values(dict[str, Tensor]):
    """What the metric computes; says what to do where one number is wanted."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise TypeError(ONE_VALUE)


@SHARED.fill
class PosteriorAgreement(Metric):
    """Posterior agreement over batches and processes.

    The measure needs all pairs at once (its temperature is shared), so the logits are
    kept. Under distributed data parallelism they stay where they are: the processes
    exchange a few numbers an evaluation; unequal shards are fine. Several shifts or
    models take a metric each, for example in a :class:`torch.nn.ModuleDict`. Source:
    the thesis, section 3.6.3, with the exact solver of Chapter 7.

    Parameters
    ----------
    {prior} {tol}
    num_views : int, default 2
        Arrays that an update takes: clean and shifted logits, and more.
    value : {"pa", "beta", "standard_error", "hard_part", "confidence_part", "low", \
            "high"}, optional
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

    Lightning logs a metric of one value, here from the hooks of a LightningModule::

        def __init__(self):
            super().__init__()
            self.pa = PosteriorAgreement(value="pa")

        def validation_step(self, batch, index):
            self.pa.update(self(batch["clean"]), self(batch["shifted"]))
            self.log("pa", self.pa)
    """

    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        *,
        prior: Any = None,
        tol: float = 1e-9,
        num_views: int = 2,
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
        count = check_count("num_views", num_views, minimum=2)
        more = (f"view_{v}" for v in range(2, count))
        self._names = ["logits", "shifted_logits", *more]
        for name in self._names:
            self.add_state(name, default=[], dist_reduce_fx="cat")
        self._group: Any = None

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether a larger `value` is better; None where that is not known."""
        known = {None: None, "beta": None, "standard_error": False}
        return known.get(self.value, True)

    def update(self, logits: Any, shifted_logits: Any, *more: Any) -> None:
        """Add a batch of logits of the same inputs, shapes (n, K); n may be 0.

        Raises
        ------
        TypeError, ValueError
            As :func:`posterior_agreement`; or the number of classes is another.
        """
        batch = self._checked(logits, shifted_logits, *more)
        for name, own in zip(self._names, batch or (), strict=batch is not None):
            # Copies: the caller may fill the same buffer with the next batch.
            getattr(self, name).append(own.clone())

    def forward(self, logits: Any, shifted_logits: Any, *more: Any) -> Any:
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
        synced = self._is_synced or self.dist_sync_on_step
        try:
            if synced or self._checked(logits, shifted_logits, *more) is not None:
                return super().forward(logits, shifted_logits, *more)
        except BaseException:  # an interruption, too
            vars(self).update(before)
            raise
        self.update(logits, shifted_logits, *more)
        self._forward_cache = self._selected(dict.fromkeys(NAMES, torch.nan))
        return self._forward_cache

    def compute(self) -> Any:
        """Return the measure, for loggers.

        Returns
        -------
        dict of str to Tensor, or Tensor
            Scalars: ``pa``, ``standard_error``, ``hard_part``, ``confidence_part``,
            ``low`` and ``high``, the ends of :meth:`Agreement.interval`, (nats per
            sample) and ``beta`` (1 / logit); with a `value`, that one.

        Raises
        ------
        ValueError, CertificateError
            If there was no update with samples; as :func:`posterior_agreement`.
        """
        result = self._solve()
        numbers = {name: getattr(result, name) for name in _OF_AGREEMENT}
        low, high = result.interval()
        return self._selected({**numbers, "low": low, "high": high})

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

    def _checked(self, *views: Any) -> tuple[Tensor, ...] | None:
        """The batch, if it has samples and goes with those before."""
        if len(views) != len(self._names):
            raise TypeError(
                f"PosteriorAgreement: expected {len(self._names)} arrays, got "
                f"{len(views)}; say num_views={len(views)} when it is made"
            )
        batch = [as_tensor("logits", view) for view in views]
        if all(view.ndim == 2 and len(view) == 0 for view in batch):
            return None  # as a last shard may be
        checked = check_views(*batch)
        earlier = _batches(getattr(self, self._names[0]))
        if earlier and checked[0].shape[1] != earlier[0].shape[1]:
            raise ValueError(
                f"logits: expected {earlier[0].shape[1]} classes, as in earlier "
                f"batches, got {checked[0].shape[1]}"
            )
        return checked

    def _selected(self, numbers: dict[str, float]) -> Any:
        values = {
            name: torch.tensor(number, dtype=torch.float64, device=self.device)
            for name, number in numbers.items()
        }
        return _Values(values) if self.value is None else values[self.value]

    def _sync_dist(self, *_: Any, process_group: Any = None, **__: Any) -> None:
        """Gather nothing: from here on, what is computed is that of the group."""
        groups = process_group, self.process_group, torch.distributed.group.WORLD
        self._group = next(group for group in groups if group is not None)

    def _copy_state_dict(self) -> dict[str, Tensor | list[Any]]:
        """What is set aside: batches are never written to, so lists of them will do."""
        return {name: [*_batches(getattr(self, name))] for name in self._names}

    def _solve(self) -> Agreement:
        state = [_batches(getattr(self, name)) for name in self._names]
        group = self._group if self._is_synced else None
        if group is None and not state[0]:
            raise ValueError(
                "PosteriorAgreement: expected at least one update before compute, got "
                "none"
            )
        empty = torch.empty((0, 0), device=self.device)
        views = [torch.cat(batches) if batches else empty for batches in state]
        options = {"prior": self.prior, "tol": self.tol}
        try:
            return posterior_agreement(*views, **options, group=group)
        except BaseException:
            # Without it torchmetrics would stay synchronized after an error.
            if self._is_synced and self._should_unsync:
                self.unsync()
            raise


def _batches(state: list[Tensor] | Tensor) -> list[Tensor]:
    """A state that torchmetrics merged is one tensor already."""
    return [state] if isinstance(state, Tensor) else state
