"""The multivariate sigmoid and the softmax, which the paper relates to robustness."""

import torch
from torch import Tensor

from robustbook._checks.arguments import ArrayLike, as_real, check_positive
from robustbook._checks.models import Model, keeping_generators
from robustbook.average_case._linearize import margins_of
from robustbook.average_case._problem import BATCH, set_up


def mv_sigmoid(values: ArrayLike, *, scale: float = 1.0) -> Tensor:
    """Compute the multivariate sigmoid, 1 / (1 + Σ_i exp(-s v_i)) with s the `scale`.

    The paper puts it in the place of the normal distribution function; of logit
    differences it is the softmax. It treats margins as logistic, with standard
    deviation π / √3 ≈ 1.81 and correlations of 1/2. A scale of 1.702 corrects the
    spread: that logistic function is within 0.0095 of the normal distribution function.
    Source: the average-case paper, section 3.2.3; Hendrycks and Gimpel, Gaussian error
    linear units (2016), for 1.702, which the paper leaves out; Chapter 19.

    Parameters
    ----------
    values : Tensor or array, shape (..., D)
        Standardized margins, which may be infinite.
    scale : float, default 1
        Positive factor of the margins. The paper has 1.

    Returns
    -------
    Tensor, shape (...)
        Float64, in [0, 1].

    Raises
    ------
    ValueError
        If there is no last dimension, an entry is NaN, or `scale` is not positive.

    Examples
    --------
    Its value beside Φ(1) = 0.8413, with the paper's scale and with 1.702:

    >>> [round(float(mv_sigmoid([1.0], scale=s)), 4) for s in (1, 1.702)]
    [0.7311, 0.8458]
    """
    check_positive("scale", scale)
    margins = as_real("values", values) * scale
    if margins.ndim == 0:
        raise ValueError("values: expected shape (..., D), got a single number")
    if bool(margins.isnan().any()):
        raise ValueError("values: expected numbers, got NaN")
    zero = margins.new_zeros(*margins.shape[:-1], 1)
    return torch.exp(-torch.logsumexp(torch.cat([zero, -margins], dim=-1), dim=-1))


@keeping_generators()
def softmax_proxy(
    model: Model,
    images: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return the softmax probability of the prediction, often taken for robustness.

    It does not depend on the distance of a boundary. For a linear model whose class
    differences all have norm k, it is the mv-sigmoid estimate at σ = 1 / k. Source: the
    average-case paper, section 3.2.3 and Lemma A.4; Chapters 19 and 21.

    >>> softmax_proxy(lambda x: x, torch.tensor([[0.0, 0.0, 2.0]])).round(decimals=3)
    tensor([0.7870], dtype=torch.float64)
    """
    problem = set_up(model, images, None, labels, batch_size, device, noisy=False)
    margins = margins_of(problem.logits, problem.labels)
    return mv_sigmoid(margins).to(problem.caller_device)
