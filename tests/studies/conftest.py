"""Quick rows of any study, measured once for all tests that look at them."""

import json
import time
from dataclasses import asdict
from functools import cache

import pytest

from robustbook._store import cache as store
from robustbook._store.files import write_text
from robustbook.studies import STUDIES
from robustbook.studies import run as studies_run
from robustbook.studies.results import Results

from ..conftest import RUN_SEED

QUICK = {"profile": "quick", "seed": RUN_SEED, "device": "cpu"}
#: CPU seconds that a study may take beside the parts that are kept, and their share.
BESIDE = (3.0, 0.3)


class Watch:
    """What a block asks of the cache, and the parts that it computes for that."""

    def __init__(self):
        self.asked, self.computed, self.inside, self.depth = [], [], 0.0, 0

    def __enter__(self):
        self.kept = studies_run.cached_arrays, store._computed
        studies_run.cached_arrays, store._computed = self.ask, self.compute
        self.began = time.process_time()
        return self

    def __exit__(self, *_):
        studies_run.cached_arrays, store._computed = self.kept
        self.total = time.process_time() - self.began

    def ask(self, key, *given, **options):
        self.asked.append(key)
        return self.kept[0](key, *given, **options)

    def compute(self, path, *given):
        if not self.depth:
            self.computed.append(path.name)
        self.depth, began = self.depth + 1, time.process_time()
        try:
            return self.kept[1](path, *given)
        finally:
            self.depth -= 1
            if not self.depth:
                self.inside += time.process_time() - began


def in_two_slices(study):
    """Stop it after its first part, and go on; nothing is done twice, or kept wrong."""
    with Watch() as first:
        try:
            results = study.compute(**QUICK, until=0.0)
        except store.DeadlineError:
            results = None
    assert len(first.computed) <= 1, "begun after the deadline"
    asked = first.asked
    if results is None:
        with Watch() as rest:
            results = study.compute(**QUICK)
        assert not {*first.computed} & {*rest.computed}, "computed again"
        beside = rest.total - rest.inside
        assert beside < max(BESIDE[0], BESIDE[1] * rest.total), f"{beside} s not kept"
        asked = asked + rest.asked
    seed = studies_run.SEEDS_A_RUN * RUN_SEED
    assert all((key["seed"], key["device"]) == (seed, "cpu") for key in asked)
    return results


@pytest.fixture(scope="session")
def quick(run_folder):
    """Results of a study in the quick profile, by its name."""

    @cache
    def results(name):
        path = run_folder / f"{name}.json"
        if not path.is_file():
            write_text(path, json.dumps(asdict(in_two_slices(STUDIES[name]))))
        content = json.loads(path.read_text(encoding="utf-8"))
        return Results(**{**content, "rows": tuple(content["rows"])})

    return results


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
