"""Quick rows of any study, measured once for all tests that look at them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from robustbook.studies import results_for
from robustbook.studies.results import Results


@pytest.fixture(scope="session")
def quick() -> Callable[[str], Results]:
    """Results of a study in the quick profile, by its name."""
    return cache(lambda name: results_for(name, profile="quick", device="cpu"))


@pytest.fixture
def refuse() -> Callable[..., None]:
    """What must not be called, as all is in the cache."""

    def measured(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    return measured
