"""The site is built where something changed, and pictures are made lighter once."""

import base64
import io
import sys

import nbformat
import numpy as np
import pytest
from PIL import Image

from press import site
from press.layout import BookError
from press.publish import SMALL, lighten, lighten_pictures

# What Jupyter Book and the extension do, as far as it matters here.
BUILD = """
import sys
from pathlib import Path
from press.site import stamp_of, write_stamp
root = Path(sys.argv[-1])
html = root / "_build" / "html"
html.mkdir(parents=True, exist_ok=True)
with (html / "built").open("a") as file:
    file.write("x")
if "bad" in (root / "book" / "a.md").read_text():
    sys.exit(3)
write_stamp(html, stamp_of(root))
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.md").write_text("# A\n")
    (tmp_path / "_config.yml").write_text("title: A\n")
    monkeypatch.setattr(site, "BUILD", (sys.executable, "-c", BUILD))
    return tmp_path


def builds(root):
    """How often the site was built since it was last built from nothing."""
    return len((root / "_build" / "html" / "built").read_text())


def test_a_site_is_built_once_for_the_same_sources_and_on_what_there_is(root):
    for _ in range(2):
        assert site.build_site(root) == root / "_build" / "html" / "index.html"
        assert builds(root) == 1
    (root / "book" / "a.md").write_text("# B\n")
    site.build_site(root)
    assert builds(root) == 2


@pytest.mark.parametrize("file", ["_config.yml", "_toc.yml", "book/_static/a.css"])
def test_what_every_page_shows_makes_all_anew(root, file):
    site.build_site(root)
    (root / file).parent.mkdir(exist_ok=True)
    (root / file).write_text("changed\n")
    site.build_site(root)
    assert builds(root) == 1


def test_the_promise_of_a_pdf_is_another_site(root, monkeypatch):
    site.build_site(root)
    monkeypatch.setenv("ROBUSTBOOK_PDF", "1")
    site.build_site(root)
    assert builds(root) == 2


def test_a_build_with_a_warning_is_no_site(root):
    (root / "book" / "a.md").write_text("bad\n")
    for _ in range(2):  # it is not taken for fresh
        with pytest.raises(BookError, match="ended with status 3"):
            site.build_site(root)


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, format="PNG", compress_level=0)
    return file.getvalue()


@pytest.fixture
def plot():
    """Few colors, opaque."""
    pixels = np.full((120, 120, 4), 255)
    pixels[40:60, :, :3] = (0, 114, 178)
    return pixels


def test_a_plot_is_lighter_and_looks_the_same(plot):
    before = png(plot)
    assert len(before) > SMALL
    after = lighten(before)
    assert len(after) < len(before) / 10
    with Image.open(io.BytesIO(after)) as picture:
        assert np.array_equal(np.asarray(picture.convert("RGBA")), plot)
    assert lighten(after) == after


def test_transparent_small_and_rich_pictures_stay(plot):
    see_through = plot.copy()
    see_through[0, 0, 3] = 0
    photo = np.random.default_rng(0).integers(0, 256, (120, 120, 3))
    for picture in (png(see_through), png(plot[:9]), png(photo)):
        assert lighten(picture) == picture


def test_pictures_of_a_notebook_are_lightened(plot):
    data = {"image/png": base64.b64encode(png(plot)).decode()}
    outputs = [nbformat.v4.new_output("display_data", data)]
    cell = nbformat.v4.new_code_cell("plot()", outputs=outputs)
    lighten_pictures(nbformat.v4.new_notebook(cells=[cell]))
    assert base64.b64decode(cell.outputs[0].data["image/png"]) == lighten(png(plot))
