"""The multivariate sigmoid, and the softmax of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_positive
from robustbook._checks.models import Model
from robustbook.average_case._docs import SHARED
from robustbook.average_case._linearize import margins_of
from robustbook.average_case._problem import NO_NOISE, as_real, set_up
from robustbook.average_case._result import squeeze


def mv_sigmoid(values: Any, *, scale: float = 1.0) -> Tensor:
    """The multivariate sigmoid, 1 / (1 + Σ_i exp(-s v_i)) with s the `scale`.

    The paper's stand-in for the normal distribution function: it needs no
    covariance. Of the logit differences it is the softmax.

    It is itself a probability. With independent standard Gumbel variables
    G_t, G_1, ..., G_D it is P[s v_i + G_t - G_i ≥ 0 for all i]. So it takes the
    margins for logistic ones, of standard deviation π / √3 ≈ 1.81 and correlations
    of 1/2, where the noise makes normal ones of standard deviation 1. A scale of
    1.702 mends the spread: a logistic function that steep is within 0.0095 of the
    normal distribution function everywhere. The source that the paper takes the
    function from has this factor, the paper leaves it out.

    Parameters
    ----------
    values : Tensor or array, shape (..., D)
        Standardized margins; infinite ones are allowed.
    scale : float, default 1
        Positive; what the margins are multiplied by. 1 is the paper's, 1.702 is
        closer to the normal distribution function.

    Returns
    -------
    Tensor, shape (...)
        Float64, in [0, 1].

    Raises
    ------
    ValueError
        If there is no last dimension, an entry is NaN, or `scale` is not positive.

    References
    ----------
    Average-case paper, section 3.2.3; Hendrycks and Gimpel, Gaussian error linear
    units (2016), for 1.702. Chapter 20 of this book.

    Examples
    --------
    >>> round(float(mv_sigmoid([0.0, 0.0])), 4)
    0.3333

    Its distance from Φ(1) = 0.8413, as printed and with the factor:

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


@SHARED.fill
def softmax_proxy(
    model: Model,
    x: Any,
    *,
    temperature: Any = 1.0,
    label: Any = None,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Softmax probability of the prediction: what is often taken for robustness.

    It knows no gradient, so it cannot know how far a boundary is. For a linear model
    whose class differences all have norm k, it is the mv-sigmoid estimate at
    σ = `temperature` / k.

    Parameters
    ----------
    {model} {x}
    temperature : float or sequence, default 1
        Positive; what the logits are divided by. Several share the work.
    {label} {batch_size} {device}

    Returns
    -------
    Tensor, shape (N,) or (T, N)
        Probabilities, float64.

    Raises
    ------
    {TypeError} {ValueError}

    References
    ----------
    Average-case paper, section 3.2.3 and Lemma A.4. Chapters 20 and 22 of this book.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0, 2.0]])
    >>> softmax_proxy(lambda x: x, x).round(decimals=3)
    tensor([0.7870], dtype=torch.float64)
    """
    temperatures = as_real("temperature", temperature).cpu()
    for value in temperatures.reshape(-1).tolist():
        check_positive("temperature", value)
    if temperatures.ndim > 1 or not temperatures.numel():
        raise ValueError(
            "temperature: expected one number or a sequence of them, got shape "
            f"{tuple(temperatures.shape)}"
        )
    problem = set_up(model, x, NO_NOISE, label, batch_size, device)
    margins = margins_of(problem.logits, problem.labels)
    scale = temperatures.reshape(-1, 1, 1).to(margins.device)
    return squeeze(mv_sigmoid(margins / scale), temperatures).to(problem.home)
