"""What the documentation promises of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_environment_variable_is_documented():
    pattern = re.compile(r"ROBUSTBOOK_[A-Z]+(?:_[A-Z]+)*")
    code = [*(ROOT / "src").rglob("*.py"), ROOT / "Makefile"]
    used = {name for path in code for name in pattern.findall(path.read_text())}
    # Set by the press for the chapters that it executes.
    used -= {"ROBUSTBOOK_READS"}
    table = (ROOT / "book/api/command_line.md").read_text()
    table = table.partition("## Environment variables")[2]
    assert used
    assert used <= set(pattern.findall(table))
