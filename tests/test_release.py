"""What a release says of itself is said alike everywhere, and can be cited.

``citation-file-format-1.2.0.schema.json`` is the schema of the Citation File Format
1.2.0 (S. Druskat and others, doi:10.5281/zenodo.5171937, CC BY 4.0), as published.
"""

import datetime
import json
import re
import tomllib
from pathlib import Path

import jsonschema
import yaml
from packaging.version import Version

from robustbook import __version__

ROOT = Path(__file__).parents[1]
SCHEMA = Path(__file__).with_name("citation-file-format-1.2.0.schema.json")


CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))


def test_the_citation_file_is_valid():
    schema = json.loads(SCHEMA.read_text("utf-8"))
    # YAML has dates, JSON has not.
    plain = json.loads(json.dumps(CITATION, default=str))
    jsonschema.validate(plain, schema, format_checker=jsonschema.FormatChecker())


def test_the_preferred_citation_is_of_this_release():
    preferred = CITATION["preferred-citation"]
    for key in ("title", "authors", "version", "url"):
        assert preferred[key] == CITATION[key], key
    released = CITATION["date-released"]
    assert isinstance(released, datetime.date)
    assert (preferred["year"], preferred["month"]) == (released.year, released.month)


def test_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", __version__)
    if ".dev" not in __version__:
        assert CITATION["version"] == __version__
    else:  # the last release is cited until the next one is made
        assert Version(CITATION["version"]) < Version(__version__)


def test_pages_are_deployed_after_the_tests_and_a_deployment_is_not_cut_off():
    folder = ROOT / ".github" / "workflows"
    pages = yaml.safe_load((folder / "pages.yml").read_text("utf-8"))
    tests = yaml.safe_load((folder / "test.yml").read_text("utf-8"))
    triggers = pages[True]  # YAML takes "on" for a truth
    assert triggers.keys() == {"workflow_run"}
    assert triggers["workflow_run"]["workflows"] == [tests["name"]]
    assert "conclusion == 'success'" in pages["jobs"]["build"]["if"]
    assert pages["concurrency"]["cancel-in-progress"] is False


def test_one_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    source, site = project["urls"]["Source"], project["urls"]["Book"]
    assert CITATION["repository-code"] == CONFIG["repository"]["url"] == source
    assert CITATION["url"] == CONFIG["html"]["baseurl"] == site
    assert site in (ROOT / "README.md").read_text("utf-8")


def test_the_changelog_has_the_release_that_is_cited():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(\S+)\](?: - (\S+))?$", changes, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert versions[1] == (CITATION["version"], str(CITATION["date-released"]))
    assert re.findall(r"^\[(\S+)\]: ", changes, re.MULTILINE) == [
        v for v, _ in versions
    ]
