"""Square Attack, which needs no gradient, by pyautoattack."""

from typing import Unpack

from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_bound, check_count
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import Batch, Norm, Options, run_attack

#: Fewest pixels on a side: the ℓ2 attack starts from a grid of five by five.
SMALLEST_SIDE = 5


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
        places, so the result depends on ``batch_size``.
    images : Tensor or array, shape (N, C, H, W)
        Images of at least five pixels on a side.
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
        As :func:`pgd`; if images are not of the shape above.

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
    from robustbook.attacks.pyautoattack_runs import run_square

    def perturb(batch: Batch) -> Tensor:
        shape = tuple(batch.images.shape)
        if len(shape) != 4 or min(shape[2:]) < SMALLEST_SIDE:
            raise ValueError(
                "images: expected shape (N, C, H, W) with H and W of at least "
                f"{SMALLEST_SIDE}, got {shape}"
            )
        return run_square(batch, norm=norm, eps=eps, steps=steps)

    return run_attack(perturb, model, images, labels, "square", norm, **options)
