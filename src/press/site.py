"""The site: built strictly by Jupyter Book, which reads again only what changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from press.layout import BookError

#: The command: strict, and all warnings at once. To import the press saves a second.
BUILD = (
    *(sys.executable, "-c", "import press, jupyter_book.cli.main as jb; jb.main()"),
    *("build", "-W", "-n", "--keep-going"),
)


def build_site(root: Path) -> Path:
    """Build the site of the book; return its first page."""
    if status := subprocess.run([*BUILD, str(root)], check=False).returncode:
        raise BookError(f"the strict build of the site ended with status {status}")
    return root / "_build" / "html" / "index.html"
