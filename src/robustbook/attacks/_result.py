"""The result of an attack, and the best of several results."""

import math
from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import check_non_negative

Norm = Literal["linf", "l2"]
NORMS: Final = ("linf", "l2")

#: What rounding can add to the change of one float32 pixel: an attack of size 8/255
#: can come out larger by as much.
ROUNDING: Final = 2.0**-23


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The images that an attack made, and whether they fool the model.

    Attributes
    ----------
    adversarial : Tensor, shape (N, ...)
        The attacked images, in [0, 1]. Where the model was wrong already, the clean
        image. Where the attack failed: the last image tried for an attack of fixed
        size, the clean image for an attack that looks for the smallest size.
    norms : Tensor, shape (N,)
        Size of the perturbation, float64, in [0, 1] pixel units: ``inf`` where nothing
        was found, 0 where the model was wrong already and the image was left as it is.
    success : Tensor, shape (N,)
        Whether the prediction on ``adversarial`` differs from the label, bool.
    norm : {"linf", "l2"}
        What ``norms`` measures: the largest change of a pixel, or the root of the
        sum of squares.
    attack : str
        Name of the attack.
    """

    adversarial: Tensor = field(repr=False)
    norms: Tensor = field(repr=False)
    success: Tensor = field(repr=False)
    norm: Norm
    attack: str

    def __len__(self) -> int:
        return len(self.success)

    def robust_accuracy(self, eps: float = math.inf) -> float:
        """Share of samples for which nothing of size `eps` or less was found.

        What rounding can add, 1.2e-7 a pixel, is allowed. A better attack finds more.

        Raises
        ------
        ValueError
            If `eps`, in [0, 1] pixel units, is negative.
        """
        limit = check_non_negative("eps", eps, infinite=True)
        pixels = 1 if self.norm == "linf" else self.adversarial[0].numel()
        allowed = limit + ROUNDING * math.sqrt(pixels)
        fooled = self.success & (self.norms <= allowed)
        return float((~fooled).double().mean())


def smallest(*results: AttackResult) -> AttackResult:
    """Take, sample by sample, the smallest perturbation of several results.

    They are on the same images and labels, in the same norm. Where none of them
    succeeded, the image of the first is kept.

    Raises
    ------
    ValueError
        If there is no result, or norms or shapes differ.

    Examples
    --------
    >>> from robustbook.attacks import fmn
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> model = load_model("digits-linear")
    >>> few = fmn(model, images, steps=5)
    >>> best = smallest(few, fmn(model, images, steps=20))
    >>> bool(best.norms[0] <= few.norms[0])
    True
    """
    if not results:
        raise ValueError("results: expected at least one AttackResult, got none")
    first = results[0]
    for other in results[1:]:
        for what, one, two in (
            ("norm", first.norm, other.norm),
            ("shape", *(tuple(x.adversarial.shape) for x in (first, other))),
        ):
            if one != two:
                raise ValueError(f"results: expected one {what}, got {one} and {two}")
    adversarial, norms = first.adversarial.clone(), first.norms.clone()
    success = first.success.clone()
    for other in results[1:]:
        better = other.success & (other.norms < norms)
        adversarial[better] = other.adversarial[better].to(adversarial.dtype)
        norms[better] = other.norms[better]
        success |= other.success
    names = "+".join(dict.fromkeys(result.attack for result in results))
    return AttackResult(adversarial, norms, success, first.norm, names)


def distances(images: Tensor, others: Tensor, norm: Norm) -> Tensor:
    """Norms of the differences, sample by sample, float64."""
    difference = (others.double() - images.double()).flatten(1)
    if norm == "linf":
        return difference.abs().amax(dim=1)
    return torch.linalg.vector_norm(difference, dim=1)
