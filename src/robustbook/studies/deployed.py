"""Classifiers that people run, under shifts of the files and texts of this environment.

The rows depend on the packages that are installed where they are measured.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import ClassVar, Final

from robustbook.deployed import (
    Sample,
    load_classifier,
    load_files,
    load_translations,
    measure_shifts,
)
from robustbook.studies.run import Row, Run, Setting

#: Packages whose name is not that of their classifier.
_PACKAGES: Final = {"lingua": "lingua-language-detector"}


@dataclass(frozen=True, kw_only=True)
class DeployedSetting(Setting):
    """How often files and texts are drawn, and how many of each type or language."""

    kind: ClassVar[str] = "made up"
    dataset: str = ""
    classifiers: tuple[str, ...] = ("magika", "py3langid", "langdetect", "lingua")
    draws: int
    per_label: int
    at_least: int


SETTINGS: Final = {
    "quick": (DeployedSetting(draws=1, per_label=15, at_least=10),),
    "full": (DeployedSetting(draws=5, per_label=60, at_least=20),),
}


def rows(run: Run[DeployedSetting]) -> Iterator[Row]:
    """Yield a row for each classifier, draw and shift, as ``measure_shifts`` has them.

    Files are drawn anew in each draw, and so are the halves that calibrate and judge.
    With ``classifier``, its ``version``, ``draw``, and the number of ``labels`` that it
    knows.
    """
    setting = run.setting
    for draw, seed in run.progress(enumerate(run.seeds(setting.draws))):
        files = load_files(
            per_type=setting.per_label, at_least=setting.at_least, seed=seed
        )
        texts = load_translations(
            per_language=setting.per_label, at_least=setting.at_least, seed=seed
        )
        for name in setting.classifiers:
            sample = files if name == "magika" else texts
            shared = {"classifier": name, "draw": draw}
            measured = run.rows(
                "classifier under shifts",
                partial(_measure, name, sample, seed),
                code=__name__,
                classifier=name,
                draw=draw,
                contents=_sum(sample),
            )
            yield from ({**shared, **row} for row in measured)


def _measure(name: str, sample: Sample, seed: int) -> Iterator[Row]:
    classifier = load_classifier(name)
    known = len(set(sample.labels) & set(classifier.labels))
    with warnings.catch_warnings():
        # The warnings are about known labels and zeros, which the rows show.
        warnings.simplefilter("ignore")
        measured = measure_shifts(sample, classifier, seed=seed)
    for row in measured:
        yield {"version": version(_PACKAGES.get(name, name)), "labels": known, **row}


def _sum(sample: Sample) -> str:
    """Take the sha256 of contents and labels: the environment may change."""
    content = hashlib.sha256()
    for labeled in zip(sample.contents, sample.labels, strict=True):
        content.update(repr(labeled).encode())
    return content.hexdigest()
