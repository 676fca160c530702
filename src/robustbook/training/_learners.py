"""Learners: objectives over batches from several domains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import (
    check_choice,
    check_count,
    check_fraction,
    check_non_negative,
    check_positive,
)


class Learner(Protocol):
    """An objective that :func:`train_domains` minimizes."""

    @property
    def name(self) -> str:
        """Name of the learner in tables."""

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, epoch: int,
        generator: Generator,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the loss, and the mean cross-entropy without the penalty.

        `images` (D, n, C, H, W) and `labels` (D, n) are n samples from each of D
        domains. `generator` lives on the CPU.
        """


@dataclass(frozen=True)
class ERM:
    """Empirical risk minimization: the mean cross-entropy over all domains.

    Examples
    --------
    >>> ERM().name
    'ERM'
    """

    name: ClassVar[str] = "ERM"

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the mean cross-entropy, twice; see ``Learner``."""
        logits = model(images.flatten(0, 1)).float()
        risk = F.cross_entropy(logits, labels.flatten())
        return risk, risk


@dataclass(frozen=True)
class IRM:
    r"""Invariant risk minimization, version 1: a penalty on each domain's gradient.

    The mean over the domains of :math:`R_d + \lambda\,(\partial_w R_d(w \cdot
    f)|_{w=1})^2`, where :math:`R_d` is the cross-entropy in domain d and w a factor of
    the logits (M. Arjovsky et al., 2019; PA thesis, section 3.5).

    Parameters
    ----------
    weight : float, default 1.0
        λ. If it is above 1, the loss is divided by it, as the method's authors do.
    warmup_epochs : int, default 0
        The number of first epochs in which λ is min(weight, 1).

    Examples
    --------
    >>> IRM(weight=100.0, warmup_epochs=5)
    IRM(weight=100.0, warmup_epochs=5)
    """

    name: ClassVar[str] = "IRM"
    weight: float = 1.0
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        check_non_negative("weight", self.weight)
        check_count("warmup_epochs", self.warmup_epochs, minimum=0)

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, epoch: int, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the penalized and the plain risk; see ``Learner``."""
        logits = model(images.flatten(0, 1)).float().unflatten(0, labels.shape)
        risk = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        penalty = torch.stack(
            [irm_penalty(*domain) for domain in zip(logits, labels, strict=True)]
        ).mean()
        weight = min(self.weight, 1.0) if epoch < self.warmup_epochs else self.weight
        return (risk + weight * penalty) / max(weight, 1.0), risk


@dataclass(frozen=True)
class LISA:
    """Learning invariant predictors by selective augmentation: mixed images.

    Every batch is mixed in one of two ways, at random: images of the same class from
    different domains (LISA-L), or of different classes from the same domain (LISA-D;
    the PA thesis uses the two names the other way around). Source: H. Yao et al., ICML
    2022.

    Parameters
    ----------
    across_domains : float, default 0.5
        Probability of mixing across domains.
    alpha : float, default 2.0
        The weights of the two are drawn from Beta(alpha, alpha), once for a batch.
    mix : {"mixup", "cutmix"}, default "mixup"
        Blend two images (H. Zhang et al., ICLR 2018), or paste a rectangle of one into
        the other, the same for all pairs (S. Yun et al., ICCV 2019).

    Examples
    --------
    >>> LISA(across_domains=1.0)
    LISA(across_domains=1.0, alpha=2.0, mix='mixup')
    """

    name: ClassVar[str] = "LISA"
    across_domains: float = 0.5
    alpha: float = 2.0
    mix: str = "mixup"

    def __post_init__(self) -> None:
        check_fraction("across_domains", self.across_domains)
        check_positive("alpha", self.alpha)
        check_choice("mix", self.mix, ("mixup", "cutmix"))

    def loss(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, generator: Generator,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return the cross-entropy on mixed images, twice; see ``Learner``."""
        across = float(torch.rand((), generator=generator)) < self.across_domains
        partner = partners(labels.cpu(), across, generator).to(labels.device)
        # torch's Beta distribution takes no generator.
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        weight = float(np.random.default_rng(seed).beta(self.alpha, self.alpha))
        first, second = images.flatten(0, 1), images.flatten(0, 1)[partner]
        if self.mix == "cutmix":
            mixed, weight = _cutmix(first, second, weight, generator)
        else:
            mixed = torch.lerp(second, first, weight)
        logits = model(mixed).float()
        first_loss = F.cross_entropy(logits, labels.flatten())
        second_loss = F.cross_entropy(logits, labels.flatten()[partner])
        risk = weight * first_loss + (1.0 - weight) * second_loss
        return risk, risk


def _cutmix(
    first: Tensor, second: Tensor, weight: float, generator: Generator
) -> tuple[Tensor, float]:
    """Paste a rectangle, and say which share of the first images is left."""
    height, width = first.shape[-2:]
    middle = torch.rand(2, generator=generator).tolist()
    sides = []
    for length, place in zip((height, width), middle, strict=True):
        half = math.sqrt(1.0 - weight) * length / 2
        low, high = round(place * length - half), round(place * length + half)
        sides.append(slice(max(low, 0), min(high, length)))
    mixed = first.clone()
    mixed[..., sides[0], sides[1]] = second[..., sides[0], sides[1]]
    pasted = math.prod(side.stop - side.start for side in sides)
    return mixed, 1.0 - pasted / (height * width)


def irm_penalty(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the IRMv1 penalty of one domain, in nats², of logits (n, K), labels (n,).

    The square of the derivative of the mean cross-entropy by a common factor of the
    logits, at 1: :math:`\left(\frac1n \sum_i \left[\sum_k p_{ik} f_{ik} -
    f_{i y_i}\right]\right)^2`, a closed form. In a small batch its mean is too large by
    the variance of the derivative over n.

    Examples
    --------
    >>> float(irm_penalty(torch.tensor([[1.0, 1.0]]), torch.tensor([0])))
    0.0
    """
    expected = (logits.softmax(1) * logits).sum(1)
    named = logits.gather(1, labels[:, None])[:, 0]
    return (expected - named).mean().square()


def partners(labels: Tensor, across: bool, generator: Generator) -> Tensor:
    """For each of (D, n) samples one to mix with, (D n,); itself if there is none."""
    domain = torch.arange(len(labels))[:, None].expand(labels.shape).flatten()
    label = labels.flatten()
    same_domain = domain[:, None] == domain
    same_label = label[:, None] == label
    fits = same_label & ~same_domain if across else same_domain & ~same_label
    alone = ~fits.any(1)
    fits[alone, torch.nonzero(alone)[:, 0]] = True
    return torch.multinomial(fits.float(), 1, generator=generator)[:, 0]
