"""Training against attacks by name: the defenses of the literature on margins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import (
    check_bound,
    check_choice,
    check_count,
    check_non_negative,
)
from robustbook.training._learners import Learner
from robustbook.training._losses import (
    Loss,
    add_gaussian_noise,
    adversarial_loss,
    attacked_images,
)
from robustbook.training._pairing import PENALTIES, AttackedView, Pairing

#: How often the way to the border is halved.
_HALVINGS: Final = 6


def defense(
    name: str, *, eps: float, steps: int = 10, **options: Any
) -> Loss | Learner:
    r"""Make the objective of a method of adversarial training, by its name.

    With :math:`x'` the attacked image (PGD on the cross-entropy from a random point of
    the ball), :math:`z` logits, :math:`p` their softmax, CE and KL in nats:

    - "sat": :math:`\mathrm{CE}(x')` (A. Madry et al., ICLR 2018), which is
      :func:`adversarial_loss`;
    - "trades": :math:`\mathrm{CE}(x) + 6\,\mathrm{KL}(p(x) \Vert p(x'))`, where
      :math:`x'` raises that KL (H. Zhang et al., ICML 2019);
    - "alp": :math:`\frac12 \mathrm{CE}(x) + \frac12 \mathrm{CE}(x') + \frac12
      \lVert z(x) - z(x') \rVert_2^2` (H. Kannan et al., 2018);
    - "clp": no attack; noise on all images, and :math:`\mathrm{CE} + \frac12 \lVert
      z(x_i) - z(x_j) \rVert_2^2` over pairs of images at random (the same);
    - "clp-attacked": :math:`\mathrm{CE}(x) + \frac12 \lVert z(x) - z(x') \rVert_2^2`,
      what Y. Wang et al. (ICLR 2020) compare with as CLP, there with :math:`p` for
      :math:`z`;
    - "mart": :math:`\mathrm{BCE}(x') + 5\,(1 - p_y(x))\,\mathrm{KL}(p(x) \Vert p(x'))`
      with :math:`\mathrm{BCE} = -\log p_y - \log(1 - \max_{k \ne y} p_k)` (Y. Wang et
      al., ICLR 2020);
    - "mma": :math:`\frac13 \mathrm{CE}(x) + \frac23 \mathrm{CE}(x^\star)`, where
      :math:`x^\star` is on the border between :math:`x` and :math:`x'`; it is
      :math:`x` itself where that is classified wrongly, and counts nothing where no
      border is found within `eps` (G. W. Ding et al., ICLR 2020).

    Parameters
    ----------
    name : str
        One of those above.
    eps : float
        Radius of the ball, in [0, 1] pixel units.
    steps : int, default 10
        Steps of the attack.
    **options
        ``weight``, of the term added to a cross-entropy ("trades", "alp", "clp",
        "clp-attacked", "mart"); ``noise_std`` of "clp", 0.06 in [0, 1] pixel units.
        The authors' code of logit pairing averages the squares over the K classes, too:
        what is 0.5 there is ``weight=0.5 / K`` here.

    Returns
    -------
    Loss or Learner
        An objective for :func:`train_classifier` and :func:`train_domains`.

    Raises
    ------
    ValueError
        If there is no such method, `eps` or `steps` is not positive, or an option is
        negative.

    Examples
    --------
    >>> from robustbook.models import build_model
    >>> batch = torch.rand(9, 1, 8, 8), torch.arange(9), torch.Generator()
    >>> model = build_model("linear", seed=0)
    >>> defense("mart", eps=0.1, steps=2)(model, *batch).shape
    torch.Size([])
    """
    check_choice("name", name, DEFENSES)
    check_bound("eps", eps)
    check_count("steps", steps)
    for option, value in options.items():
        check_non_negative(option, value)
    return DEFENSES[name](eps=eps, steps=steps, **options)


def _trades(*, eps: float, steps: int, weight: float = 6.0) -> Learner:
    attack = AttackedView(eps=eps, steps=steps, labels=False)
    return Pairing("kl", weight=weight, share=0.0, shift=attack)


def _logit_pairing(
    share: float, *, eps: float, steps: int, weight: float = 0.5
) -> Learner:
    attack = AttackedView(eps=eps, steps=steps)
    return Pairing("logits", weight=weight, share=share, shift=attack)


def _clean_pairing(
    *, eps: float, steps: int, weight: float = 0.5, noise_std: float = 0.06
) -> Loss:
    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        noisy = add_gaussian_noise(images, noise_std, generator=generator)
        logits = model(noisy).float()
        half = len(logits) // 2  # batches are in random order
        if half == 0:
            return F.cross_entropy(logits, labels)
        apart = PENALTIES["logits"](logits[:half], logits[half : 2 * half])
        return F.cross_entropy(logits, labels) + weight * apart

    return loss


def boosted_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of -log p_y - log(1 - largest other p_k), shapes (n, K), (n,).

    Examples
    --------
    >>> float(boosted_cross_entropy(torch.zeros(1, 2), torch.tensor([0])))
    1.386...
    """
    named = F.one_hot(labels, logits.shape[1]).bool()
    rival = logits.masked_fill(named, -torch.inf).argmax(1, keepdim=True)
    # Of logits: no probability is rounded to 1.
    others = logits.scatter(1, rival, -torch.inf).logsumexp(1)
    return F.cross_entropy(logits, labels) + (logits.logsumexp(1) - others).mean()


def _mart(*, eps: float, steps: int, weight: float = 5.0) -> Loss:
    attack = attacked_images(eps=eps, steps=steps)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        attacked = attack(model, images, labels, generator)
        clean, moved = model(torch.cat([images, attacked])).float().chunk(2)
        before, after = clean.log_softmax(1), moved.log_softmax(1)
        entropy = F.kl_div(after, before, reduction="none", log_target=True).sum(1)
        wrong = 1 - before.gather(1, labels[:, None]).exp()[:, 0]
        return boosted_cross_entropy(moved, labels) + weight * (wrong * entropy).mean()

    return loss


def at_the_border(
    model: nn.Module, images: Tensor, attacked: Tensor, labels: Tensor
) -> Tensor:
    """Move attacked images (n, C, H, W) back, to where they just are misclassified.

    Those that are classified rightly stay; images that were wrong before go back to
    themselves, nearly.
    """
    low = images.new_zeros(len(images), 1, 1, 1)
    high = torch.ones_like(low)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        wrong = model(images + middle * (attacked - images)).argmax(1) != labels
        turned = wrong.reshape(-1, 1, 1, 1)
        low, high = torch.where(turned, low, middle), torch.where(turned, middle, high)
    return images + high * (attacked - images)


def _largest_margin(*, eps: float, steps: int) -> Loss:
    attack = attacked_images(eps=eps, steps=steps)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        far = attack(model, images, labels, generator)
        with torch.no_grad():
            near = at_the_border(model, images, far, labels)
        clean, border = model(torch.cat([images, near])).float().chunk(2)
        crossed = border.argmax(1) != labels  # else the margin is wide enough
        costs = F.cross_entropy(border, labels, reduction="none") * crossed
        return (F.cross_entropy(clean, labels) + 2 * costs.mean()) / 3

    return loss


#: Functions that make the loss of each method.
DEFENSES: Final[Mapping[str, Callable[..., Loss | Learner]]] = MappingProxyType(
    {
        "sat": adversarial_loss,
        "trades": _trades,
        "alp": partial(_logit_pairing, 0.5),
        "clp": _clean_pairing,
        "clp-attacked": partial(_logit_pairing, 0.0),
        "mart": _mart,
        "mma": _largest_margin,
    }
)
