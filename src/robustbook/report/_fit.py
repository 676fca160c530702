"""Whether a stranger's model and images go together, and what to do if not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from robustbook._checks.models import check_model_logits, model_dtype
from robustbook.report._data import Images

__all__ = ["check_fit"]


def check_fit(model: nn.Module, chosen: Images, name: str) -> int:
    """Show the model two images, ask for a gradient as attacks will; return K."""
    parameter = next(model.parameters(), None)
    place: dict[str, Any] = {"dtype": model_dtype(model)}
    if parameter is not None:
        place["device"] = parameter.device
    pixels = chosen.images[:2].to(**place).requires_grad_()
    shape = "x".join(map(str, pixels.shape[1:]))
    try:
        # A copy: some models change what they are given.
        answer = model(pixels.clone())
    except (Exception, SystemExit) as error:
        # Whatever a stranger's model raises.
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{name}: images of {shape}, as {chosen.name} has them, do not fit this "
            f"model ({type(error).__name__}: {reason})"
        ) from error
    if not isinstance(answer, Tensor):
        raise TypeError(
            f"{name}: expected a tensor of logits, got {type(answer).__name__}; "
            f"{_next_step(answer)}"
        )
    try:
        logits = check_model_logits(answer, len(pixels))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    if not logits.requires_grad:
        raise ValueError(
            f"{name}: its logits carry no gradient, which attacks need; leave "
            "out torch.no_grad() and detach()"
        )
    classes = logits.shape[1]
    if chosen.num_classes is not None and classes != chosen.num_classes:
        raise ValueError(
            f"{name}: {classes} classes, but {chosen.name} has {chosen.num_classes}"
        )
    if chosen.labels is not None and int(chosen.labels.max()) >= classes:
        raise ValueError(
            f"{name}: {classes} classes, but a label of {chosen.name} is "
            f"{int(chosen.labels.max())}"
        )
    return classes


def _next_step(answer: object) -> str:
    """The line that makes logits of what the model returns."""
    if isinstance(answer, np.ndarray):
        return (
            "attacks need gradients, so name the network in PyTorch; of any other, "
            "numpy.save the logits and score them with robustbook score"
        )
    if hasattr(answer, "logits"):
        part = ".logits"
    elif isinstance(answer, Mapping) and answer:
        part = f"[{'logits' if 'logits' in answer else next(iter(answer))!r}]"
        part = part.replace("[logits]", "['logits']")
    elif isinstance(answer, tuple | list) and answer:
        part = "[0]"
    else:
        return "return logits of shape (N, K) from forward"
    return (
        "where the model is made, add: model.register_forward_hook("
        f"lambda module, images, output: output{part})"
    )
