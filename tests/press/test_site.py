"""The site is never stale, and pictures are made lighter once.

A book of two chapters is built truly, changed, and built again.
"""

import io
import shutil

import numpy as np
import pytest
from PIL import Image

from press.ext.build import makers_of
from press.layout import Chapter
from press.publish import SMALL, lighten

from .conftest import complete
from .small_book import ROOT, press, small_book
from .test_checks import pretend_publish

LAW = """\
(sec-accuracy-law)=
## The law of sums

We add $1$, and {cite:t}`carvalho2025pa` agrees.

## Key takeaways
"""
SECOND = """\
(ch-second)=
# Second

It follows from {ref}`sec-accuracy-law` in {numref}`ch-accuracy`.

```{code-cell} python
:tags: [parameters]

profile = "quick"
```
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book with a copy of the press, built."""
    root = tmp_path_factory.mktemp("book")
    first = complete().replace("## Key takeaways\n", LAW)
    head = first[: first.index("(ch-accuracy)=")]
    small_book(root, {"01_small": first, "02_second": head + SECOND})
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "press", root / "src" / "press", ignore=ignore)
    (root / "src" / "robustbook").mkdir()
    shutil.copy(ROOT / "src" / "robustbook" / "__init__.py", root / "src/robustbook")
    for name in ("01_small", "02_second"):
        pretend_publish(Chapter(root, name), pair=False)
    press(root, "site")
    return root


def edit(root, file, old, new):
    path = root / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def build(root):
    """Build the site; return the names of the pages that were written."""
    pages = [path_of(root, f"chapters/{name}") for name in ("01_small", "02_second")]
    pages.append(path_of(root, "intro"))
    before = [page.stat().st_mtime_ns for page in pages]
    press(root, "site")
    after = [page.stat().st_mtime_ns for page in pages]
    return {p.stem for p, x, y in zip(pages, before, after, strict=True) if x != y}


def path_of(root, name):
    return root / "_build" / "html" / "book" / f"{name}.html"


def page(root, name):
    return path_of(root, f"chapters/{name}").read_text()


def notebook(root, name):
    return (root / "notebooks" / f"{name}.ipynb").read_text()


def test_nothing_is_written_where_nothing_changed_that_a_page_shows(book):
    edit(book, "src/press/pdf.py", '"""', '"""Now: ')
    assert build(book) == set()


def test_new_words_are_on_their_page_and_no_other_is_written(book):
    edit(book, "notebooks/01_small.md", "It adds.", "It adds numbers.")
    assert "new text, the same outputs" in press(book, "publish", "--stale")
    # The preface, too: it holds the contents.
    assert build(book) == {"01_small", "intro"}
    assert "It adds numbers." in page(book, "01_small")
    assert "It adds numbers." in notebook(book, "01_small")


def test_a_new_title_is_shown_wherever_it_is_referred_to(book):
    edit(book, "notebooks/01_small.md", "## The law of sums", "## A law of numbers")
    press(book, "publish", "--stale")
    build(book)
    assert "A law of numbers" in page(book, "02_second")
    assert "A law of numbers" in notebook(book, "02_second")


def test_what_the_press_makes_of_a_page_and_the_release_that_it_names_are_new(book):
    path = book / "src" / "robustbook" / "__init__.py"
    path.write_text('__version__ = "98.7.6"\n')
    edit(book, "src/press/ext/text.py", '"unbroken"', '"in-one-piece"')
    edit(book, "src/press/pairs.py", "The text describes", "This text describes")
    gone = path_of(book, "chapters/00_gone")
    gone.write_text("of a chapter that has another name now")
    build(book)
    assert not gone.exists()
    assert 'class="in-one-piece"' in page(book, "01_small")
    for name in ("01_small", "02_second"):
        assert "This text describes" in notebook(book, name)
        assert "/archive/v98.7.6.tar.gz" in notebook(book, name)
        assert "/blob/v98.7.6/notebooks/" in page(book, name)


def test_a_build_with_a_warning_is_no_site(book):
    edit(book, "book/intro.md", "To begin with.", "See {ref}`sec-nowhere`.")
    for _ in range(2):  # its pages are not taken for fresh
        assert "sec-nowhere" in press(book, "site", status=2)


@pytest.mark.parametrize(
    "file",
    [
        *("_config.yml", "_toc.yml", "constraints.txt", "book/_static/deep/a.css"),
        *("src/robustbook/__init__.py", "src/press/ext/layout.html"),
    ],
)
def test_every_page_is_new_where_one_of_these_changed(tmp_path, file, monkeypatch):
    ext = tmp_path / "src" / "press" / "ext"
    monkeypatch.setattr("press.ext.build.__file__", str(ext / "build.py"))
    before = makers_of(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("changed\n")
    assert makers_of(tmp_path) != before


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
