"""The page: its parts, how it is written, and how its numbers are read back."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from robustbook import __version__
from robustbook._checks.extras import extra
from robustbook._checks.images import check_images
from robustbook._json import strict
from robustbook._store.files import atomic_write
from robustbook.agreement import (
    Calibration,
    PairedAccuracy,
    as_calibration,
    paired_accuracy,
)
from robustbook.lenses import Share, ThreeLenses
from robustbook.report import _words as words
from robustbook.report._figures import FRAGILE, VIEW_BOX, figures, thumbnails
from robustbook.report._request import check_target

if TYPE_CHECKING:
    import jinja2

#: Name of the format of the numbers; it changes with their meaning.
FORMAT: Final = "robustbook report 1"

_NUMBERS: Final = re.compile(
    r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL
)

_TEXTS: Final = ("model", "data", "date", "device")
_ESTIMATE: Final = ("value", "standard_error", "interval")
_CALIBRATION: Final = ("beta", "interval", "num_samples", "cross_entropy")


@dataclass(frozen=True, eq=False)
class Report:
    """One page on one model. A notebook shows it in a frame.

    Attributes
    ----------
    lenses : ThreeLenses
        The result of :func:`robustbook.lenses.three_lenses`.
    images : Tensor or ndarray, shape (N, C, H, W), optional
        The measured images, to show the most fragile ones: one channel or three.
    positions : sequence of int or Tensor, optional
        Numbers by which the page calls the images; 0, 1, 2, … by default.
    model, data, date, device : str, optional
        Texts for the header. Without a date, two pages of the same numbers are equal.
    seconds : float, optional
        Duration of the measurement.
    calibrated_on : tuple (logits, labels) or Calibration, optional
        Of labeled images that are neither measured nor training data, as
        :func:`robustbook.agreement.paired_accuracy` takes it: the page then estimates
        the accuracy under each shift, without the labels of the measured images.
    calibration_data : str, optional
        Name of these images.

    Raises
    ------
    TypeError, ValueError
        If images are not as described, or images or positions are not as many as were
        measured.
    """

    lenses: ThreeLenses
    images: Tensor | None = field(default=None, repr=False)
    positions: Sequence[int] | Tensor | None = field(default=None, repr=False)
    model: str = "a model"
    data: str = "images"
    date: str | None = None
    device: str | None = None
    seconds: float | None = None
    calibrated_on: tuple[Any, Any] | Calibration | None = field(
        default=None, repr=False
    )
    calibration_data: str | None = None

    def __post_init__(self) -> None:
        for name in ("images", "positions"):
            values, count = getattr(self, name), len(self.lenses)
            if values is not None and len(values) != count:
                raise ValueError(
                    f"{name}: expected the {count} that were measured, got "
                    f"{len(values)}"
                )
        if self.images is not None:
            object.__setattr__(self, "images", check_images(self.images))

    @cached_property
    def accuracies(self) -> dict[str, PairedAccuracy]:
        """The estimated accuracy under each shift, if there is a calibration."""
        if self.calibrated_on is None:
            return {}
        calibration, lenses = as_calibration(self.calibrated_on), self.lenses
        return {
            shift: paired_accuracy(lenses.logits, logits, calibrated_on=calibration)
            for shift, logits in lenses.shifted_logits.items()
        }

    @property
    def _true_accuracies(self) -> dict[str, Share]:
        labels = self.lenses.labels
        if labels is None:
            return {}
        return {
            shift: Share.of(logits.argmax(dim=1) == labels)
            for shift, logits in self.lenses.shifted_logits.items()
        }

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the page, as JSON can hold them."""
        texts = {name: getattr(self, name) for name in _TEXTS}
        numbers = {name: text and str(text) for name, text in texts.items()}
        numbers["seconds"] = None if self.seconds is None else round(self.seconds, 1)
        numbers |= {"versions": versions(), **self.lenses.as_dict()}
        if self.accuracies:
            numbers["accuracy_estimates"] = self._estimates()
        return dict(strict({"format": FORMAT} | numbers))

    def _estimates(self) -> dict[str, Any]:
        true = self._true_accuracies
        shifts = {
            shift: {name: getattr(estimate, name) for name in _ESTIMATE}
            | {"accuracy": true[shift].value if true else None}
            for shift, estimate in self.accuracies.items()
        }
        calibration = next(iter(self.accuracies.values())).calibration
        calibrated = {name: getattr(calibration, name) for name in _CALIBRATION}
        return {"calibration": calibrated, "shifts": shifts}

    @cached_property
    def html(self) -> str:
        """The page, self-contained."""
        return self._render(framed=False)

    def _render(self, *, framed: bool) -> str:
        lenses, images = self.lenses, self.images
        pictures = {}
        if images is not None and images.shape[1] in (1, 3):
            pictures = thumbnails(lenses, images)
        fragile = torch.zeros(len(lenses), dtype=torch.bool)
        if lenses.robustness is not None:
            fragile = lenses.robustness.probability < FRAGILE
        correct = fragile if lenses.correct is None else lenses.correct
        return template("page.html.jinja").render(
            framed=framed,
            words=words,
            report=self,
            lenses=lenses,
            labeled=lenses.labels is not None,
            positions=range(len(lenses)) if self.positions is None else self.positions,
            figures=figures(lenses),
            view_box=VIEW_BOX,
            thumbnails=pictures,
            fragile=int(fragile.sum()),
            fragile_share=Share.of(fragile),
            misclassified=int((fragile & ~correct).sum()),
            most=math.log(lenses.num_classes),
            estimates=self.accuracies,
            accuracies=self._true_accuracies,
            share_of=Share.of,
            versions=with_versions(),
        )

    def write(self, path: Path | str) -> Path:
        """Write the page, completely or not at all, and return its path.

        Raises
        ------
        OSError, ValueError
            If `path` is not a plain file, or it cannot be written.
        """
        check_target(Path(path))
        write_files({Path(path): self.html})
        return Path(path)

    def _repr_html_(self) -> str:
        """Return a frame for notebooks, which keeps the two styles apart."""
        page = self._render(framed=True)
        return template("frame.html.jinja").render(model=self.model, page=page)


def read_report(source: Path | str) -> dict[str, Any]:
    """Read the numbers back from a page.

    Parameters
    ----------
    source : Path or str
        A file that :meth:`Report.write` wrote, or its text.

    Returns
    -------
    dict
        The numbers. Infinite numbers are the string "inf"; undefined numbers, and
        those of lenses that were left out, are None.

    Raises
    ------
    OSError, ValueError
        If there is no such file, or it is not a page of :class:`Report`.
    """
    text = str(source)
    if not text.lstrip("\ufeff \n").startswith("<"):
        text = Path(source).read_text("utf-8", "replace")
    script = _NUMBERS.search(text)
    numbers = json.loads(script[1]) if script else {}
    if numbers.get("format") != FORMAT:
        raise ValueError(
            f"{source!s:.200}: expected a page of robustbook report, with its "
            f"numbers in the format {FORMAT!r}; found none"
        )
    return dict(numbers)


def write_files(texts: Mapping[Path, str]) -> None:
    """Write all files under temporary names, then move them, the first one first.

    The page comes first, so that an interruption never leaves new numbers beside an old
    page. If a path is a link, the file that it points to is written.
    """
    with ExitStack() as moves:
        for path, text in reversed([*texts.items()]):
            moves.enter_context(atomic_write(path.resolve(), "w")).write(text)


# --- the values of the template ----------------------------------------------------


def template(name: str) -> jinja2.Template:
    with extra("report"):
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("robustbook.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters["shift_name"] = words.shift_name
    return environment.get_template(name)


def with_versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in versions().items())


def versions() -> dict[str, str]:
    """Return the versions of the software, without the build of torch."""
    return {
        "robustbook": __version__,
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def image_scores(lenses: ThreeLenses, positions: list[int]) -> dict[str, Any]:
    """Return the scores of each image, its prediction and its class."""
    labels = None if lenses.labels is None else lenses.labels.tolist()
    scores = {name: score.tolist() for name, score in lenses.scores().items()}
    predictions = lenses.logits.argmax(dim=1).tolist()
    image = {"position": positions, "prediction": predictions, "label": labels}
    return dict(strict(image | scores))
