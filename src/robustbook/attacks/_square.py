"""Square Attack, which needs no gradient, by pyautoattack."""

from functools import partial
from typing import Unpack

from robustbook._checks.arguments import ArrayLike, check_bound, check_count
from robustbook._checks.images import check_images
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import Norm, Options, run_attack


def square(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    steps: int = 5000,
    norm: Norm = "linf",
    **options: Unpack[Options],
) -> AttackResult:
    """Attack by a random search that changes squares of the image: Square Attack.

    It only asks for logits, so it also works where the gradient hides. On a model
    whose gradient helps it usually finds less than APGD. Squares shrink as in the
    paper, whatever the number of steps. Source: Andriushchenko et al., "Square Attack:
    a query-efficient black-box adversarial attack via random search", ECCV 2020;
    Chapter 10.

    Parameters
    ----------
    model, labels, eps, norm, **options
        As for :func:`pgd`, but for this: the images of a batch are changed in the same
        places, so the result depends on ``batch_size`` and on the other images.
    images : Tensor or array, shape (N, C, H, W)
        Images; with ``norm="l2"`` of a size that the attack's first grid fits into,
        such as 28 or 32 pixels a side.
    steps : int, default 5000
        Random changes, each of which asks the model once. An image that fools the
        model is left alone from then on.

    Returns
    -------
    AttackResult
        Images within `eps`: where the attack failed, those of the smallest margin;
        where the model is wrong already, the clean ones.

    Raises
    ------
    TypeError, ValueError, ModuleNotFoundError
        As :func:`pgd`; if images are not of a shape or size as above.

    Examples
    --------
    >>> import torch
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> square(load_model("digits-linear"), images, eps=0.5, steps=50).success.tolist()
    [True]
    """
    check_bound("eps", eps, norm=norm)
    check_count("steps", steps)
    height, width = check_images(images).shape[2:]
    # The library begins with squares side by side, which may leave the image: an error
    # but for squares of one pixel.
    side, inset = height // 5, height % 5 // 2
    if (
        norm == "l2"
        and side != 1
        and not all(
            side and inset + end // side * side <= end for end in (height, width)
        )
    ):
        raise ValueError(
            f"images: Square Attack in the ℓ2 norm does not fit {height} × {width} "
            "pixels; resize them, or use norm='linf'"
        )
    from robustbook.attacks.pyautoattack_runs import run_square

    run = partial(run_square, norm=norm, eps=eps, steps=steps)
    return run_attack(run, model, images, labels, "square", norm, **options)
