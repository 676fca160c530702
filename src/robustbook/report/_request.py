"""What was asked of ``robustbook report``, and whether model and images go together."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from robustbook._checks.arguments import check_positive
from robustbook._checks.models import check_model_logits, model_dtype
from robustbook._store.files import check_writable
from robustbook.lenses import LENSES
from robustbook.models import checkpoint_entry, resolve_device
from robustbook.report._data import Images

#: The usual strengths of the attack and of the noise.
EPS: Final = 8 / 255
SIGMA: Final = 0.1
#: Images where neither their number nor the time is asked for.
IMAGES: Final = 200


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model or a list of them, images, a page to write, and how to measure.

    ``images`` None: 200, or as many as fit into ``minutes``. A missing package is an
    ImportError; an option that is none, or a file that cannot be written, a ValueError.
    """

    model: str
    data: str
    out: Path | None = None
    numbers: Path | None = None
    images: int | None = None
    eps: str | None = None
    sigma: float | None = None
    severity: int = 3
    attack_steps: int = 40
    noise_samples: int = 256
    margin_images: int = 100
    skip: tuple[str, ...] = ()
    minutes: float | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        _check_packages(self.skip)
        if self.eps is not None:
            parse_bound(self.eps)
        for option, value in (("--sigma", self.sigma), ("--minutes", self.minutes)):
            if value is not None:
                check_positive(option, value)
        if self.seed >= 2**63:
            raise ValueError(f"--seed: expected less than 2**63, got {self.seed}")
        unknown = sorted({*self.skip} - {*LENSES})
        if unknown or len({*self.skip}) == len(LENSES):
            got = repr(unknown[0]) if unknown else "all of them"
            lenses = ", ".join(LENSES)
            raise ValueError(f"--skip: expected one or two of {lenses}; got {got}")
        taken = {Path(self.data).resolve(): "--data"}
        for option, path in (("--out", self.out), ("--json", self.numbers)):
            if path is None:
                continue
            check_target(path)
            other = taken.setdefault(path.resolve(), option)
            if other != option:
                said = f"expected another file than {other}"
                raise ValueError(f"{option}: {path}: {said}")
        try:
            torch.empty(0, device=resolve_device(self.device))
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                "--device: expected auto, cpu, or a device that is here; got "
                f"{self.device!r} ({reason})"
            ) from error

    def settled(self) -> tuple[float, float]:
        """ε and σ: as asked for, or of the model's training if known, or the usual."""
        try:
            recipe = checkpoint_entry(self.model)["recipe"]
        except ValueError:  # none of ours
            recipe = {}
        eps = parse_bound(self.eps) if self.eps else recipe.get("adversarial_eps")
        sigma = self.sigma or recipe.get("noise_std")
        return eps or EPS, sigma or SIGMA

    def draw(self, pool: Images) -> Images:
        """Draw as many images as are asked for, or as there are."""
        if self.images is not None and self.images > len(pool):
            said = f"{pool.name} has {len(pool)} images, and all are measured"
            warnings.warn(f"--images {self.images}: {said}", stacklevel=3)
        usual = IMAGES if self.minutes is None else len(pool)
        return pool.draw(self.images or usual, seed=self.seed)

    @property
    def measuring(self) -> dict[str, Any]:
        """What :func:`three_lenses` is told of one model as of many."""
        names = ("severity", "attack_steps", "noise_samples", "skip", "seed")
        return {name: getattr(self, name) for name in names}

    @property
    def place(self) -> str:
        """The device, "auto" resolved."""
        return str(torch.empty(0, device=resolve_device(self.device)).device)


def _check_packages(skip: Iterable[str]) -> None:
    needed: dict[str, tuple[str, ...]] = {"jinja2": LENSES, "matplotlib": LENSES}
    needed |= {"foolbox": ("agreement", "margins"), "pyautoattack": ("margins",)}
    missing = [
        package
        for package, lenses in needed.items()
        if {*lenses} - {*skip} and not importlib.util.find_spec(package)
    ]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ImportError(
            f"report: {', '.join(missing)} {are} not installed; pip install "
            '"robustbook[report]"'
        )


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
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: a device or a pipe; name a plain file")
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise ValueError(f"{path}: no such folder: {folder}; make it first")
    check_writable(folder, what=str(path), remedy="name another")


def check_fit(model: nn.Module, chosen: Images, name: str) -> int:
    """Show the model two images, ask for a gradient as attacks will; return K."""
    parameter = next(model.parameters(), None)
    place: dict[str, Any] = {"dtype": model_dtype(model)}
    if parameter is not None:
        place["device"] = parameter.device
    pixels = chosen.images[:2].to(**place).requires_grad_()
    try:
        # A copy: some models change what they are given.
        answer = model(pixels.clone())
    except (Exception, SystemExit) as error:
        # Whatever a stranger's model raises.
        shape = "x".join(map(str, pixels.shape[1:]))
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{name}: images of {shape}, as {chosen.name} has them, do not fit this "
            f"model ({type(error).__name__}: {reason})"
        ) from error
    try:
        logits = check_model_logits(answer, len(pixels))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    if not logits.requires_grad:
        raise ValueError(
            f"{name}: its logits carry no gradient, which attacks need; leave "
            "out torch.no_grad() and detach()"
        )
    classes, but = logits.shape[1], ""
    if chosen.num_classes is not None and classes != chosen.num_classes:
        but = f"{chosen.name} has {chosen.num_classes}"
    elif chosen.labels is not None and int(chosen.labels.max()) >= classes:
        but = f"a label of {chosen.name} is {int(chosen.labels.max())}"
    if but:
        raise ValueError(f"{name}: {classes} classes, but {but}")
    return classes
