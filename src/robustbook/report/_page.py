"""The page: what stands where, and how it is written and read back."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from robustbook._checks.arguments import check_non_negative
from robustbook._checks.extras import extra
from robustbook._checks.images import check_images
from robustbook.lenses import Passes, ThreeLenses
from robustbook.report import _words as words
from robustbook.report._figures import figures
from robustbook.report._numbers import FORMAT, report_numbers
from robustbook.report._thumbnails import fragile_rows

if TYPE_CHECKING:
    import jinja2

__all__ = [
    "Report",
    "check_target",
    "read_report",
    "render_report",
    "write_report",
    "write_whole",
]

_TEMPLATE: Final = "page.html.jinja"
_ID: Final = "numbers"


@dataclass(frozen=True, eq=False)
class Report:
    """One page on one model. A notebook shows it in a frame of its own.

    Attributes
    ----------
    seen : ThreeLenses
        What was measured.
    images : Tensor or ndarray, shape (N, C, H, W), optional
        The images, to show the most fragile ones: one channel or three.
    positions : sequence of int or Tensor, optional
        Numbers of the images for the reader; else 0, 1, 2, …
    model, data : str
        What they are called.
    date : str, optional
        When, as it is to be read. Without it two pages of the same numbers are the
        same.
    device : str, optional
        On what.
    seconds : float, optional
        How long it took.

    Raises
    ------
    ValueError
        If the images or their positions are not as many as were measured, or not
        in [0, 1], or seconds are no duration.
    TypeError
        If `seen` is no measurement, or the images are not floating-point numbers.
    """

    seen: ThreeLenses
    images: Tensor | None = field(default=None, repr=False)
    positions: Sequence[int] | Tensor | None = field(default=None, repr=False)
    model: str = "a model"
    data: str = "images"
    date: str | None = None
    device: str | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.seen, ThreeLenses):
            raise TypeError(
                "seen: expected what three_lenses returns, got "
                f"{type(self.seen).__name__}."
            )
        for name, given in (("images", self.images), ("positions", self.positions)):
            if given is not None and len(given) != len(self.seen):
                raise ValueError(
                    f"{name}: expected the {len(self.seen)} that were measured, got "
                    f"{len(given)}."
                )
        as_given: dict[str, Any] = {
            "model": _shown(self.model),
            "data": _shown(self.data),
        }
        if self.images is not None:
            as_given["images"] = check_images(self.images)
        if self.positions is not None:
            as_given["positions"] = [int(place) for place in self.positions]
        if self.date is not None:
            as_given["date"] = _shown(self.date)
        if self.device is not None:
            as_given["device"] = _shown(self.device)
        if self.seconds is not None:
            as_given["seconds"] = check_non_negative("seconds", self.seconds)
        for name, value in as_given.items():
            object.__setattr__(self, name, value)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """What stands on the page, as JSON holds it."""
        return report_numbers(
            self.seen,
            model=self.model,
            data=self.data,
            date=self.date,
            device=self.device,
            seconds=None if self.seconds is None else round(self.seconds, 1),
        )

    @cached_property
    def html(self) -> str:
        """The page, whole and self-contained."""
        return self._render(framed=False)

    def _render(self, *, framed: bool) -> str:
        seen = self.seen
        shown = self.images is not None and self.images.shape[1] in (1, 3)
        positions = range(len(seen)) if self.positions is None else self.positions
        return _template().render(
            framed=framed,
            book=words.BOOK,
            model=self.model,
            header=self._header(),
            lenses=words.LENSES,
            cards=_cards(seen),
            shifts=_shift_rows(seen),
            measures=_measure_rows(seen),
            figures=figures(seen),
            rows=fragile_rows(seen, self.images, [int(p) for p in positions])
            if shown and self.images is not None
            else [],
            settings=seen.settings,
            most=f"{math.log(seen.num_classes):.3f}",
            cost=_cost(seen),
            numbers=_as_script(self.numbers),
            id=_ID,
        )

    def _header(self) -> list[tuple[str, str]]:
        seen, found = self.seen, self.numbers["versions"]
        settings = seen.settings
        how = (
            f"ε = {words.bound(settings.eps)}, PGD with {settings.attack_steps} steps; "
            f"σ = {settings.sigma:g}, {settings.noise_samples} copies; corruptions at "
            f"severity {settings.severity}; {len(seen.measured)} input margins; seed "
            f"{settings.seed}"
        )
        labels = "" if seen.labels is None else ", with labels"
        made = [self.date, self.device and f"on {self.device}"]
        if self.seconds is not None:
            made.append(f"{self.seconds:.0f} s")
        return [
            ("Data", f"{self.data}: {len(seen)} images, {seen.num_classes} classes"
             f"{labels}"),
            ("Settings", how),
            *([("Made", ", ".join(filter(None, made)))] if any(made) else []),
            ("With", ", ".join(f"{name} {number}" for name, number in found.items())),
        ]  # fmt: skip

    def write(self, path: Path | str) -> Path:
        """Write the page, whole or not at all.

        Parameters
        ----------
        path : Path or str
            Where to; a file that is there is replaced.

        Returns
        -------
        Path
            The same.
        """
        check_target(Path(path))
        return write_whole(Path(path), self.html)

    def _repr_html_(self) -> str:
        """For notebooks: a frame, so that its style and theirs stay apart."""
        page = escape(self._render(framed=True))
        # The frame is as high as its page, and dark where a site that has a theme
        # of its own is.
        fit = (
            "const outer = document.documentElement, "
            "inner = this.contentDocument.documentElement, "
            "fit = () => { "
            "if (outer.dataset.theme) inner.dataset.theme = outer.dataset.theme; "
            "this.style.height = inner.offsetHeight + 4 + 'px'; }; "
            "fit(); "
            "new ResizeObserver(fit).observe(inner); "
            "new MutationObserver(fit).observe(outer, "
            "{ attributeFilter: ['data-theme'] })"
        )
        return (
            f'<iframe title="Robustness report: {escape(self.model)}" srcdoc="{page}" '
            f'onload="{fit}" style="width: 100%; height: 60rem; border: 0">'
            "</iframe>"
        )


def render_report(seen: ThreeLenses, **header: Any) -> str:
    """Render the one-page report of a model.

    Parameters
    ----------
    seen : ThreeLenses
        From :func:`robustbook.lenses.three_lenses`.
    **header
        ``images``, ``positions``, ``model``, ``data``, ``date``, ``device``,
        ``seconds``: see :class:`Report`.

    Returns
    -------
    str
        HTML that loads nothing.

    Raises
    ------
    TypeError, ValueError
        If the images are not those that were measured.

    See Also
    --------
    Report, write_report

    References
    ----------
    Chapter 28 of this book.
    """
    return Report(seen, **header).html


def write_report(path: Path | str, seen: ThreeLenses, **header: Any) -> Path:
    """Write the one-page report of a model, whole or not at all.

    Parameters
    ----------
    path : Path or str
        Where to; a file that is there is replaced.
    seen : ThreeLenses
        From :func:`robustbook.lenses.three_lenses`.
    **header
        As :func:`render_report` takes it.

    Returns
    -------
    Path
        The same.

    Raises
    ------
    TypeError, ValueError
        If the images are not those that were measured, or the path cannot be that of
        a file: it is a folder or a device, or its folder is missing.
    OSError
        If it cannot be written.

    References
    ----------
    Chapter 28 of this book.
    """
    return Report(seen, **header).write(path)


def read_report(source: Path | str) -> dict[str, Any]:
    """Read the numbers back from a page.

    Parameters
    ----------
    source : Path or str
        A file that :func:`write_report` wrote, or its text.

    Returns
    -------
    dict
        The numbers. Infinite ones are the string "inf", undefined ones None.

    Raises
    ------
    ValueError
        If it is no such page.
    OSError
        If there is no such file.
    """
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"  # of byte order: some editors write it
    if isinstance(source, str) and source.removeprefix(mark).lstrip().startswith("<"):
        where, text = "source", source
    else:
        where, text = str(source), Path(source).read_bytes().decode("utf-8", "replace")
    reader = _NumbersReader()
    reader.feed(text)
    try:
        numbers = json.loads("".join(reader.found))
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or numbers.get("format") != FORMAT:
        raise ValueError(
            f"{where}: expected a page of robustbook report, with its numbers in the "
            f"format {FORMAT!r}; found none"
        )
    return numbers


class _NumbersReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and ("id", _ID) in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found.append(data)


def _shown(name: object) -> str:
    """A name as UTF-8 can hold it: file names may have bytes that are no text."""
    return str(name).encode("utf-8", "replace").decode("utf-8")


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before work is done."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: a device or a pipe; name a plain file")
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise ValueError(f"{path}: no such folder: {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{path}: no permission to write into {folder}")


def write_whole(path: Path, text: str) -> Path:
    """Write a file in one step: who reads it sees the old one or the new one.

    A link stays: what it points to is written.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".robustbook-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


# --- what the template shows -------------------------------------------------------


def _template() -> jinja2.Template:
    with extra("report"):
        import jinja2
    text = resources.files(__package__).joinpath(_TEMPLATE).read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(text)


def _as_script(numbers: dict[str, Any]) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _cards(seen: ThreeLenses) -> list[dict[str, str]]:
    worst = min(seen.agreements, key=lambda shift: seen.agreements[shift].pa)
    share = seen.agreements[worst].pa / math.log(seen.num_classes)
    mean, _ = seen.mean_robustness
    return [
        {
            "title": "Agreement",
            "number": words.percent(share),
            "what": f"of log K under {words.shift_name(worst)}, the costliest shift",
            "sentence": words.agreement_sentence(seen),
        },
        {
            "title": "Average case",
            "number": words.percent(mean),
            "what": "of predictions survive noise",
            "sentence": words.average_sentence(seen),
        },
        {
            "title": "Margins",
            "number": words.percent(seen.robust_share.value),
            "what": f"of predictions unchanged up to ε = "
            f"{words.bound(seen.settings.eps)}",
            "sentence": words.margin_sentence(seen),
        },
    ]


def _shift_rows(seen: ThreeLenses) -> list[dict[str, str]]:
    most = math.log(seen.num_classes)
    rows = []
    for shift, found in seen.agreements.items():
        changed = words.wilson(seen.changed(shift))
        rows.append(
            {
                "name": words.shift_name(shift),
                "changed": words.percent(changed.value),
                "changed_interval": words.interval(*changed.interval),
                "pa": f"{found.pa:.3f}",
                "error": words.half_width(found.standard_error),
                "share": words.percent(found.pa / most),
                "hard": f"{found.hard_part:.3f}",
                "beta": words.infinite(found.beta),
                "passes": _passes(seen.passes[shift]),
            }
        )
    mean, error = seen.domain_agreement
    rows.append(
        {
            "name": "mean of corruptions",
            "changed": "",
            "changed_interval": "",
            "pa": f"{mean:.3f}",
            "error": words.half_width(error),
            "share": words.percent(mean / most),
            "hard": "",
            "beta": "",
            "passes": "",
        }
    )
    return rows


def _measure_rows(seen: ThreeLenses) -> list[dict[str, str]]:
    settings = seen.settings
    rows: list[dict[str, str]] = []

    def add(name: str, value: str, between: str, passes: str = "") -> None:
        rows.append(
            {"name": name, "value": value, "interval": between, "passes": passes}
        )

    if seen.correct is not None:
        right = words.wilson(seen.correct)
        add(
            "accuracy, clean images",
            words.percent(right.value),
            words.interval(*right.interval),
            _passes(seen.passes["clean"]),
        )
    mean, error = seen.mean_robustness
    add(
        f"predictions that survive noise, σ = {settings.sigma:g}",
        words.percent(mean),
        words.interval(*words.mean_interval(mean, error))
        if error > 0
        else "no variation seen",
        _passes(seen.passes["average-case"]),
    )
    few = words.wilson(words.fragile(seen))
    add(
        "images whose prediction survives less than nine times in ten",
        words.percent(few.value),
        words.interval(*few.interval),
    )
    add(
        f"predictions unchanged by attacks up to ε = {words.bound(settings.eps)}",
        words.percent(seen.robust_share.value),
        words.interval(*seen.robust_share.interval),
    )
    if seen.robust_accuracy is not None:
        add(
            "classified correctly, and so",
            words.percent(seen.robust_accuracy.value),
            words.interval(*seen.robust_accuracy.interval),
        )
    found = seen.consistency
    add(
        "τ of logit margins and input margins",
        "not defined" if found is None else f"{found.tau:.2f}",
        "" if found is None else "{:.2f} to {:.2f}".format(*found.interval),
        _passes(seen.passes["input margin"]),
    )
    return rows


def _passes(cost: Passes) -> str:
    """Forward and backward passes per image."""
    backward = f" + {cost.backward:.0f}" if cost.backward else ""
    return f"{cost.forward:.0f}{backward}"


def _cost(seen: ThreeLenses) -> str:
    """Passes of the whole, as the page says them."""
    counts = {name: len(seen) for name in seen.passes}
    counts["input margin"] = len(seen.measured)
    forward, backward = (
        sum(counts[name] * getattr(cost, kind) for name, cost in seen.passes.items())
        for kind in ("forward", "backward")
    )
    return (
        f"{_grouped(forward)} forward and {_grouped(backward)} backward passes of "
        "single images"
    )


def _grouped(count: float) -> str:
    return f"{round(count):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
