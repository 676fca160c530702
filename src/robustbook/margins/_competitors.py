"""What is cheaper than learning a margin: a monotone map, and one backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_count, check_logits
from robustbook._checks.models import (
    Model,
    check_model,
    find_device,
    model_logits,
    warn_of_training,
)
from robustbook.attacks.engine import Norm, check_norm
from robustbook.margins._arrays import check_vector
from robustbook.margins._docs import DOCS
from robustbook.margins._logits import DUAL


@DOCS.fill
def gradient_normalized_margin(
    model: Model,
    images: Any,
    *,
    norm: Norm = "linf",
    nearest: bool = False,
    batch_size: int = 256,
    device: str | torch.device | None = None,
) -> Tensor:
    """The logit margin divided by the dual norm of its gradient.

    The distance to the boundary of the second likeliest class, to first order: one
    forward and one backward pass. Exact for a linear model of two classes.

    Parameters
    ----------
    {model}
    images : Tensor or ndarray, shape (N, ...)
        Inputs of any range, float32 or float64.
    {norm}
    nearest : bool, default False
        Take the smallest distance over all other classes, with K - 1 backward
        passes. Exact for every linear model.
    {batch_size} {device}

    Returns
    -------
    Tensor, shape (N,)
        Distances, float64, in the units of the images, where these are; ``inf``
        where the gradient is zero.

    Raises
    ------
    {TypeError} {ValueError}
    ValueError
        If logits have no gradient.

    See Also
    --------
    input_margin, logit_margin

    References
    ----------
    Chapter 26 of this book.

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> image = torch.tensor([[0.9, 0.1]])
    >>> distance = gradient_normalized_margin(lambda x: x @ weights.T, image)
    >>> round(float(distance[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    check_model(model)
    inputs = as_tensor("images", images)
    if inputs.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"images: expected float32 or float64, got {inputs.dtype}; convert them"
        )
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(
            f"images: expected shape (N, ...) with at least one image, got "
            f"{tuple(inputs.shape)}"
        )
    check_norm(norm)
    check_count("batch_size", batch_size)
    warn_of_training(model)
    place = find_device(model, inputs, device)
    with torch.inference_mode(False), torch.enable_grad():
        parts = [
            _distances(model, part.clone().to(place), norm, nearest)
            for part in torch.split(inputs, batch_size)
        ]
    return torch.cat(parts).to(inputs.device)


def _distances(model: Model, images: Tensor, norm: Norm, nearest: bool) -> Tensor:
    images.requires_grad_()
    logits = model_logits(model, images)
    check_logits("model's logits", logits)
    if not logits.requires_grad:
        raise ValueError(
            "model: expected logits that can be differentiated by the images, got "
            "logits without a gradient; remove torch.no_grad and detach from it"
        )
    order = logits.detach().argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(len(images), device=images.device)
    least = torch.full((len(images),), torch.inf, device=images.device).double()
    last = logits.shape[1] if nearest else 2
    for place in range(1, last):
        gap = logits[rows, order[:, 0]] - logits[rows, order[:, place]]
        (slope,) = torch.autograd.grad(
            gap.sum(), images, retain_graph=place < last - 1, materialize_grads=True
        )
        length = torch.linalg.vector_norm(
            slope.double().flatten(1), ord=DUAL[norm], dim=1
        )
        distance = gap.detach().double() / length
        # A tie is at distance 0, whatever the gradient.
        distance = torch.where(gap == 0, 0.0, distance)
        least = torch.minimum(least, distance)
    return least


class IsotonicMargin:
    """The input margin as a rising function of one score.

    It turns logit margins into units of the input. As a monotone map it does not
    change how samples are ordered, ties apart: no rank correlation is gained.

    References
    ----------
    Chapter 26 of this book.

    Examples
    --------
    >>> model = IsotonicMargin().fit([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
    >>> model.predict([0.0, 1.5, 9.0]).tolist()
    [0.1, 0.175, 0.25]
    """

    def __init__(self) -> None:
        self._model: Any = None

    @DOCS.fill
    def fit(self, logit_margin: Any, input_margin: Any) -> IsotonicMargin:
        """Fit by least squares.

        Parameters
        ----------
        {logit_margin} {input_margin}

        Returns
        -------
        IsotonicMargin
            Itself.

        Raises
        ------
        ValueError
            If lengths differ, or an entry is not finite.
        """
        x = check_vector("logit_margin", logit_margin)
        y = check_vector("input_margin", input_margin, length=len(x), low=0.0)
        for name, values in (("logit_margin", x), ("input_margin", y)):
            if values.max() == torch.inf or values.min() == -torch.inf:
                raise ValueError(f"{name}: expected finite numbers; leave others out")
        self._model = IsotonicRegression(out_of_bounds="clip").fit(x, y)
        return self

    @DOCS.fill
    def predict(self, logit_margin: Any) -> Tensor:
        """Predict input margins.

        Parameters
        ----------
        {logit_margin}

        Returns
        -------
        Tensor, shape (N,)
            Predicted margins, float64; constant beyond the scores of the fit.

        Raises
        ------
        RuntimeError
            If it was not fitted.
        """
        if self._model is None:
            raise RuntimeError("IsotonicMargin: expected a fitted model; call fit")
        x = check_vector("logit_margin", logit_margin)
        inside = np.clip(x, self._model.X_min_, self._model.X_max_)
        return torch.from_numpy(self._model.predict(inside)).double()
