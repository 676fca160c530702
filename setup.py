"""Everything is in pyproject.toml; this adds the project's data to the wheel.

A checkout finds its folder ``data`` by itself. A plain installation has no such
folder, so the wheel carries checkpoints, stored results and reported figures as
``robustbook/_data``.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithData(build_py):
    """Copy ``data`` beside the modules, unless they are installed in place."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for folder in ("checkpoints", "reported", "results"):
            source = Path("data", folder)
            if source.is_dir():
                target = Path(self.build_lib, "robustbook", "_data", folder)
                # A training that was cut off leaves hidden files.
                hidden = shutil.ignore_patterns(".*")
                shutil.copytree(source, target, ignore=hidden, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
