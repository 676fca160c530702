"""Losses of one batch, and changes of its images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_bound, check_count, check_positive

#: An objective of training: a number, to be differentiated by the parameters, of
#: model, images (n, C, H, W), labels (n,) and a CPU generator.
Loss = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


def add_gaussian_noise(
    images: Tensor, std: float, *, generator: torch.Generator
) -> Tensor:
    """Add independent Gaussian noise to every pixel of images (n, C, H, W) in [0, 1].

    The result is clipped to [0, 1], which halves the noise on black and white pixels.

    Parameters
    ----------
    images : Tensor, shape (n, C, H, W)
        The images.
    std : float
        Standard deviation before clipping, in pixel units, at least 0.
    generator : torch.Generator
        Source of the noise.

    Raises
    ------
    ValueError
        If `std` is negative.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> noisy = add_gaussian_noise(torch.zeros(1, 1, 2, 2), 0.1, generator=generator)
    >>> bool(((noisy >= 0) & (noisy <= 1)).all())
    True
    """
    if not std >= 0:
        raise ValueError(f"std: expected a number >= 0, got {std}")
    noise = torch.randn(
        images.shape, generator=generator, dtype=images.dtype, device=generator.device
    )
    return (images + std * noise.to(images.device)).clamp(0.0, 1.0)


def mirror_and_shift(
    images: Tensor, padding: int, *, generator: torch.Generator
) -> Tensor:
    """Mirror half of the images and shift all by up to `padding` pixels, at random."""
    n, _, height, width = images.shape
    down, right = torch.randint(2 * padding + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.arange(width).expand(n, width)
    columns = right + torch.where(mirrored, columns.flip(1), columns)
    rows = down + torch.arange(height)
    padded = F.pad(images, (padding,) * 4).permute(0, 2, 3, 1)
    which = torch.arange(n)[:, None, None]
    moved: Tensor = padded[which, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)  # the channels are last in memory


def cross_entropy_loss(
    model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
) -> Tensor:
    """Return the mean cross-entropy in nats, which plain training minimizes."""
    return F.cross_entropy(_logits(model, images), labels)


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    """Logits in float32 also under mixed precision; a model in float64 stays so."""
    logits: Tensor = model(images)
    return logits.float() if logits.dtype.itemsize < 4 else logits


def adversarial_loss(
    *, eps: float, steps: int = 10, step_size: float | None = None
) -> Loss:
    """Make the loss of adversarial training: cross-entropy on attacked images.

    Every image is attacked anew each time: from a random point of the ℓ∞ ball around
    it, by gradient steps that are clipped to ball and box (PGD; Madry et al., ICLR
    2018). It is :func:`robustbook.attacks.pgd` without its checks and copies, which
    would more than double the time, on the model in the mode in which it is.

    Parameters
    ----------
    eps : float
        Radius of the ball, in [0, 1] pixel units.
    steps : int, default 10
        Gradient steps.
    step_size : float, optional
        Size of a step, in [0, 1] pixel units; 2.5 eps / steps by default.

    Raises
    ------
    ValueError
        If an argument is not positive.

    Examples
    --------
    >>> from robustbook.models import build_model
    >>> batch = torch.rand(9, 1, 8, 8), torch.arange(9), torch.Generator()
    >>> adversarial_loss(eps=0.1, steps=2)(build_model("linear", seed=0), *batch).shape
    torch.Size([])
    """
    attack = attacked_images(eps=eps, steps=steps, step_size=step_size)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        attacked = attack(model, images, labels, generator)
        return cross_entropy_loss(model, attacked, labels, generator)

    return loss


def attacked_images(
    *,
    eps: float,
    steps: int,
    step_size: float | None = None,
    objective: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Loss:
    """Make the attack of adversarial training: images, labels and generator to images.

    The arguments are those of :func:`adversarial_loss`. It raises the `objective`, of
    logits and of the given labels.
    """
    eps = check_bound("eps", eps)
    steps = check_count("steps", steps)
    step = 2.5 * eps / steps
    if step_size is not None:
        step = check_positive("step_size", step_size)

    def attack(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        start = torch.rand(images.shape, generator=generator, dtype=images.dtype)
        low, high = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
        attacked = images + eps * (2 * start.to(images.device) - 1)
        attacked = torch.clamp(attacked, low, high)
        for _ in range(steps):
            attacked.requires_grad_()
            value = objective(_logits(model, attacked), labels)
            # By the images only: no gradient is left in the parameters.
            (gradient,) = torch.autograd.grad(value, attacked)
            attacked = attacked.detach() + step * gradient.sign()
            attacked = torch.clamp(attacked, low, high)
        return attacked

    return attack


def gradient_norm_loss(*, weight: float) -> Loss:
    r"""Make the loss of gradient-norm regularization.

    The mean over the images of :math:`\ell_i + \lambda\,\|\nabla_{x_i}
    \ell_i\|_2^2`, where :math:`\ell_i` is the cross-entropy of image i in nats and
    the gradient is by its pixels in [0, 1]. It takes two to three times the time of
    plain training.

    Parameters
    ----------
    weight : float
        λ > 0, in (pixel)² / nat; it does not depend on the batch size. Where pixels are
        divided by s first and the gradient is by those, λ stands for s² λ here.

    References
    ----------
    Average-case paper, appendix A.3, which does not print the penalty; H. Drucker,
    Y. LeCun, IEEE Transactions on Neural Networks 3(6), 1992.
    """
    weight = check_positive("weight", weight)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        images = images.detach().requires_grad_()
        # The sum is differentiated, so that gradients of images are independent.
        value = F.cross_entropy(_logits(model, images), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(value, images, create_graph=True)
        total: Tensor = value + weight * gradient.square().sum()
        return total / len(images)

    return loss
