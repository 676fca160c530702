"""Pairing: cross-entropy, and a price on answers that noise changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import (
    check_choice,
    check_fraction,
    check_non_negative,
)
from robustbook.agreement import agreement_loss, posterior_agreement
from robustbook.training._losses import add_gaussian_noise


def _squared_difference(logits: Tensor, shifted: Tensor) -> Tensor:
    return (logits - shifted).square().sum(1).mean()


def _kl(logits: Tensor, shifted: Tensor) -> Tensor:
    clean, moved = logits.log_softmax(1), shifted.log_softmax(1)
    return F.kl_div(moved, clean, reduction="batchmean", log_target=True)


def _jensen_shannon(logits: Tensor, shifted: Tensor) -> Tensor:
    sides = torch.stack([logits, shifted]).log_softmax(2)
    middle = sides.logsumexp(0) - math.log(2)
    to_middle = [
        F.kl_div(middle, side, reduction="batchmean", log_target=True) for side in sides
    ]
    return torch.stack(to_middle).mean()


#: What a pair of logits (n, K) costs: mean over the samples, in squares or in nats.
PENALTIES: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = MappingProxyType(
    {
        "logits": _squared_difference,
        "kl": _kl,
        "js": _jensen_shannon,
        "agreement": agreement_loss,
    }
)


@dataclass(frozen=True)
class Pairing:
    r"""Cross-entropy on clean and noisy images, and a penalty on what differs.

    The loss is :math:`\tfrac12 (R' + R'') + \lambda\,P(F', F'')`, with the
    cross-entropies and logits of a batch and of a noisy copy of it. At :math:`\lambda =
    0` it is plain augmentation.

    Parameters
    ----------
    penalty : {"agreement", "logits", "kl", "js"}, default "agreement"
        :func:`robustbook.agreement.agreement_loss`; the squared difference of the
        logits (logit pairing: H. Kannan et al., 2018); the relative entropy of the
        noisy to the clean prediction (TRADES: H. Zhang et al., ICML 2019); the
        Jensen-Shannon divergence (AugMix: D. Hendrycks et al., ICLR 2020).
    weight : float, default 1.0
        λ, at least 0.
    noise_std : float, default 0.3
        Of the Gaussian noise, as for :func:`add_gaussian_noise`.
    memory : float, default 0.9
        What the running mean of log β keeps of itself at each batch, for "agreement":
        the loss of a batch is at the β of those before it, and so has no bias. With 0
        each batch has its own. The mean starts anew with each epoch, so that a training
        that is resumed is that of a run without interruption; batches whose β is 0 or
        infinite do not count in it.

    Examples
    --------
    >>> Pairing("js", weight=10.0).name
    'js'
    """

    penalty: str = "agreement"
    weight: float = 1.0
    noise_std: float = 0.3
    memory: float = 0.9
    _running: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        for name in ("weight", "noise_std"):
            object.__setattr__(
                self, name, check_non_negative(name, getattr(self, name))
            )
        object.__setattr__(self, "memory", check_fraction("memory", self.memory))

    @property
    def name(self) -> str:
        """The penalty."""
        return self.penalty

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        epoch: int,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and the cross-entropy in it; see :class:`Learner`."""
        clean, classes = images.flatten(0, 1), labels.flatten()
        noisy = add_gaussian_noise(clean, self.noise_std, generator=generator)
        both = model(torch.cat([clean, noisy])).float()
        risk = F.cross_entropy(both, classes.repeat(2))
        if self.weight == 0.0:
            return risk, risk
        logits, shifted = both.chunk(2)
        if self.penalty == "agreement" and self.memory > 0.0:
            beta = self._beta(logits.detach(), shifted.detach(), epoch, generator)
            penalty = agreement_loss(logits, shifted, beta=beta)
        else:
            penalty = PENALTIES[self.penalty](logits, shifted)
        return risk + self.weight * penalty, risk

    def _beta(
        self, logits: Tensor, shifted: Tensor, epoch: int, generator: torch.Generator
    ) -> float:
        """The running β of the batches before; this one's if there is none."""
        running = self._running
        # Each training has a generator of its own.
        if running.get("epoch") != epoch or running.get("generator") is not generator:
            running.clear()
            running.update(epoch=epoch, generator=generator)
        own = posterior_agreement(logits, shifted).beta
        before = running.get("log beta")
        if 0.0 < own < math.inf:
            share = 1.0 if before is None else 1.0 - self.memory
            running["log beta"] = share * math.log(own) + (1.0 - share) * (
                before or 0.0
            )
        return own if before is None else math.exp(before)
