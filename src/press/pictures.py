"""Pictures of executed chapters with a palette, at a third of their size.

A page is read on a phone, in a train. Plots have few colors, yet are stored with every
pixel's own: with a palette of 256 colors nobody sees the difference. A picture where
it could be seen, or that has transparent pixels, stays as it is.
"""

from __future__ import annotations

import base64
import io

from nbformat import NotebookNode
from PIL import Image, ImageChops, ImageStat

__all__ = ["lighten", "lighten_pictures"]

#: In bytes: smaller pictures are not worth the time.
SMALL = 40_000
#: The mean change of a pixel's color, of 255, that a picture may suffer.
LARGEST_CHANGE = 0.5


def lighten(content: bytes) -> bytes:
    """Return a PNG picture with a palette, or as it is where that is not worth it."""
    if len(content) < SMALL:
        return content
    with Image.open(io.BytesIO(content)) as opened:
        if opened.mode not in ("RGB", "RGBA"):
            return content
        if opened.mode == "RGBA" and opened.getchannel("A").getextrema() != (255, 255):
            return content
        picture = opened.convert("RGB")
    few = picture.quantize(256, dither=Image.Dither.NONE)
    change = ImageStat.Stat(ImageChops.difference(picture, few.convert("RGB"))).mean
    lighter = io.BytesIO()
    few.save(lighter, format="PNG", optimize=True)
    worth = max(change) <= LARGEST_CHANGE and lighter.tell() < len(content)
    return lighter.getvalue() if worth else content


def lighten_pictures(notebook: NotebookNode) -> None:
    """Lighten every picture among the outputs of a notebook."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                content = lighten(base64.b64decode(data["image/png"]))
                data["image/png"] = base64.b64encode(content).decode("ascii")
