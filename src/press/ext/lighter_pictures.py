"""Save the chapters' pictures with a palette, at a third of their size.

A page is read on a phone, in a train. Plots have few colors, yet are stored with
every pixel's own: as palette images of 256 colors they weigh a third, and nobody sees
the difference. A picture where it could be seen, by ``LARGEST_CHANGE``, or that has
transparent pixels, stays as it is. The executed notebooks keep theirs.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageChops, ImageStat
from sphinx.application import Sphinx
from sphinx.util.display import status_iterator

#: In bytes: smaller pictures are not worth the time.
SMALL = 40_000
#: The mean change of a pixel's color, of 255, that a picture may suffer.
LARGEST_CHANGE = 0.5


def lighten(path: Path) -> bool:
    """Save one picture with a palette; return whether it was worth it."""
    size = path.stat().st_size
    if size < SMALL:
        return False
    with Image.open(path) as opened:
        if opened.mode not in ("RGB", "RGBA"):
            return False
        if opened.mode == "RGBA" and opened.getchannel("A").getextrema()[0] < 255:
            return False
        picture = opened.convert("RGB")
    few = picture.quantize(256, dither=Image.Dither.NONE)
    change = ImageStat.Stat(ImageChops.difference(picture, few.convert("RGB"))).mean
    if max(change) > LARGEST_CHANGE:
        return False
    new = path.with_suffix(".palette.png")
    few.save(new, format="PNG", optimize=True)
    if new.stat().st_size >= size:
        new.unlink()
        return False
    new.replace(path)
    return True


def lighten_pictures(app: Sphinx, exception: Exception | None) -> None:
    """Go through the pictures of the pages that this build has written."""
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / app.builder.imagedir
    names = {name for name in app.builder.images.values() if name.endswith(".png")}
    for name in status_iterator(
        sorted(names), "lightening pictures... ", length=len(names)
    ):
        if (folder / name).is_file():
            lighten(folder / name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the saving, once Sphinx has copied the pictures."""
    app.connect("build-finished", lighten_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
