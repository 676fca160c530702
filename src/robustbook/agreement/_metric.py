"""Posterior agreement as a torchmetrics metric: batches in, exact measure out."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_logit_pair,
    check_positive,
    check_prior,
)
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision
from robustbook.agreement._measure import posterior_agreement
from robustbook.agreement._result import Agreement

mend_torchvision()
with extra("metric"):
    from torchmetrics import Metric

NOTHING = "PosteriorAgreement: expected at least one update before compute, got none"


class PosteriorAgreement(Metric):
    """Posterior agreement over batches and processes.

    The measure needs all pairs at once (its temperature is shared), so the logits
    are kept and, under distributed data parallelism, gathered; unequal shards are
    fine.

    Parameters
    ----------
    prior : tensor or array, shape (K,), optional
        Class prior; uniform if left out.
    tol : float
        Largest accepted gap, as in :func:`posterior_agreement`.
    **kwargs
        Passed to :class:`torchmetrics.Metric`.

    Raises
    ------
    TypeError, ValueError
        By :meth:`update` and :meth:`compute`, as :func:`posterior_agreement`.

    Notes
    -----
    Source: the thesis, section 3.6.3, with the exact solver of Chapter 6 in place
    of Adam.

    Examples
    --------
    >>> import torch
    >>> metric = PosteriorAgreement()
    >>> metric.update(torch.eye(3), torch.eye(3))
    >>> metric.update(torch.eye(3), torch.eye(3)[[1, 0, 2]])
    >>> round(float(metric.compute()["pa"]), 4)
    0.231
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    logits: list[Tensor]
    shifted_logits: list[Tensor]

    def __init__(self, *, prior: Any = None, tol: float = 1e-9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tol = check_positive("tol", tol)
        if prior is not None:
            known = as_tensor("prior", prior)
            prior = check_prior(known, known.numel(), known.device)
        self.prior = prior
        self.add_state("logits", default=[], dist_reduce_fx="cat")
        self.add_state("shifted_logits", default=[], dist_reduce_fx="cat")

    def update(self, logits: Any, shifted_logits: Any) -> None:
        """Add a batch of paired logits, shapes (n, K); n may be 0.

        Raises
        ------
        TypeError, ValueError
            If the batch is not as :func:`posterior_agreement` wants it, or has
            another number of classes than the batches before.
        """
        both = [
            as_tensor("logits", logits),
            as_tensor("shifted_logits", shifted_logits),
        ]
        if all(batch.ndim == 2 and len(batch) == 0 for batch in both):
            return  # an empty batch, as a last shard may be
        first, second = check_logit_pair(*both)
        if isinstance(self.logits, list) and self.logits:
            known = self.logits[0].shape[1]
            if first.shape[1] != known:
                raise ValueError(
                    f"logits: expected {known} classes, as in earlier batches, got "
                    f"{first.shape[1]}"
                )
        # Copies: the caller may fill the same buffer with the next batch.
        self.logits.append(first.clone())
        self.shifted_logits.append(second.clone())

    def compute(self) -> dict[str, Tensor]:
        """Return the measure as scalar tensors, for loggers.

        Returns
        -------
        dict
            ``pa``, ``beta``, ``standard_error``, ``hard_part`` and
            ``confidence_part``, float64, in nats (``beta`` in 1/logit).
        """
        result = self._solve()
        names = ("pa", "beta", "standard_error", "hard_part", "confidence_part")
        return {
            name: torch.tensor(
                getattr(result, name), dtype=torch.float64, device=self.device
            )
            for name in names
        }

    def agreement(self) -> Agreement:
        """Return the full :class:`Agreement` of what was gathered so far."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn,
            should_sync=self._to_sync,
            should_unsync=self._should_unsync,
        ):
            return self._solve()

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Agree on shape and type before the tensors are gathered.

        A gather takes the bytes as they come: shards without samples, or in another
        precision, would be misread or hang.
        """
        group = kwargs.get("process_group", self.process_group)
        mine = [(batch.shape[1], batch.dtype) for batch in _batches(self.logits)]
        mine += [
            (batch.shape[1], batch.dtype) for batch in _batches(self.shifted_logits)
        ]
        everyone: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(everyone, mine, group=group)
        seen = [entry for shard in everyone for entry in shard]
        classes = {entry[0] for entry in seen}
        if len(classes) > 1:
            raise ValueError(
                f"logits: expected the same number of classes in every process, got "
                f"{sorted(classes)}"
            )
        if not seen:
            raise ValueError(NOTHING)
        widest = functools.reduce(torch.promote_types, (entry[1] for entry in seen))
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
