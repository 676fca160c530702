"""Any callable that returns logits, as a module that attacks leave no trace in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from robustbook._checks.models import Model, ask_model, check_finite_logits


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
                "logits without a gradient; remove torch.no_grad and detach from it"
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
        # What is too large for float32 is refused, too.
        logits = ask_model(model, images.to(dtype)).float()
        return check_finite_logits(logits, images)
