"""Quick rows of any study, measured once for all tests that look at them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from robustbook.studies import STUDIES
from robustbook.studies.domains import _training
from robustbook.studies.results import Results


@pytest.fixture(scope="session")
def quick(rows_once: Path) -> Callable[[str], Results]:
    """Results of a study in the quick profile, by its name."""
    compute = runpy.run_path(str(rows_once))["compute_once"]
    return cache(lambda name: compute(STUDIES[name], profile="quick", device="cpu"))


@pytest.fixture
def refuse() -> Callable[..., None]:
    """What must not be called, as all is in the cache."""

    def measured(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    return measured


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[object]]:
    """Interrupt the domain trainings once, in the given call of their measure."""
    train = _training.train_domains

    def stop(call: int) -> list[object]:
        calls: list[object] = []

        class Counted:
            # A function would hold the list, and so be another one when it goes on.
            def __init__(self, measure):
                self.measure = measure

            def __call__(self, *pair):
                calls.append(pair)
                if len(calls) == call:
                    raise KeyboardInterrupt
                return self.measure(*pair)

        def counted(*given, measure, **options):
            return train(*given, measure=Counted(measure), **options)

        monkeypatch.setattr(_training, "train_domains", counted)
        return calls

    return stop
