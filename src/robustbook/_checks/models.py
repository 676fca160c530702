"""Checks of models and of the logits that they return."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import where_logits_are

Model = Callable[[Tensor], Tensor]


def model_logits(model: Model, images: Tensor, kind: str = "images") -> Tensor:
    """Return the logits of images (n, K): real, dense, finite.

    The model gets a copy, since it may work in place. The message calls the images
    ``kind``. The logits carry the gradient of the model.
    """
    try:
        output = model(images.clone())
    except RuntimeError as error:
        dtype = model_dtype(model)
        if dtype in (None, images.dtype):
            raise
        raise TypeError(
            f"images: expected the dtype of the model's parameters, {dtype}, got "
            f"{images.dtype}; convert the images to it or call model.to({images.dtype})"
        ) from error
    logits = check_model_logits(output, len(images))
    bad = ~torch.isfinite(logits.detach()).all(dim=1)
    if bool(bad.any()):
        # A search may try images beyond the largest number, and drops them itself.
        bad &= torch.isfinite(images.detach()).flatten(1).all(dim=1)
    if bool(bad.any()):
        raise ValueError(
            f"model: expected finite logits, got NaN or infinity on {int(bad.sum())} "
            f"of {len(bad)} {kind}; mend the model, or compute in float64"
        )
    return logits


def check_is_tensor(output: object) -> Tensor:
    """Return the output of a model if it is a tensor; else say how to get one."""
    if isinstance(output, Tensor):
        return output
    remedy = (
        "return logits of shape (N, K) from forward; for a network outside PyTorch, "
        "numpy.save the logits and score them with robustbook score"
    )
    if part := where_logits_are(output):
        remedy = (
            "after creating the model, add: model.register_forward_hook("
            f"lambda module, images, output: output{part})"
        )
        if isinstance(output, Mapping) and "logits" not in output:
            keys = ", ".join(repr(key) for key in output)
            remedy += f", with the key of the logits instead, out of {keys}"
    raise TypeError(
        f"model: expected a tensor of logits, got {type(output).__name__}; {remedy}"
    )


def check_model_logits(logits: object, count: int) -> Tensor:
    """Return the output of a model if it has one row of real logits a sample."""
    logits = check_is_tensor(logits)
    if not logits.is_floating_point():
        raise TypeError(
            f"model: expected real floating-point logits, got dtype {logits.dtype}; "
            "let it return scores"
        )
    if logits.ndim != 2 or len(logits) != count or logits.shape[1] < 2:
        raise ValueError(
            f"model: expected logits of shape ({count}, K) with K of at least 2, got "
            f"{tuple(logits.shape)}"
        )
    return logits


def check_differentiable(logits: Tensor, remedy: str = "") -> None:
    """Refuse logits without a gradient."""
    if not logits.requires_grad:
        raise ValueError(
            "model: expected logits that can be differentiated by the inputs, got "
            "logits without a gradient; remove torch.no_grad and detach from it"
            f"{remedy}"
        )


def model_dtype(model: Model) -> torch.dtype | None:
    """Return the dtype of a module's parameters; None if none is floating-point."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    dtype = next((p.dtype for p in parameters if p.is_floating_point()), None)
    if dtype not in (None, torch.float32, torch.float64):
        raise TypeError(
            f"model: expected parameters in float32 or float64, got {dtype}; call "
            "model.float() first"
        )
    return dtype


def find_device(
    model: Model, images: Tensor, device: str | torch.device | None
) -> torch.device:
    """Return the device asked for, else that of the model, else that of the images."""
    if device is None:
        modules = model.parameters() if isinstance(model, nn.Module) else ()
        return next(iter(modules), images).device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


@contextmanager
def keeping_generators() -> Iterator[None]:
    """Restore torch's generators, since a model in training mode draws from them."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode; each module gets its former mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def warn_of_training(model: Model, stacklevel: int = 4) -> None:
    """Warn of modules whose result is random or depends on the batch."""
    if isinstance(model, nn.Module) and any(m.training for m in model.modules()):
        warnings.warn(
            "model: it is in training mode, so dropout and batch normalization make "
            "its logits random or dependent on the batch; call model.eval() first",
            UserWarning,
            stacklevel=stacklevel,
        )
