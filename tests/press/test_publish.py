"""Chapters run in this Python, all or nothing, and repeat byte for byte."""

import base64
import io
import re
import sys

import nbformat
import pytest
from PIL import Image

from press.execute import ChapterError
from press.layout import BookError, Chapter
from press.publish import PUBLISHED, publish, rerun
from press.source import read_source
from press.stamps import read_stamp, staleness
from press.status import read_timings, record_timing, render_status, status_page

from .conftest import book_in, complete

pytestmark = pytest.mark.slow

# Everything that varies from run to run, and from one user to another, if nothing is
# done about it; and a picture that can be lighter.
VARIED = """
import io, random, re, sys, os
import matplotlib.pyplot as plt
plt.Figure().savefig(svg := io.StringIO(), format="svg")
print(re.findall("<dc:date>.*", svg.getvalue()))
print([os.environ[f"{name}_NUM_THREADS"] for name in ("MKL", "OMP", "OPENBLAS")])
print("of_the_user" in globals())
print({"a", "b", "c"}, random.Random(seed).random())
for i in range(50):
    print(i, flush=True)
print(profile, device)
_ = plt.plot([i * i % 97 for i in range(300)])
plt.show()
"""


def published(chapter):
    return nbformat.read(chapter.published, as_version=4)


def text_of(chapter):
    path = chapter.published if isinstance(chapter, Chapter) else chapter
    text = "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
    )
    return re.sub(r"One and \w+ make two\.", "", text)  # every small book claims it


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """A chapter in which all that varies is there, published."""
    chapter = book_in(tmp_path_factory.mktemp("book"))(VARIED)
    assert staleness(chapter) == ["it was never executed"]
    assert publish([chapter]) == []
    return chapter


def test_publishing_repeats_byte_for_byte(varied, tmp_path, monkeypatch):
    """For another user, too, with another start-up and more threads."""
    first = varied.published.read_bytes()
    varied.published.unlink()
    startup = tmp_path / "profile_default" / "startup" / "of_the_user.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("of_the_user = 1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    for name in ("MKL", "OMP", "OPENBLAS"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", "2")
    assert publish([varied]) == []
    assert varied.published.read_bytes() == first
    nbformat.validate(published(varied))


def test_pictures_are_published_light(varied):
    (picture,) = (
        output.data["image/png"]
        for cell in published(varied).cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    )
    with Image.open(io.BytesIO(base64.b64decode(picture))) as opened:
        assert opened.mode == "P", "a palette"


def test_the_published_chapter_is_its_source_with_outputs(varied):
    cells = published(varied).cells
    written = read_source(varied).notebook.cells
    assert [cell.id for cell in cells] == [cell.id for cell in written]
    assert [cell.metadata for cell in cells] == [cell.metadata for cell in written]
    changed = [i for i, c in enumerate(cells) if c.source != written[i].source]
    assert len(changed) == 1
    assert "parameters" in cells[changed[0]].metadata.tags
    assert cells[changed[0]].source.endswith(
        '# Executed with:\nprofile = "full"\ndevice = "cpu"'
    )
    counts = [cell.execution_count for cell in cells if cell.cell_type == "code"]
    assert counts == [1, 2, 3]
    (stream,) = (
        o for c in cells for o in c.get("outputs", []) if o.output_type == "stream"
    )
    assert stream.text.endswith("49\nfull cpu\n")


def test_the_stamp_and_the_status_page(varied):
    assert staleness(varied) == []
    stamp = read_stamp(varied)
    assert stamp["parameters"] == {**PUBLISHED, "seed": 0}
    assert stamp["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    page = status_page(varied.root).read_text()
    assert page == render_status(varied.root)
    (row,) = [line for line in page.splitlines() if "01_small.ipynb" in line]
    assert "| full | cpu |" in row
    assert read_timings(varied.root)["01_small"]["seconds"] > 0


def test_it_runs_in_this_python_in_the_root_and_with_the_package_of_the_book(make_book):
    chapter = make_book(
        "import os, sys, robustbook\n"
        "print(sys.executable, os.getcwd(), robustbook.__file__)"
    )
    package = chapter.root / "src" / "robustbook" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.touch()
    output = rerun(chapter, parameters={})
    assert text_of(output).split() == [sys.executable, str(chapter.root), str(package)]


def test_a_failure_leaves_the_published_chapter(make_book):
    chapter = make_book("print('good')")
    assert publish([chapter]) == []
    before = chapter.published.read_bytes()
    make_book("def half(x):\n    return x / 0\nhalf(1)")
    (failure,) = publish([chapter])
    assert chapter.published.read_bytes() == before
    assert [path.name for path in chapter.published.parent.glob(".*")] == []
    message = str(failure)
    line = chapter.source.read_text().splitlines().index("def half(x):") + 1
    assert f"failed in the cell at notebooks/01_small.md:{line}" in message
    assert "    half(1)" in message
    assert re.search(r"-> \d+ +return x / 0\n", message), "the traceback"
    assert message.endswith("ZeroDivisionError: division by zero")
    assert "\x1b" not in message


CLAIM = """
from robustbook.notebook import claim
claim(f"Four is {4 - seed}.", 4 - seed == 4)
"""


def test_a_false_claim_is_said_and_not_published(make_book):
    chapter = make_book(CLAIM)
    assert publish([chapter]) == []
    assert "✓ **Holds in this run.** Four is 4." in text_of(chapter)
    before = chapter.published.read_bytes()
    (failure,) = publish([chapter], parameters={"seed": 1})
    assert "✗ **Does not hold in this run.** Four is 3." in str(failure)
    assert chapter.published.read_bytes() == before
    # A reader sees the sentence, and the rest of the chapter.
    output = rerun(chapter, parameters={"seed": 1})
    assert "Does not hold in this run." in text_of(output)


def test_a_warning_fails(make_book):
    chapter = make_book("import warnings\nwarnings.warn('look out')")
    (failure,) = publish([chapter])
    assert isinstance(failure, ChapterError)
    assert "wrote to standard error" in str(failure)
    assert "look out" in str(failure)
    assert not chapter.published.exists()
    # For yourself, it is no failure.
    assert rerun(chapter, parameters={}).is_file()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os.write(2, b'out of luck')", "Kernel died"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "A process in the process pool"),
    ],
)
def test_a_kernel_or_a_process_that_dies_is_a_failure(make_book, body, message):
    chapter = make_book(f"import os, signal\n{body}\nos._exit(1)")
    (failure,) = publish([chapter])
    assert str(failure).startswith(f"01_small: {message}")
    assert not chapter.published.exists()


def test_a_rerun_reads_as_the_notebook_does_and_leaves_the_book_alone(make_book):
    chapter = make_book()
    resolved = chapter.pair.read_text().replace("We add.", "We add, as ever.")
    chapter.pair.write_text(resolved)
    output = rerun(chapter, parameters={"profile": "full", "seed": 7})
    assert output == chapter.root / "_build" / "rerun" / "01_small_full.ipynb"
    assert "We add, as ever." in output.read_text()
    assert text_of(output) == "full 7\n"
    assert not chapter.published.exists()
    assert not status_page(chapter.root).exists()
    chapter.source.write_text(chapter.source.read_text().replace("We add.", "We sum."))
    output = rerun(chapter, parameters={"seed": 8})
    assert "We sum." in output.read_text(), "its notebook is of another text"
    assert text_of(output) == "quick 8\n"
    with pytest.raises(BookError, match="no parameter 'sed'; it has profile, seed"):
        rerun(chapter, parameters={"sed": 1})


MEETS = """
import pathlib, time
pathlib.Path("{name}").touch()
for _ in range(300):
    if pathlib.Path("{other}").exists(): break
    time.sleep(0.1)
else:
    raise TimeoutError("nobody came")
print("{name}")
"""


def test_chapters_run_side_by_side(make_book, tmp_path):
    """Each waits until the other one runs."""
    first = make_book(MEETS.format(name="one", other="two"))
    second = Chapter(tmp_path, "02_second")
    text = complete(MEETS.format(name="two", other="one"))
    second.source.write_text(text.replace("ch-accuracy", "ch-gibbs"))
    assert publish([first, second], jobs=2) == []
    assert text_of(first) == "one\n"
    assert text_of(second) == "two\n"
    assert read_timings(tmp_path).keys() == {"01_small", "02_second"}
    second.source.unlink()
    record_timing(first, 1.0)
    assert read_timings(tmp_path).keys() == {"01_small"}, "the other one is gone"
