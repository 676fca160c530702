"""What attacks and estimators ask of a model before they call it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

Model = Callable[[Tensor], Tensor]


def check_model(model: Model) -> None:
    """Refuse what cannot be called."""
    if not callable(model):
        raise TypeError(
            f"model: expected a callable that returns logits, got "
            f"{type(model).__name__}."
        )


def check_model_logits(logits: object, count: int) -> Tensor:
    """Return what the model returned, if it has one row of logits a sample."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            "model: expected a callable that returns a tensor of logits, got "
            f"{type(logits).__name__}."
        )
    if logits.ndim != 2 or len(logits) != count or logits.shape[1] < 2:
        raise ValueError(
            f"model: expected logits of shape ({count}, K) with K of at least 2, got "
            f"{tuple(logits.shape)}."
        )
    return logits


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
