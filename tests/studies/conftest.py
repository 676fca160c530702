"""Quick rows of any study, measured once for all tests that look at them."""

import runpy
from functools import cache

import pytest

from robustbook.studies import STUDIES

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
