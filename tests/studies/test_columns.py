"""Every column of the stored results has a unit and a meaning."""

import re
import tomllib

import pytest

from robustbook.studies import STUDIES
from robustbook.studies.results import read_results, results_folder

TABLE = tomllib.loads(
    (results_folder(None) / "columns.toml").read_text(encoding="utf-8")
)
ENDING = re.compile(r"_(se|low|high|se_images|se_seeds)$")
SAMPLE = re.compile(r"^(ID|OOD|SD|1F-MD|5F-MD|tests)/")


def columns_of(name):
    found = {column for row in read_results(name).rows for column in row}
    whole = {SAMPLE.sub("*/", re.sub(r"^test/\d", "test/*", c)) for c in found}
    return {column if column in TABLE else ENDING.sub("", column) for column in whole}


def documented(study):
    module = pytest.importorskip(study.code)
    functions = (getattr(module, name, None) for name in ("measure", "rows", "summary"))
    texts = re.findall("``(.+?)``", " ".join(f"{f.__doc__}" for f in functions))
    words = {word for text in texts for word in re.findall(r"[\w/-]+", text)}
    return words | {ENDING.sub("", word) for word in words}


@pytest.mark.parametrize("name", STUDIES)
def test_columns_are_in_the_table_or_in_the_study_that_has_them(name):
    if name == "domain_regime_large":
        return  # which only a CUDA device measures
    assert columns_of(name) - TABLE.keys() <= documented(STUDIES[name])


def test_the_table_has_columns_that_are_there_each_with_a_unit_and_a_meaning():
    stored = set().union(*map(columns_of, STUDIES.keys() - {"domain_regime_large"}))
    assert TABLE.keys() <= stored
    assert all(unit and meaning for unit, meaning in TABLE.values())
