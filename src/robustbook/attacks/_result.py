"""The result of an attack, and the best of several results."""

import math
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import check_bound, check_non_negative

Norm = Literal["linf", "l2"]
NORMS: Final = ("linf", "l2")

#: Rounding can make the change of one float32 pixel larger by as much: an attack of
#: size 8/255 can come out above its bound.
ROUNDING: Final = 2.0**-23


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """The images that an attack made, and whether they fool the model.

    Attributes
    ----------
    adversarial : Tensor, shape (N, ...)
        The attacked images, in [0, 1]; the clean image where the model was wrong
        already. Where the attack failed, an attack of fixed size gives the last image
        that it tried, or its best; one that looks for the smallest size the clean one.
    norms : Tensor, shape (N,)
        Size of the perturbation, float64, in [0, 1] pixel units: ``inf`` where nothing
        was found, 0 where the model was wrong already and the image was left as it is.
    success : Tensor, shape (N,)
        Whether the prediction on ``adversarial`` differs from the label, bool.
    norm : {"linf", "l2"}
        Measure of size: the largest change of a pixel, or the root of the sum of
        squares.
    attack : str
        Name of the attack.
    """

    adversarial: Tensor
    norms: Tensor
    success: Tensor
    norm: Norm
    attack: str

    def __len__(self) -> int:
        return len(self.success)

    def __repr__(self) -> str:
        return (
            f"AttackResult({self.attack}, {self.norm}: {int(self.success.sum())} of "
            f"{len(self)} images fooled the model)"
        )

    def robust_accuracy(self, eps: float = math.inf) -> float:
        """Return the share of samples for which no change up to `eps` was found.

        Rounding, 1.2e-7 a pixel, is allowed for. A better attack gives a lower share.

        Raises
        ------
        ValueError
            If `eps`, in [0, 1] pixel units, is out of range.
        """
        limit = check_non_negative("eps", eps, infinite=True)
        if 0 < limit < math.inf:
            check_bound("eps", limit, norm=self.norm)
        pixels = 1 if self.norm == "linf" else self.adversarial[0].numel()
        allowed = limit + ROUNDING * math.sqrt(pixels)
        fooled = self.success & (self.norms <= allowed)
        return float((~fooled).double().mean())


def smallest(*results: AttackResult) -> AttackResult:
    """Take, sample by sample, the smallest perturbation of several results.

    All of them must be on the same images and labels, in the same norm. Where none
    succeeded, the image of the first is kept.

    Raises
    ------
    TypeError, ValueError
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
    if not results or not all(isinstance(result, AttackResult) for result in results):
        raise TypeError(
            "results: expected one AttackResult or more as separate arguments, got "
            f"{', '.join(type(result).__name__ for result in results) or 'none'}"
        )
    first = results[0]
    adversarial, norms = first.adversarial.clone(), first.norms.clone()
    success = first.success.clone()
    for other in results[1:]:
        a, b = ((x.norm, tuple(x.adversarial.shape)) for x in (first, other))
        if a != b:
            raise ValueError(f"results: expected one norm and shape, got {a} and {b}")
        better = other.success & (other.norms < norms)
        adversarial[better] = other.adversarial[better].to(adversarial.dtype)
        norms[better] = other.norms[better]
        success |= other.success
    names = "+".join(dict.fromkeys(result.attack for result in results))
    return AttackResult(adversarial, norms, success, first.norm, names)


def distances(images: Tensor, others: Tensor, norm: Norm) -> Tensor:
    """Return the norms of the differences, sample by sample, float64."""
    difference = (others.double() - images.double()).flatten(1)
    if norm == "linf":
        return difference.abs().amax(dim=1)
    return torch.linalg.vector_norm(difference, dim=1)
