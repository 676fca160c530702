"""Input margins: upper bounds from an ensemble of attacks, batch by batch."""

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_count
from robustbook._checks.models import Model
from robustbook.attacks.engine import Batch, Norm, Options, run_attack


@dataclass(frozen=True, eq=False, repr=False)
class InputMargins:
    """Input margins: upper bounds by an ensemble of attacks.

    Attributes
    ----------
    margins : Tensor, shape (N,)
        Upper bounds on the distances to the decision boundary, float64, in [0, 1] pixel
        units. ``inf`` where neither an attack nor a straight line to black, gray, white
        or the negative led to another class; 0 where labels were given and the
        prediction is wrong.
    adversarial : Tensor, shape (N, ...)
        The closest inputs found, in [0, 1], with another prediction; the clean input
        where `margins` is ``inf`` or 0.
    norm : {"linf", "l2"}
        The norm that `margins` are measured in.
    """

    margins: Tensor
    adversarial: Tensor
    norm: Norm

    def __len__(self) -> int:
        """Return N, the number of inputs."""
        return len(self.margins)

    def __repr__(self) -> str:
        return (
            f"InputMargins({self.norm}: median {float(self.margins.median()):.3g} of "
            f"{len(self)} inputs, {int(self.failed.sum())} not found)"
        )

    @property
    def failed(self) -> Tensor:
        """Whether no attack found another class, bool (N,)."""
        return torch.isinf(self.margins)


def input_margin(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    norm: Norm = "linf",
    targets: int = 3,
    steps: int = 20,
    refine_steps: int = 50,
    **options: Unpack[Options],
) -> InputMargins:
    """Measure distances to the decision boundary: the smallest changes found.

    FMN and FAB go for the classes whose boundaries are nearest to first order; then,
    for the nearest class found, FAB takes more steps and FMN starts from the best
    input; a bisection shortens the smallest change. The results are upper bounds,
    :class:`InputMargins`; on linear models they are the margins. Source: the margin
    paper, equation 1; Chapter 22.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1].
    images : Tensor or array, shape (N, ...)
        Images in [0, 1], float32 or float64 as the model's parameters.
    labels : Tensor or ndarray, shape (N,), optional
        True classes. With them, the margin is 0 where the prediction is wrong. Without
        them, as in the paper, it is that of the prediction, right or wrong.
    norm : {"linf", "l2"}, default "linf"
        The largest change of a pixel, or the root of the sum of squared changes.
    targets : int, default 3
        Number of classes that the first pass goes for; all if there are fewer.
    steps : int, default 20
        Steps of each attack in the first pass.
    refine_steps : int, default 50
        Steps of each attack in the second pass; 0 for no second pass.
    **options
        ``batch_size``, ``seed``, ``progress`` and ``device``, as for
        :func:`robustbook.attacks.pgd`. The search itself draws no random numbers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a logit is NaN or infinite.
    ModuleNotFoundError
        If foolbox or pyautoattack is not installed: ``robustbook[attacks]`` has them.

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> result = input_margin(lambda x: x @ weights.T, torch.tensor([[0.9, 0.1]]))
    >>> round(float(result.margins[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    check_count("targets", targets)
    check_count("steps", steps)
    check_count("refine_steps", refine_steps, minimum=0)
    # Libraries of attacks are extras.
    from robustbook.margins._recipe import Search

    def perturb(batch: Batch) -> Tensor:
        return Search(batch, norm).run(targets, steps, refine_steps)

    result = run_attack(
        perturb, model, images, labels, "input_margin", norm, minimal=True, **options
    )
    return InputMargins(result.norms, result.adversarial, norm)
