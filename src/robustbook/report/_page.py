"""The page: what stands where, and how it is written and read back."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from robustbook import __version__
from robustbook._checks.arguments import check_non_negative
from robustbook._checks.extras import extra
from robustbook._checks.images import check_images
from robustbook._json import strict
from robustbook._store.files import atomic_write
from robustbook.lenses import Passes, Share, ThreeLenses
from robustbook.report import _words as words
from robustbook.report._figures import figures, fragile_rows
from robustbook.report._request import check_target

if TYPE_CHECKING:
    import jinja2

#: Names the format of the numbers; a change of their meaning changes it.
FORMAT: Final = "robustbook report 1"

_NUMBERS: Final = re.compile(
    r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL
)

_NAMES: Final = ("model", "data", "date", "device")

#: Fits the frame in a notebook to its page, and takes over the theme of the site.
_FIT: Final = (
    "const outer = document.documentElement, "
    "inner = this.contentDocument.documentElement, fit = () => { "
    "if (outer.dataset.theme) inner.dataset.theme = outer.dataset.theme; "
    "this.style.height = inner.offsetHeight + 4 + 'px'; }; "
    "fit(); new ResizeObserver(fit).observe(inner); "
    "new MutationObserver(fit).observe(outer, { attributeFilter: ['data-theme'] })"
)


@dataclass(frozen=True, eq=False)
class Report:
    """One page on one model. A notebook shows it in a frame of its own.

    Attributes
    ----------
    lenses : ThreeLenses
        What was measured.
    images : Tensor or ndarray, shape (N, C, H, W), optional
        The images, to show the most fragile ones: one channel or three.
    positions : sequence of int or Tensor, optional
        Numbers of the images for the reader; else 0, 1, 2, …
    model, data, date, device : str, optional
        What they are called, when, and on what. Without a date two pages of the same
        numbers are the same.
    seconds : float, optional
        How long it took.

    Raises
    ------
    TypeError, ValueError
        If `lenses` is no measurement, the images are not floating-point numbers in
        [0, 1], or they or their positions are not as many as were measured.
    """

    lenses: ThreeLenses
    images: Tensor | None = field(default=None, repr=False)
    positions: Sequence[int] | Tensor | None = field(default=None, repr=False)
    model: str = "a model"
    data: str = "images"
    date: str | None = None
    device: str | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.lenses, ThreeLenses):
            raise TypeError(
                "lenses: expected what three_lenses returns, got "
                f"{type(self.lenses).__name__}"
            )
        count = len(self.lenses)
        for name, values in (("images", self.images), ("positions", self.positions)):
            if values is not None and len(values) != count:
                said = f"expected the {count} that were measured, got {len(values)}"
                raise ValueError(f"{name}: {said}")
        plain: dict[str, Any] = {}
        if self.images is not None:
            plain["images"] = check_images(self.images)
        if self.positions is not None:
            plain["positions"] = [int(place) for place in self.positions]
        if self.seconds is not None:
            plain["seconds"] = check_non_negative("seconds", self.seconds)
        for name in _NAMES:
            if getattr(self, name) is not None:
                # As UTF-8 can hold it: file names may have bytes that are no text.
                text = str(getattr(self, name)).encode("utf-8", "replace")
                plain[name] = text.decode("utf-8")
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """What stands on the page, as JSON holds it."""
        header = {name: getattr(self, name) for name in _NAMES}
        header["seconds"] = None if self.seconds is None else round(self.seconds, 1)
        numbers = {**header, "versions": versions(), **self.lenses.as_dict()}
        return dict(strict({"format": FORMAT} | numbers))

    @cached_property
    def html(self) -> str:
        """The page, whole and self-contained."""
        return self._render(framed=False)

    def _render(self, *, framed: bool) -> str:
        lenses, images = self.lenses, self.images
        positions = range(len(lenses)) if self.positions is None else self.positions
        rows = []
        if images is not None and images.shape[1] in (1, 3):
            rows = fragile_rows(lenses, images, [int(place) for place in positions])
        cards = words.cards(lenses)
        return template("page.html.jinja").render(
            framed=framed, book=words.BOOK, model=self.model, header=self._header(),
            warnings=words.warnings(lenses),
            lenses=[words.LENSES[name] for name in cards], cards=[*cards.values()],
            shifts=[*_shift_rows(lenses)], measures=[*_measure_rows(lenses)],
            figures=figures(lenses), rows=rows,
            most=f"{math.log(lenses.num_classes):.3f}", cost=_cost(lenses),
            numbers=_as_script(self.numbers),
        )  # fmt: skip

    def _header(self) -> list[tuple[str, str]]:
        lenses, settings = self.lenses, self.lenses.settings
        how = [f"ε = {words.bound(settings.eps)}"]
        if lenses.agreements:
            how[0] += f", PGD with {settings.attack_steps} steps"
            how.append(f"corruptions at severity {settings.severity}")
        how.append(f"σ = {settings.sigma:g}")
        if lenses.robustness is not None:
            how[-1] += f", {settings.noise_samples} copies"
        if lenses.margins is not None:
            how.append(f"{len(lenses.measured)} input margins")
        how.append(f"seed {settings.seed}")
        labels = "" if lenses.labels is None else ", with labels"
        took = None if self.seconds is None else f"{self.seconds:.0f} s"
        made = ", ".join(filter(None, [
            self.date, self.device and f"on {self.device}", took,
        ]))  # fmt: skip
        images = f"{len(lenses)} images, {lenses.num_classes} classes{labels}"
        facts = {
            "Data": f"{self.data}: {images}",
            "Settings": "; ".join(how),
            "Left out": ", ".join(words.left_out(lenses)),
            "Made": made,
            "With": with_versions(),
        }
        return [(name, value) for name, value in facts.items() if value]

    def write(self, path: Path | str) -> Path:
        """Write the page, whole or not at all, over what is there; return its path.

        Raises
        ------
        OSError, ValueError
            If `path` is no plain file, or it cannot be written.
        """
        check_target(Path(path))
        write_files({Path(path): self.html})
        return Path(path)

    def _repr_html_(self) -> str:
        """For notebooks: a frame, so that its style and theirs stay apart."""
        page = escape(self._render(framed=True))
        return (
            f'<iframe title="Robustness report: {escape(self.model)}" srcdoc="{page}" '
            f'onload="{_FIT}" style="width: 100%; height: 60rem; border: 0">'
            "</iframe>"
        )


def read_report(source: Path | str) -> dict[str, Any]:
    """Read the numbers back from a page.

    Parameters
    ----------
    source : Path or str
        A file that :meth:`Report.write` wrote, or its text.

    Returns
    -------
    dict
        The numbers. Infinite ones are the string "inf"; undefined ones, and those of
        lenses that were left out, are None.

    Raises
    ------
    OSError, ValueError
        If there is no such file, or it is no such page.
    """
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"  # of byte order: some editors write it
    if isinstance(source, str) and source.removeprefix(mark).lstrip().startswith("<"):
        where, text = "source", source
    else:
        where, text = str(source), Path(source).read_bytes().decode("utf-8", "replace")
    script = _NUMBERS.search(text)
    try:
        numbers = json.loads(script[1] if script else "")
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or numbers.get("format") != FORMAT:
        raise ValueError(
            f"{where}: expected a page of robustbook report, with its numbers in the "
            f"format {FORMAT!r}; found none"
        )
    return numbers


def write_files(texts: Mapping[Path, str]) -> None:
    """Write all files beside their places, then move them there, the first one first.

    The page comes first and holds the numbers: an interruption in between leaves no
    new numbers beside an old page. A link stays: what it points to is written.
    """
    with ExitStack() as moves:
        for path, text in reversed([*texts.items()]):
            moves.enter_context(atomic_write(path.resolve(), "w")).write(text)


# --- what the template shows -------------------------------------------------------


def template(name: str) -> jinja2.Template:
    with extra("report"):
        import jinja2
    folder = resources.files(__package__)
    loader = jinja2.FunctionLoader(lambda one: (folder / one).read_text("utf-8"))
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(name)


def _as_script(numbers: dict[str, Any]) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _shift_rows(lenses: ThreeLenses) -> Iterator[list[str]]:
    """What stands in the table of shifts; a cell may hold a value and its error."""
    most = math.log(lenses.num_classes)
    for shift, agreement in lenses.agreements.items():
        changed = Share.of(lenses.changed(shift))
        yield [
            words.shift_name(shift),
            f"{agreement.pa:.3f}|{words.nats(*agreement.interval())}",
            words.percent(agreement.pa / most),
            f"{words.percent(changed.value)}|{words.interval(*changed.interval)}",
            f"{agreement.hard_part:.3f}",
            words.infinite(agreement.beta),
            _passes(lenses.passes[shift]),
        ]
    if lenses.domain_agreement is not None:
        mean, error = lenses.domain_agreement
        cells = [f"{mean:.3f}|{words.half_width(error)}", words.percent(mean / most)]
        yield ["mean of corruptions", *cells, "", "", "", ""]


def _measure_rows(lenses: ThreeLenses) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, interval and passes of each measure that is no agreement."""
    settings, passes = lenses.settings, lenses.passes

    def row(name: str, share: Share, cost: str = "") -> tuple[str, str, str, str]:
        return name, words.percent(share.value), words.interval(*share.interval), cost

    if lenses.correct is not None:
        cost = _passes(passes["clean"])
        yield row("accuracy, clean images", Share.of(lenses.correct), cost)
    if lenses.mean_robustness is not None:
        mean, error = lenses.mean_robustness
        between = words.interval(*words.mean_interval(mean, error))
        name = f"predictions that survive noise, σ = {settings.sigma:g}"
        between = between if error > 0 else "no variation seen"
        yield name, words.percent(mean), between, _passes(passes["average-case"])
        name = "images whose prediction survives less than nine times in ten"
        yield row(name, Share.of(words.fragile(lenses)))
    if lenses.robust_share is not None:
        name = f"predictions unchanged by attacks up to ε = {words.bound(settings.eps)}"
        yield row(name, lenses.robust_share)
    if lenses.robust_accuracy is not None:
        yield row("classified correctly, and so", lenses.robust_accuracy)
    if lenses.margins is not None:
        tau, between = "not defined", ""
        if (order := lenses.consistency) is not None:
            tau = f"{order.tau:.2f}"
            between = "{:.2f} to {:.2f}".format(*order.interval)
        name = "τ of logit margins and input margins"
        yield name, tau, between, _passes(passes["input margin"])


def _passes(cost: Passes) -> str:
    """Forward and backward passes per image."""
    backward = f" + {cost.backward:.0f}" if cost.backward else ""
    return f"{cost.forward:.0f}{backward}"


def _cost(lenses: ThreeLenses) -> str:
    """Passes of the whole, as the page says them."""
    counts = dict.fromkeys(lenses.passes, len(lenses))
    counts["input margin"] = len(lenses.measured)
    forward, backward = (
        sum(counts[name] * getattr(cost, kind) for name, cost in lenses.passes.items())
        for kind in ("forward", "backward")
    )
    grouped = f"{round(forward):,} forward and {round(backward):,} backward passes"
    return grouped.replace(",", "\N{NARROW NO-BREAK SPACE}") + " of single images"


def with_versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in versions().items())


def versions() -> dict[str, str]:
    """Versions of what computed, without the build of torch."""
    return {
        "robustbook": __version__,
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def image_scores(lenses: ThreeLenses, positions: list[int]) -> dict[str, Any]:
    """What each lens says of each image, beside its prediction and its class."""
    labels = None if lenses.labels is None else lenses.labels.tolist()
    scores = {name: score.tolist() for name, score in lenses.scores().items()}
    predictions = lenses.logits.argmax(dim=1).tolist()
    image = {"position": positions, "prediction": predictions, "label": labels}
    return dict(strict(image | scores))
