"""Using a model: where it runs, its logits, and its features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import check_count
from robustbook._checks.models import check_is_tensor, evaluation_mode

#: Kinds of devices that compute in float64, as the measures do.
DEVICE_TYPES = ("cpu", "cuda")


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into a CUDA device if there is one, else the CPU; or name a device.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or 'cuda', got {device!r}"
        ) from error
    if chosen.type not in DEVICE_TYPES:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or 'cuda', got {device!r}; the measures "
            "need float64, which other devices may lack"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if chosen.type == "cuda" and (chosen.index or 0) >= count:
        here = ", ".join(f"cuda:{index}" for index in range(count)) or "none"
        raise ValueError(
            f"device: got {device!r}, but the CUDA devices of this machine are: "
            f"{here}; pass 'cpu' or 'auto'"
        )
    return chosen


def logits_of(model: nn.Module, images: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Return the logits (n, K) of a model on images, batch by batch, on the CPU.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier. It is evaluated in evaluation mode, and each of its modules
        is left in the mode in which it was.
    images : Tensor, shape (n, C, H, W)
        At least one image with pixels in [0, 1], on any device; none is a ValueError.
    batch_size : int, default 1024
        Images evaluated at once.

    Raises
    ------
    TypeError
        If the model returns no tensor; the message says which line mends it.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> logits_of(load_model("digits-linear"), torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def logits(batch: Tensor) -> Tensor:
        return check_is_tensor(model(batch))

    return _evaluated(model, images, batch_size, logits)


def features_of(model: nn.Module, images: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Return the features (n, D) of a model on images, on the CPU.

    They are the inputs of the linear layer that runs last.

    Parameters
    ----------
    model, images, batch_size
        As for :func:`logits_of`.

    Raises
    ------
    ValueError
        If the model has or uses no linear layer, or gives it another number of rows
        than there are images; or there is no image.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> features_of(load_model("digits-linear"), torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 64])
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ValueError(
            f"model: expected a linear layer in it, got {type(model).__name__} "
            "without one"
        )
    received: list[Tensor] = []

    def keep(_: nn.Module, inputs: Any, named: dict[str, Tensor]) -> None:
        received[:] = [(inputs[0] if inputs else named["input"]).flatten(1)]

    handles = [x.register_forward_pre_hook(keep, with_kwargs=True) for x in layers]

    def features(batch: Tensor) -> Tensor:
        received.clear()
        model(batch)
        if not received:
            raise ValueError(
                f"model: expected {type(model).__name__} to use a linear layer, and "
                "none of those in it received anything"
            )
        if len(received[0]) != len(batch):
            raise ValueError(
                f"model: expected {type(model).__name__} to give its linear layer one "
                f"row an image, got {len(received[0])} rows for {len(batch)}"
            )
        return received[0]

    try:
        return _evaluated(model, images, batch_size, features)
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _evaluated(
    model: nn.Module,
    images: Tensor,
    batch_size: int,
    function: Callable[[Tensor], Tensor],
) -> Tensor:
    check_count("batch_size", batch_size)
    if len(images) == 0:
        raise ValueError(
            f"images: expected at least one image, got shape {tuple(images.shape)}"
        )
    parameter = next(model.parameters(), None)
    device = images.device if parameter is None else parameter.device
    with evaluation_mode(model):
        parts = torch.split(images, batch_size)
        return torch.cat([function(part.to(device)).cpu() for part in parts])
