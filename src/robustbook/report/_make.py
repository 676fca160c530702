"""What ``robustbook report`` does: load, check, measure, write."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustbook._checks.models import check_model_logits
from robustbook.lenses import ThreeLenses, three_lenses
from robustbook.lenses._measure import FEWEST
from robustbook.models import load_model, resolve_device
from robustbook.report._data import Images, read_images
from robustbook.report._numbers import image_scores
from robustbook.report._page import Report, check_target, write_whole

__all__ = ["Request", "make", "parse_bound"]


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
    _check_targets(asked)
    device = _device(asked.device)
    found = read_images(asked.data)
    if found.labels is None and found.others:
        print(
            f"robustbook: {found.name}: nothing named labels in it (but "
            f"{', '.join(found.others)}); measured without labels",
            file=sys.stderr,
        )
    if len(found) < FEWEST:
        raise ValueError(
            f"{found.name}: images: expected at least {FEWEST}, got {len(found)}"
        )
    chosen = found.draw(asked.images, seed=asked.seed)
    model = load_model(asked.model, device=device)
    _check_fit(model, chosen, asked)
    seen = _measured(model, chosen, eps, asked)
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


def _check_targets(asked: Request) -> None:
    """Refuse files that could not be written, or would replace one another."""
    taken = {Path(asked.data).resolve(): "--data"}
    for option, path in (("--out", asked.out), ("--json", asked.numbers)):
        if path is None:
            continue
        check_target(path)
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise ValueError(f"{option}: {path}: expected another file than {other}")


def _measured(
    model: nn.Module, chosen: Images, eps: float, asked: Request
) -> ThreeLenses:
    try:
        return three_lenses(
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
    except (TypeError, ValueError, ArithmeticError, RuntimeError, ImportError):
        raise
    except (Exception, SystemExit) as error:
        # Whatever a stranger's model raises on other images than the first two.
        raise RuntimeError(
            f"{type(error).__name__} while it was measured: {error}"
        ) from error


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
    kinds = [one.dtype for one in model.parameters() if one.is_floating_point()]
    if kinds:
        if kinds[0] not in (torch.float32, torch.float64):
            raise ValueError(
                f"{asked.model}: expected parameters in float32 or float64, got "
                f"{kinds[0]}; call model.float() first"
            )
        place["dtype"] = kinds[0]
    pixels = chosen.images[:2].to(**place).requires_grad_()
    shape = "x".join(map(str, pixels.shape[1:]))
    what = f"{asked.model}: images of {shape}, as {chosen.name} has them,"
    try:
        # A copy: some models change what they are given.
        logits = model(pixels.clone())
    except (Exception, SystemExit) as error:
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
