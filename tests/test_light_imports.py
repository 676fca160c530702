"""The measures load torch, numpy and scipy, and nothing else of weight."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "IPython", "PIL", "foolbox", "jinja2", "matplotlib", "pandas", "pooch", "rich",
    "safetensors", "seaborn", "sklearn", "torchmetrics", "torchvision", "typer",
}  # fmt: skip


@pytest.mark.parametrize(
    "measure",
    [
        "agreement",
        "average_case",
        "corruptions",
        "discrepancies",
        "scores",
        "selection",
    ],
)
def test_a_measure_is_light(measure):
    code = f"import json, sys, robustbook.{measure}; print(json.dumps([*sys.modules]))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules = json.loads(process.stdout)
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    if measure in ("agreement", "average_case", "corruptions", "scores"):
        rooms = {".".join(m.split(".")[:2]) for m in modules if "robustbook." in m}
        assert rooms - {"robustbook._checks", "robustbook._docs"} == {
            f"robustbook.{measure}"
        }
