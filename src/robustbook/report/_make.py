"""What ``robustbook report`` does: load, check, measure, write."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustbook._classifier import check_model_logits
from robustbook.lenses import three_lenses
from robustbook.models import load_model, resolve_device
from robustbook.report._data import Images, read_images
from robustbook.report._numbers import image_scores
from robustbook.report._page import Report, write_whole

__all__ = ["Request", "check_target", "make", "parse_bound"]


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    model: str
    data: str
    out: Path
    images: int
    eps: str
    sigma: float
    severity: int
    attack_steps: int
    noise_samples: int
    margin_images: int
    seed: int
    device: str
    numbers: Path | None


def make(asked: Request) -> float:
    """Measure a model and write its page.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    TypeError, ValueError
        If model, data or an option cannot be used.
    RuntimeError
        If the model fails while it is measured.
    OSError
        If a file cannot be written.
    """
    started = time.monotonic()
    # First what costs nothing.
    eps = parse_bound(asked.eps)
    for path in filter(None, (asked.out, asked.numbers)):
        check_target(path)
    device = _device(asked.device)
    chosen = read_images(asked.data).draw(asked.images, seed=asked.seed)
    model = load_model(asked.model, device=device)
    _check_fit(model, chosen, asked)
    seen = three_lenses(
        model,
        chosen.images,
        chosen.labels,
        eps=eps,
        sigma=asked.sigma,
        severity=asked.severity,
        attack_steps=asked.attack_steps,
        noise_samples=asked.noise_samples,
        margin_images=asked.margin_images,
        seed=asked.seed,
    )
    seconds = time.monotonic() - started
    page = Report(
        seen,
        images=chosen.images,
        positions=chosen.positions.tolist(),
        model=asked.model,
        data=chosen.name,
        date=datetime.now(UTC).date().isoformat(),
        device=_device_name(device),
        seconds=seconds,
    )
    if asked.numbers is not None:
        scores = image_scores(seen, chosen.positions.tolist())
        text = json.dumps({**page.numbers, "per_image": scores}, allow_nan=False)
        write_whole(asked.numbers, text + "\n")
    page.write(asked.out)
    return time.monotonic() - started


def parse_bound(text: str) -> float:
    """ε as a number or a fraction, "0.03" or "8/255"."""
    try:
        number = float(Fraction(text.strip()))
    except (ValueError, ZeroDivisionError, OverflowError):
        number = -1.0
    if not 0 < number <= 1:
        raise ValueError(
            f"--eps: expected a number in (0, 1], such as 0.03 or 8/255; got {text!r}"
        )
    return number


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before work is done."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: no such folder: {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path}: no permission to write into {path.parent}")


def _device(name: str) -> str:
    try:
        found = torch.device(resolve_device(name))
        torch.empty(0, device=found)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--device: expected auto, cpu, or a device that is here; got {name!r} "
            f"({reason})"
        ) from error
    return str(found)


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return device


def _check_fit(model: nn.Module, chosen: Images, asked: Request) -> None:
    """Show the model two images, and ask for a gradient, as attacks will."""
    parameter = next(model.parameters(), None)
    place: Any = {} if parameter is None else {"device": parameter.device}
    if parameter is not None and parameter.is_floating_point():
        place["dtype"] = parameter.dtype
    pixels = chosen.images[:2].to(**place).requires_grad_()
    shape = "x".join(map(str, pixels.shape[1:]))
    what = f"{asked.model}: images of {shape}, as {chosen.name} has them,"
    try:
        logits = model(pixels)
    except Exception as error:
        # Whatever a stranger's model raises.
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{what} do not fit this model ({type(error).__name__}: {reason})"
        ) from error
    try:
        logits = check_model_logits(logits, len(pixels))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{asked.model}: {error}") from error
    if not logits.requires_grad:
        raise ValueError(
            f"{asked.model}: its logits carry no gradient, which attacks need; leave "
            "out torch.no_grad() and detach()"
        )
    classes = logits.shape[1]
    if chosen.num_classes is not None and classes != chosen.num_classes:
        raise ValueError(
            f"{asked.model}: {classes} classes, but {chosen.name} has "
            f"{chosen.num_classes}"
        )
    if chosen.labels is not None and int(chosen.labels.max()) >= classes:
        raise ValueError(
            f"{asked.model}: {classes} classes, but a label of {chosen.name} is "
            f"{int(chosen.labels.max())}"
        )
