"""Any callable that returns logits, as a module that attacks leave no trace in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Model = Callable[[Tensor], Tensor]


class _Isolated(torch.autograd.Function):
    """Logits whose gradient reaches the images and nothing else.

    The libraries call ``backward()``, which would also write the gradients of all
    parameters that the model holds, or that a callable hides.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, model: Model) -> Tensor:
        with torch.enable_grad():
            inner = images.detach().requires_grad_()
            logits = model(inner)
        if not logits.requires_grad:
            raise ValueError(
                "model: expected logits that can be differentiated by the images, got "
                "logits without a gradient; remove torch.no_grad and detach from it."
            )
        ctx.inner, ctx.logits = inner, logits
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        # FAB goes backward once for each class.
        (gradient,) = torch.autograd.grad(
            ctx.logits, ctx.inner, gradients[0], retain_graph=True
        )
        return gradient, None


class Classifier(nn.Module):
    """The model as the libraries want it: float32 in, float32 out.

    The model itself is called with the type of number of the caller's images.
    It is not registered as a submodule: nothing moves it or changes its mode.
    """

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        super().__init__()
        self.eval()
        self._hidden = (model, dtype)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K), float32."""
        if images.requires_grad and torch.is_grad_enabled():
            logits: Tensor = _Isolated.apply(images, self._call)  # type: ignore[no-untyped-call]
            return logits
        with torch.no_grad():
            return self._call(images).detach()

    def _call(self, images: Tensor) -> Tensor:
        model, dtype = self._hidden
        logits = model(images.to(dtype))
        if not isinstance(logits, Tensor):
            raise TypeError(
                "model: expected a callable that returns a tensor of logits, got "
                f"{type(logits).__name__}."
            )
        if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
            raise ValueError(
                f"model: expected logits of shape ({len(images)}, K) with K of at "
                f"least 2, got {tuple(logits.shape)}."
            )
        return logits.float()


def find_device(
    model: Model, images: Tensor, device: str | torch.device | None
) -> torch.device:
    """Where to run: as asked, else where the model is, else where the images are."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if device is None:
        return images.device if parameter is None else parameter.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    # An empty tensor knows which device "cuda" stands for.
    asked = torch.empty(0, device=device).device
    if parameter is not None and parameter.device != asked:
        raise ValueError(
            f"device: expected that of the model, {parameter.device}, got {asked}; "
            f'call model.to("{asked}") first.'
        )
    return asked


def warn_of_training(model: Model) -> None:
    """Warn of modules whose result depends on the batch or on chance."""
    if isinstance(model, nn.Module) and any(m.training for m in model.modules()):
        warnings.warn(
            "model: it is in training mode, so dropout and batch normalization make "
            "its logits random or dependent on the batch; call model.eval() first.",
            UserWarning,
            stacklevel=4,
        )
