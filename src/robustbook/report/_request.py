"""What was asked of ``robustbook report``, checked once, before anything is done."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch

from robustbook._store.files import check_writable
from robustbook.lenses import LENSES
from robustbook.models import resolve_device

__all__ = ["Request", "check_target", "parse_bound"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model, images, a page to write, and how to measure, as the command says it.

    ``images`` None: 200, or as many as fit into ``minutes``.

    Raises
    ------
    ImportError
        If a package is missing that this report needs.
    ValueError
        If an option is none, or a file cannot be written where it should.
    """

    model: str
    data: str
    out: Path
    numbers: Path | None = None
    images: int | None = None
    eps: str = "8/255"
    sigma: float = 0.1
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
        parse_bound(self.eps)
        if not 0 < self.sigma < float("inf"):
            raise ValueError(f"--sigma: expected a positive number, got {self.sigma}")
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            raise ValueError(
                f"--minutes: expected a positive number, got {self.minutes:g}"
            )
        if self.seed >= 2**63:
            raise ValueError(f"--seed: expected less than 2**63, got {self.seed}")
        unknown = sorted({*self.skip} - {*LENSES})
        if unknown or len({*self.skip}) == len(LENSES):
            got = repr(unknown[0]) if unknown else "all of them"
            raise ValueError(
                f"--skip: expected one or two of {', '.join(LENSES)}; got {got}"
            )
        taken = {Path(self.data).resolve(): "--data"}
        for option, path in (("--out", self.out), ("--json", self.numbers)):
            if path is None:
                continue
            check_target(path)
            other = taken.setdefault(path.resolve(), option)
            if other != option:
                raise ValueError(
                    f"{option}: {path}: expected another file than {other}"
                )
        try:
            torch.empty(0, device=resolve_device(self.device))
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                "--device: expected auto, cpu, or a device that is here; got "
                f"{self.device!r} ({reason})"
            ) from error

    @property
    def bound(self) -> float:
        """ε as a number."""
        return parse_bound(self.eps)

    @property
    def place(self) -> str:
        """The device, "auto" resolved."""
        return str(torch.empty(0, device=resolve_device(self.device)).device)


def _check_packages(skip: Iterable[str]) -> None:
    needed = {
        "jinja2": LENSES,
        "matplotlib": LENSES,
        "foolbox": ("agreement", "margins"),
        "pyautoattack": ("margins",),
    }
    missing = [
        package
        for package, lenses in needed.items()
        if {*lenses} - {*skip} and not importlib.util.find_spec(package)
    ]
    if missing:
        raise ImportError(
            f"report: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; pip install "
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
