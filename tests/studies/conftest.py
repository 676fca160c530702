"""Quick rows of any study, measured once for all tests that look at them."""

import runpy
from functools import cache

import pytest

from robustbook.studies import STUDIES
from robustbook.studies.domains import _training

from ..conftest import RUN_SEED


@pytest.fixture(scope="session")
def quick(rows_once):
    """Results of a study in the quick profile, by its name."""
    compute = runpy.run_path(str(rows_once))["compute_once"]
    how = {"profile": "quick", "seed": RUN_SEED, "device": "cpu"}
    return cache(lambda name: compute(STUDIES[name], **how))


def rows_of(name):
    """A fixture under the name of a study: its quick rows."""
    return pytest.fixture(scope="session", name=name)(lambda quick: quick(name))


for _study in STUDIES:
    globals()[_study] = rows_of(_study)


@pytest.fixture
def refuse():
    """What must not be called, as all is in the cache."""

    def measured(*_, **__):
        raise AssertionError("measured again")

    return measured


@pytest.fixture
def stopped_at(monkeypatch):
    """Interrupt the domain trainings once, in the given call of their measure."""
    train = _training.train_domains

    def stop(call):
        calls = []

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
