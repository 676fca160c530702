"""README's picture: a figure of an executed chapter, as that chapter shows it."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat

from .layout import Chapter
from .source import write_bytes

__all__ = ["picture_bytes", "picture_path", "write_picture"]

#: The figure that says in one look what the book measures.
CHAPTER, FIGURE = "08_first_measurement", "fig-08-growing"


def picture_path(root: Path) -> Path:
    """Where the picture is."""
    return root / "book" / "_static" / "readme.png"


def picture_bytes(root: Path) -> bytes | None:
    """Return the figure as the published chapter has it, or None without one."""
    published = Chapter(root, CHAPTER).published
    if not published.is_file():
        return None
    for cell in nbformat.read(published, as_version=4).cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if figure.get("name") != FIGURE:
            continue
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output.data["image/png"])
    return None


def write_picture(root: Path) -> bool:
    """Write the picture; return whether it changed."""
    content = picture_bytes(root)
    return content is not None and write_bytes(picture_path(root), content)
