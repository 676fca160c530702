"""The options of ``robustbook report``, and whether they can be used."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import torch

from robustbook import _defaults as defaults
from robustbook._checks.arguments import check_bound, check_positive
from robustbook._checks.extras import extra
from robustbook._store.files import check_writable
from robustbook.lenses import FEWEST, Settings
from robustbook.models import checkpoint_entry, resolve_device
from robustbook.report._data import Images, read_images

#: Labeled images for the calibration, for each image that is measured, and the fewest.
_CALIBRATION_SHARE: Final = 10
_FEWEST_LABELS: Final = 50


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model or a list of models, images, a page to write, and the options.

    `images` None stands for 200 images, or for as many as fit into `minutes`. A
    missing package is an ImportError; an option out of range, or a file that cannot be
    written, a ValueError.
    """

    model: str
    data: str
    out: Path | None = None
    numbers: Path | None = None
    images: int | None = None
    calibrate: str | None = None
    eps: str | None = None
    sigma: float | None = None
    severity: int = defaults.SEVERITY
    attack_steps: int = defaults.ATTACK_STEPS
    noise_samples: int = defaults.NOISE_SAMPLES
    margin_images: int = defaults.MARGIN_IMAGES
    skip: str | Iterable[str] = ()
    minutes: float | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "skip", defaults.parse_skip(self.skip, name="--skip"))
        with extra("report"):  # before anything is measured
            import jinja2  # noqa: F401
            import matplotlib as mpl  # noqa: F401
        for option, value in (("--sigma", self.sigma), ("--minutes", self.minutes)):
            if value is not None:
                check_positive(option, value)
        _ = self.settings  # checked
        targets = [path for path in (self.out, self.numbers) if path is not None]
        for path in targets:
            check_target(path)
        files = [path.resolve() for path in (Path(self.data), *targets)]
        if len({*files}) < len(files):
            raise ValueError("--data, --out, --json: expected different files")
        resolve_device(self.device)

    @property
    def lenses(self) -> list[str]:
        """The lenses that are not left out."""
        return [lens for lens in defaults.LENSES if lens not in {*self.skip}]

    @property
    def torch_device(self) -> str:
        """The device, with "auto" resolved."""
        return str(torch.empty(0, device=resolve_device(self.device)).device)

    @property
    def settings(self) -> Settings:
        """The settings of the measurement.

        If ε and σ were not given, they are those that a network of ours was trained
        with.
        """
        recipe = {}
        with suppress(ValueError):  # not one of our networks
            recipe = checkpoint_entry(self.model)["recipe"]
        return Settings(
            eps=(self.eps and parse_eps(self.eps))
            or recipe.get("adversarial_eps")
            or defaults.EPS,
            sigma=self.sigma or recipe.get("noise_std") or defaults.SIGMA,
            attack_steps=self.attack_steps,
            noise_samples=self.noise_samples,
            severity=self.severity,
            seed=self.seed,
        )

    def draw(self, pool: Images) -> Images:
        """Draw as many images as were asked for, or all if there are fewer."""
        if len(pool) < FEWEST:
            raise ValueError(
                f"{pool.name}: images: expected at least {FEWEST}, got {len(pool)}"
            )
        if self.images is not None and self.images > len(pool):
            warnings.warn(
                f"--images {self.images}: {pool.name} has {len(pool)} images; all of "
                "them are measured",
                stacklevel=3,
            )
        default = defaults.REPORT_IMAGES if self.minutes is None else len(pool)
        return pool.draw(self.images or default, seed=self.seed)

    def calibration_images(self, pool: Images, measured: int) -> Images | None:
        """Return labeled images that are not measured, or None if there are too few.

        They are those of --calibrate, or else what is left of the data after
        `measured` images were drawn; ten for each of those, whose evaluation takes next
        to no time.
        """
        most = _CALIBRATION_SHARE * measured
        if self.calibrate is None:
            rest = pool.draw(most, seed=self.seed, skip=measured)
            enough = len(rest) >= _FEWEST_LABELS and rest.labels is not None
            return rest if enough else None
        source = read_images(self.calibrate)
        same_file = Path(self.calibrate).resolve() == Path(self.data).resolve()
        if source.labels is None or (source.name == pool.name and same_file):
            raise ValueError(
                f"--calibrate: {self.calibrate}: expected images with labels, other "
                "than those of --data, which serve without this option"
            )
        return source.draw(most, seed=self.seed)


def parse_eps(text: str) -> float:
    """Return ε from a number or a fraction, "0.03" or "8/255"."""
    try:
        number = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"--eps: expected a number such as 0.03 or 8/255, got {text!r}"
        ) from None
    return check_bound("--eps", number)


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is measured."""
    folder = path.resolve().parent
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: expected a plain file, got a folder, device or pipe")
    if not folder.is_dir():
        raise ValueError(f"{path}: no such folder: {path.parent}; make it first")
    check_writable(folder, what=str(path), remedy="name another")
