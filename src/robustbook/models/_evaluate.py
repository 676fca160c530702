"""Using a model: where it runs, and its logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustbook._validation import check_count

__all__ = ["logits_of", "resolve_device"]


def resolve_device(device: str) -> torch.device:
    """Turn "auto" into a CUDA device if there is one, else the CPU.

    Parameters
    ----------
    device : str
        "auto", or anything that ``torch.device`` takes.

    Returns
    -------
    torch.device
        The device.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


@torch.no_grad()
def logits_of(model: nn.Module, images: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Evaluate a model on images, batch by batch.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier. It is evaluated in evaluation mode, and each of its modules
        is left in the mode in which it was.
    images : Tensor, shape (n, C, H, W)
        Images with pixels in [0, 1], on any device.
    batch_size : int, default 1024
        Images evaluated at once.

    Returns
    -------
    Tensor, shape (n, K)
        Logits, on the CPU.

    Raises
    ------
    ValueError
        If there is no image or `batch_size` is less than 1.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> logits_of(load_model("digits-linear"), torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """
    check_count("batch_size", batch_size)
    if len(images) == 0:
        raise ValueError(
            f"images: expected at least one image, got shape {tuple(images.shape)}"
        )
    parameter = next(model.parameters(), None)
    device = images.device if parameter is None else parameter.device
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        return torch.cat(
            [
                model(images[start : start + batch_size].to(device)).cpu()
                for start in range(0, len(images), batch_size)
            ]
        )
    finally:
        for module, training in modes:
            module.training = training
