"""The measures load torch, numpy and scipy, and nothing else of weight."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    *("IPython", "PIL", "foolbox", "jinja2", "matplotlib", "pandas", "pooch", "rich"),
    *("safetensors", "seaborn", "sklearn", "torchmetrics", "torchvision", "typer"),
}
MEASURES = (
    *("agreement", "average_case", "corruptions", "discrepancies", "label_free"),
    *("scores", "selection", "style"),
)
#: Each measure in a fork of its own, of a process that has torch already.
SCRIPT = """
import json, os, sys, torch
for measure in sys.argv[1:]:
    if os.fork() == 0:
        __import__(f"robustbook.{measure}")
        print(json.dumps([*sys.modules]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def loaded():
    command = [sys.executable, "-c", SCRIPT, *MEASURES]
    lines = subprocess.check_output(command, text=True).splitlines()
    return dict(zip(MEASURES, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_is_light(loaded, measure):
    modules = loaded[measure]
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    if measure in ("agreement", "average_case", "corruptions", "scores"):
        ours = {m.split(".")[1] for m in modules if m.startswith("robustbook.")}
        assert ours - {"_checks", "_defaults", "_intervals"} == {measure}


def test_modules_are_attributes_of_the_package_and_load_when_used():
    script = """
import sys, robustbook
assert {"agreement", "margins", "scores"} <= set(dir(robustbook))
assert not any(name.startswith("_engine") for name in dir(robustbook))
import robustbook._store.cache
from robustbook._store.provenance import running_code
assert running_code.cache_info().currsize == 0, "the package is hashed at import"
print(robustbook.style.use_style.__name__)
try:
    robustbook.agrement
except AttributeError as error:
    print(error)
assert "torch" not in sys.modules
"""
    printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed.splitlines() == [
        "use_style",
        "module 'robustbook' has no attribute 'agrement'",
    ]
