"""The command line in a folder with networks of its own."""

import sys

import pytest
from typer.testing import CliRunner

from robustbook.cli import app


@pytest.fixture
def command(tmp_path, monkeypatch, request):
    """Return the command line where ``own_nets.py`` holds the NETS of the module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    (tmp_path / "own_nets.py").write_text(request.module.NETS)
    return lambda *words: CliRunner().invoke(app, words)
