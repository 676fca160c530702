"""Pairing: cross-entropy, and a penalty on answers that noise changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import (
    check_choice,
    check_fraction,
    check_non_negative,
)
from robustbook.agreement import agreement_loss, posterior_agreement
from robustbook.training._learners import partners
from robustbook.training._losses import Loss, add_gaussian_noise, attacked_images


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


#: Penalties of pairs of logits (n, K): means over samples, in squares or in nats.
PENALTIES: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = MappingProxyType(
    {
        "logits": _squared_difference,
        "kl": _kl,
        "js": _jensen_shannon,
        "agreement": agreement_loss,
    }
)


@dataclass(frozen=True)
class AttackedView:
    """The other view of an image is one that gradient steps on the cross-entropy find.

    Parameters
    ----------
    eps, steps
        As for :func:`adversarial_loss`.
    labels : bool, default True
        False for steps on the relative entropy to the answer to the image itself, which
        need no label.

    Examples
    --------
    >>> Pairing("kl", shift=AttackedView(eps=0.1, steps=3)).shift
    AttackedView(eps=0.1, steps=3, labels=True)
    """

    eps: float
    steps: int = 10
    labels: bool = True

    def __post_init__(self) -> None:
        attacked_images(eps=self.eps, steps=self.steps)  # which checks them

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: Generator
    ) -> Tensor:
        """Attack images (D, n, C, H, W)."""
        flat, target = images.flatten(0, 1), labels.flatten()
        how: dict[str, Any] = {"eps": self.eps, "steps": self.steps}
        if not self.labels:
            how["objective"] = lambda moved, clean: _kl(clean, moved)
            with torch.no_grad():
                target = model(flat).float()
        moved = attacked_images(**how)(model, flat, target, generator)
        return moved.reshape(images.shape)


@dataclass(frozen=True)
class OtherDomain:
    """The other view of an image is one of the same class, from another domain.

    It is drawn from the batch; an image without a partner there stays as it is.

    Examples
    --------
    >>> images = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # of two domains
    >>> labels = torch.tensor([[0, 1], [1, 0]])
    >>> OtherDomain()(nn.Identity(), images, labels, torch.Generator())
    tensor([[4., 3.],
            [2., 1.]])
    """

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: Generator
    ) -> Tensor:
        """Exchange images (D, n, ...) of one class between domains."""
        partner = partners(labels.cpu(), True, generator).to(labels.device)
        return images.flatten(0, 1)[partner].reshape(images.shape)


@dataclass(frozen=True)
class Pairing:
    r"""Cross-entropy on images and their shifted views, and a penalty on what differs.

    The loss is :math:`(1 - s) R' + s R'' + \lambda\,P(F', F'')`, with the
    cross-entropies and logits of a batch and of another view of it. At :math:`\lambda =
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
        The other view has Gaussian noise, as of :func:`add_gaussian_noise`.
    shift : callable, optional
        Makes the other view instead: ``AttackedView``, ``OtherDomain``, or
        any function of model, images (D, n, C, H, W), labels (D, n) and generator.
    share : float, default 0.5
        s in [0, 1], of the other view in the cross-entropy.
    memory : float, default 0.9
        The decay of the running mean of log β at each batch, for "agreement":
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
    shift: Loss | None = None
    share: float = 0.5
    memory: float = 0.9
    _running: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        if self.shift is not None and (
            isinstance(self.shift, type) or not callable(self.shift)
        ):
            raise TypeError(
                "shift: expected a function, or an object such as OtherDomain(), got "
                f"{self.shift!r}"
            )
        for name in ("weight", "noise_std"):
            check_non_negative(name, getattr(self, name))
        for name in ("share", "memory"):
            check_fraction(name, getattr(self, name))

    @property
    def name(self) -> str:
        """The penalty."""
        return self.penalty

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, epoch: int,
        generator: Generator,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the loss, and the cross-entropy in it; see ``Learner``."""
        if self.shift is None:
            view = add_gaussian_noise(images, self.noise_std, generator=generator)
        else:
            view = self.shift(model, images, labels, generator)
        both = torch.cat([images, view]).flatten(0, 1)
        logits, shifted = model(both).float().chunk(2)
        classes = labels.flatten()
        clean, moved = (F.cross_entropy(side, classes) for side in (logits, shifted))
        risk = torch.lerp(clean, moved, self.share)
        if self.weight == 0.0:
            return risk, risk
        if self.penalty == "agreement" and self.memory > 0.0:
            beta = self._beta(logits.detach(), shifted.detach(), epoch, generator)
            penalty = agreement_loss(logits, shifted, beta=beta)
        else:
            penalty = PENALTIES[self.penalty](logits, shifted)
        return risk + self.weight * penalty, risk

    def _beta(
        self, logits: Tensor, shifted: Tensor, epoch: int, generator: Generator
    ) -> float:
        """The running β of the batches before; this one's if there is none."""
        running = self._running
        # Each training has a generator of its own.
        if running.get("epoch") != epoch or running.get("generator") is not generator:
            running.clear()
            running.update(epoch=epoch, generator=generator)
        beta = posterior_agreement(logits, shifted).beta
        before = running.get("log beta")
        if 0.0 < beta < math.inf:
            share = 1.0 if before is None else 1.0 - self.memory
            kept = (1.0 - share) * (before or 0.0)
            running["log beta"] = share * math.log(beta) + kept
        return beta if before is None else math.exp(before)
