"""Every study runs on a device that is not the CPU: no step mixes the two.

The device is pretended (``tests/pretended_device.py``), so no GPU is needed. It is
registered for a process, so these run in processes of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from robustbook.studies import STUDIES

#: Beyond what can be pretended: derivatives in forward mode; gradients of embeddings,
#: on which torch itself ends the process.
BEYOND = {"average_case_classes", "reviews", "text_edits"}
NAMES = [
    name
    for name, study in STUDIES.items()
    if study.device is None and name not in BEYOND
]
PROGRAM = """
import sys
import pretended_device
from robustbook.models import _evaluate
from robustbook.studies import results_for

_evaluate.DEVICE_TYPES += (pretended_device.NAME,)
for name in sys.argv[1:]:
    results = results_for(name, profile="quick", device=pretended_device.NAME)
    assert results.provenance["device"] == pretended_device.NAME, name
"""


def run_on_device(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    command = [sys.executable, "-W", "ignore", "-c", program, *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )


@pytest.mark.ranges
@pytest.mark.parametrize("part", range(6))
def test_no_study_mixes_devices(part, tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    result = run_on_device(PROGRAM, *NAMES[part::6])
    assert result.returncode == 0, result.stderr[-2000:]


MISTAKES = (
    "there + torch.ones(3)",
    "torch.nn.Linear(3, 2)(there)",
    "there.numpy()",
    "there.normal_(generator=torch.Generator())",
    "torch.ones(3)[there > 0] + there.to('cpu') + there",
)
STRICT = """
import sys
import torch
import pretended_device

there = torch.randn(3, device=pretended_device.NAME)
assert float((2 * there).cpu().sum()) == 2 * float(there.sum())
for mistake in sys.argv[1:]:
    try:
        exec(mistake)
    except (RuntimeError, TypeError) as error:
        assert pretended_device.NAME in str(error), error
    else:
        sys.exit(f"taken: {mistake}")
"""


def test_the_pretended_device_is_strict():
    result = run_on_device(STRICT, *MISTAKES)
    assert result.returncode == 0, result.stderr
