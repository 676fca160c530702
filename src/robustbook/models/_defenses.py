"""What a model can be wrapped in: JPEG and Reverse Sigmoid, or its mirror image."""

from __future__ import annotations

import io
import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_count, check_non_negative
from robustbook._checks.extras import extra
from robustbook._checks.images import check_inputs

#: Probabilities are kept this far from 0 and 1, where log-odds are infinite.
_SMALLEST: Final = 1e-9
_LARGEST_LOG_ODDS: Final = math.log((1 - _SMALLEST) / _SMALLEST)


def _with_gradient_of(value: Tensor, other: Tensor, *, scale: float = 1.0) -> Tensor:
    """`value`, whose gradient is `scale` times that of `other`."""
    return value.detach() + scale * (other - other.detach())


def jpeg_compress(
    images: Tensor, *, quality: int = 50, straight_through: bool = True
) -> Tensor:
    """Compress images with JPEG and decompress them again (Das et al., 2017).

    Parameters
    ----------
    images : Tensor, shape (n, C, H, W)
        Gray (C = 1) or RGB (C = 3) images with pixels in [0, 1]; pixels are
        clipped to that and rounded to 256 levels first. Others are a TypeError or
        ValueError.
    quality : int, default 50
        JPEG quality from 1 to 95, as Pillow defines it (with its chroma subsampling);
        50 is the default of the Adversarial Robustness Toolbox.
    straight_through : bool, default True
        Take the gradient to be that of the identity, so that attacks see through
        the compression. Otherwise it is the true one: zero almost everywhere.

    Returns
    -------
    Tensor, shape (n, C, H, W)
        The images that are left, on the device and in the dtype of `images`.

    Examples
    --------
    >>> images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> rough, fine = (jpeg_compress(images, quality=q) for q in (10, 90))
    >>> bool((rough - images).norm() > (fine - images).norm())
    True
    """
    with extra("data"):
        from PIL import Image

    quality = _check_quality(quality)
    if len(images):  # a batch inside a model may be empty
        check_inputs(images)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            "images: expected shape (n, 1, H, W) or (n, 3, H, W), got "
            f"{tuple(images.shape)}"
        )
    levels = (images.detach().clamp(0, 1) * 255).round().to(torch.uint8)
    pictures = levels.permute(0, 2, 3, 1).cpu().numpy()
    compressed = np.empty_like(pictures)
    for index, picture in enumerate(pictures):
        buffer = io.BytesIO()
        plane = picture[:, :, 0] if picture.shape[2] == 1 else picture
        Image.fromarray(plane).save(buffer, "JPEG", quality=quality)
        with Image.open(buffer) as decoded:
            compressed[index] = np.asarray(decoded).reshape(picture.shape)
    result = torch.from_numpy(compressed).permute(0, 3, 1, 2).to(images) / 255
    return _with_gradient_of(result, images, scale=1.0 if straight_through else 0.0)


def _check_quality(quality: int) -> int:
    if check_count("quality", quality) > 95:
        raise ValueError(f"quality: expected at most 95, got {quality}")
    return quality


def reverse_sigmoid(
    logits: Tensor,
    *,
    beta: float = 1.0,
    gamma: float = 0.1,
    straight_through: bool = True,
) -> Tensor:
    r"""Perturb a model's probabilities deceptively, and return their logarithms.

    Every probability :math:`y_i` loses
    :math:`\beta\,(\sigma(\gamma\,\sigma^{-1}(y_i)) - 1/2)`, where σ is the
    logistic sigmoid; then all are divided by their sum. So large probabilities
    shrink and small ones grow, and confidence is low whatever the input.

    Parameters
    ----------
    logits : Tensor, shape (n, K)
        Finite floats, K ≥ 2; others are a TypeError or ValueError.
    beta, gamma : float
        Magnitude of the perturbation, 0 for none, and how fast it saturates; the
        defaults are those of the Adversarial Robustness Toolbox.
    straight_through : bool, default True
        Take the gradient to be that of the unperturbed log-probabilities, so that
        attacks see through the perturbation.

    Returns
    -------
    Tensor, shape (n, K)
        Logarithms of the perturbed probabilities: logits whose softmax they are.

    Notes
    -----
    Source: T. Lee et al., arXiv:1806.00054, 2018. Log-odds are computed from the logits
    in float64 and clipped to probabilities within [1e-9, 1 - 1e-9]: from float32
    probabilities confident predictions would tie. With the defaults a prediction stays
    where its probability is above 1/2; a less confident one may change, as a
    probability near zero rises to 0.39.

    Examples
    --------
    >>> logits = torch.tensor([[8.0, 0.0, 0.0]])
    >>> [[round(y, 2) for y in logits.softmax(1)[0].tolist()],
    ...  [round(y, 2) for y in reverse_sigmoid(logits).softmax(1)[0].tolist()]]
    [[1.0, 0.0, 0.0], [0.68, 0.16, 0.16]]
    """
    beta = check_non_negative("beta", beta)
    gamma = check_non_negative("gamma", gamma)
    if not logits.is_floating_point():
        raise TypeError(f"logits: expected floats, got dtype {logits.dtype}")
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            "logits: expected shape (n, K) with at least 2 classes, got "
            f"{tuple(logits.shape)}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("logits: expected finite numbers, got NaN or inf")
    log_y = F.log_softmax(logits.double(), dim=1)
    log_odds = (log_y - _log_complement(log_y)).clamp(
        -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS
    )
    lost = beta * (torch.sigmoid(gamma * log_odds) - 0.5)
    perturbed = (torch.sigmoid(log_odds) - lost).clamp(_SMALLEST, 1.0)
    result = perturbed.log() - perturbed.sum(1, keepdim=True).log()
    if straight_through:
        result = _with_gradient_of(result, log_y)
    return result.to(logits.dtype)


def _log_complement(log_y: Tensor) -> Tensor:
    """log(1 - y) of log y; exact also where y rounds to one."""
    top = log_y.argmax(1, keepdim=True)
    others = log_y.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)
    # All but the largest are at most 1/2, where this is accurate.
    small = log_y.scatter(1, top, -1.0)
    return torch.log(-torch.expm1(small)).scatter(1, top, others)


class _JPEG(nn.Module):
    def __init__(self, quality: int) -> None:
        super().__init__()
        self.quality = quality

    def forward(self, images: Tensor) -> Tensor:
        return jpeg_compress(images, quality=self.quality)


class JPEGReverseSigmoid(nn.Module):
    """A model behind JPEG compression, its outputs behind a Reverse Sigmoid.

    A weak defense, to be recognized as one: it hides the gradient and the confidence of
    a model, and changes little of what the model computes.

    Parameters
    ----------
    model : torch.nn.Module
        Takes gray or RGB images with pixels in [0, 1], returns logits.
    quality, beta, gamma
        See :func:`jpeg_compress` and :func:`reverse_sigmoid`.
    straight_through : bool, default True
        Let gradients pass as if neither were there, so that attacks see through the
        defense (A. Athalye et al., ICML 2018). If false, the gradient by the images is
        the true one, zero: gradient attacks then fail without the model being robust.

    Notes
    -----
    With straight-through gradients, too, attacks find too few failures: the Reverse
    Sigmoid gives the least likely classes the largest probabilities after the first,
    and they aim at these. Attack :attr:`surrogate`, and evaluate this model on that.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> defended = JPEGReverseSigmoid(load_model("digits-cnn"), quality=75)
    >>> [f(torch.zeros(2, 1, 8, 8)).shape[1] for f in (defended, defended.surrogate)]
    [10, 10]
    >>> defended
    JPEGReverseSigmoid(
      quality=75, beta=1, gamma=0.1, straight_through=True
      (model): Sequential(...
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        quality: int = 50,
        beta: float = 1.0,
        gamma: float = 0.1,
        straight_through: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.quality = _check_quality(quality)
        self.beta = check_non_negative("beta", beta)
        self.gamma = check_non_negative("gamma", gamma)
        self.straight_through = bool(straight_through)

    def forward(self, images: Tensor) -> Tensor:
        """Return log-probabilities (n, K) of images (n, C, H, W) in [0, 1]."""
        options: dict[str, Any] = {"straight_through": self.straight_through}
        rough = jpeg_compress(images, quality=self.quality, **options)
        logits = self.model(rough)
        return reverse_sigmoid(logits, beta=self.beta, gamma=self.gamma, **options)

    @property
    def surrogate(self) -> nn.Module:
        """The target of an attacker who knows the defense: all but the Reverse Sigmoid.

        With the default parameters, it predicts as the defended model does where a
        class has more than half of the probability.
        """
        jpeg = _JPEG(self.quality)
        surrogate = nn.Sequential(jpeg, self.model)
        # train() would reach the model inside.
        jpeg.training = surrogate.training = self.training
        return surrogate

    def extra_repr(self) -> str:
        """The parameters, for ``repr``."""
        return (
            f"quality={self.quality}, beta={self.beta:g}, gamma={self.gamma:g}, "
            f"straight_through={self.straight_through}"
        )


class Mirrored(nn.Module):
    """A model that answers for an image and its mirror image: the mean of both logits.

    For classifiers that were trained on both. It costs twice as much.

    Parameters
    ----------
    model : torch.nn.Module
        From images (n, C, H, W) to logits (n, K).

    Notes
    -----
    The gradient is exact, so that an attack needs no surrogate. Source: K. Jordan, "94%
    on CIFAR-10 in 3.29 seconds", arXiv:2404.00498, 2024.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> model = Mirrored(load_model("digits-cnn"))
    >>> image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(model(image), model(image.flip(-1))))
    True
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean logits (n, K) of images (n, C, H, W) and their mirrors."""
        logits: Tensor = self.model(torch.cat([images, images.flip(-1)]))
        return (logits[: len(images)] + logits[len(images) :]) / 2
