"""Files and messages of a folder: the draw, and what is wrong with a folder."""

import gettext
import py_compile
import struct

import pytest

from robustbook.deployed import Sample, load_files, load_translations
from robustbook.deployed._sample import FILE_TYPES


@pytest.fixture
def folder(tmp_path):
    """Thirty Python files in two folders, eight pictures, and what does not count."""
    for number in range(30):
        place = tmp_path / ("deep/er" if number % 3 else "flat")
        place.mkdir(parents=True, exist_ok=True)
        suffix = "PY" if number == 4 else "pyi" if number == 5 else "py"
        (place / f"{number}.{suffix}").write_text(f"x = {number}  # a comment")
    for number in range(8):
        (tmp_path / f"{number}.svg").write_text(f"<svg id='{number}'></svg>")
    (tmp_path / "copy.svg").write_text("<svg id='0'></svg>")
    (tmp_path / "tiny.py").write_text("x")
    (tmp_path / "notes.unknown").write_text("of a type that is not listed")
    return tmp_path


def draw(folder, **options):
    return load_files(folder, **{"at_least": 5, "sizes": (10, 99), **options})


def test_types_come_from_extensions_and_copies_are_taken_once(folder):
    assert draw(folder).counts == {"python": 30, "svg": 8}
    assert draw(folder, at_least=9).counts == {"python": 30}
    assert draw(folder, types={"svg": "drawing"}).counts == {"drawing": 8}
    assert len(set(FILE_TYPES.values())) > 20


def test_the_draw_depends_on_the_seed_and_on_files_of_the_type_alone(folder):
    first = draw(folder, per_type=6)
    assert first == draw(folder, per_type=6)
    assert first != draw(folder, per_type=6, seed=1)
    assert first.contents[:6] == draw(folder, per_type=20).contents[:6]
    (folder / "other.css").write_text("p { margin: 0 }")
    assert first == draw(folder, per_type=6)


def test_an_import_meanwhile_changes_no_draw(folder):
    first = draw(folder, sizes=(10, 999))
    for source in sorted(folder.rglob("*.py")):
        py_compile.compile(str(source), f"{source}c")
    assert draw(folder, sizes=(10, 999)) == first


def test_several_folders_and_links(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "link.py").symlink_to(folder / "flat" / "0.py")
    (other / "new.py").write_text("y = 1  # another comment")
    assert draw([folder, other]).counts["python"] == 31


def test_files_that_cannot_be_read_are_counted_named_and_replaced(folder, monkeypatch):
    from pathlib import Path

    read = Path.read_bytes

    def refuse(path):
        if path.name in ("0.py", "1.py", "2.py", "3.py"):
            raise PermissionError(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.warns(UserWarning, match=r"^4 files could not be read.*and 1 more$"):
        sample = draw(folder)
    assert sample.counts["python"] == 26
    assert len(sample.unreadable) == 4


def test_each_content_has_a_label():
    with pytest.raises(ValueError, match="got 1 contents and 2 labels"):
        Sample((b"a",), ("x", "y"))


def test_a_folder_without_enough_files_is_refused_in_one_line(tmp_path, folder):
    with pytest.raises(ValueError, match="expected an existing folder, got 'nowhere'"):
        load_files("nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    for load, kind in ((load_files, "none of any type"), (load_translations, "most 0")):
        with pytest.raises(ValueError, match=f"{kind}.*choose another folder") as error:
            load(empty)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"found at most 30 \(python\)"):
        draw(folder, at_least=31)
    small = r"none of any type in .*, and 40 of another size; .*change sizes"
    with pytest.raises(ValueError, match=small):
        load_files(folder)
    for wrong in (3, [folder, 3]):
        with pytest.raises(TypeError, match="expected a path or several paths, got"):
            load_files(wrong)


GREETINGS = "Guten Morgen liebe Welt", "Guten Abend liebe Welt"


def catalog(messages):
    """A compiled catalog of messages, as msgfmt writes it."""
    texts = [b"Content-Type: text/plain; charset=UTF-8\n", *map(str.encode, messages)]
    keys = [b"", *(b"key %d" % number for number in range(len(messages)))]
    count, header = len(keys), 28
    entries, place = [], header + 16 * count
    for text in [*keys, *texts]:
        entries.append(struct.pack("<2I", len(text), place))
        place += len(text) + 1
    numbers = struct.pack("<7I", 0x950412DE, 0, count, header, header + 8 * count, 0, 0)
    return numbers + b"".join(entries) + b"\0".join([*keys, *texts]) + b"\0"


@pytest.fixture
def translations(tmp_path):
    german, french = tmp_path / "de_AT" / "LC_MESSAGES", tmp_path / "fr"
    english = tmp_path / "en"
    for place in (german, french, english, tmp_path / "templates"):
        place.mkdir(parents=True)
    (german / "a.mo").write_bytes(catalog([*GREETINGS, "Not translated"]))
    (french / "a.po").write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "a"\nmsgstr "Bonjour \\"le\\" "\n"monde entier"\n\n'
        'msgid "b"\nmsgstr "Not translated"\n\nmsgid "c"\nmsgstr ""\n',
        encoding="utf-8",
    )
    (english / "a.po").write_text('msgid "a"\nmsgstr "Good morning, dear world"')
    (tmp_path / "templates" / "a.po").write_text('msgid "a"\nmsgstr "of no language"')
    return tmp_path


def test_messages_of_both_kinds_of_catalogs(translations):
    sample = load_translations(translations, at_least=1, letters=(5, 99))
    assert sample.counts == {"de": 2, "fr": 1}
    assert set(sample.contents) == {*GREETINGS, 'Bonjour "le" monde entier'}
    with (translations / "de_AT/LC_MESSAGES/a.mo").open("rb") as stream:
        assert gettext.GNUTranslations(stream).gettext("key 0") == GREETINGS[0]


def test_a_broken_catalog_is_named(translations):
    (translations / "fr" / "b.mo").write_bytes(b"no catalog at all")
    (translations / "fr" / "c.mo").write_bytes(b"\0")
    (translations / "fr" / "d.po").write_bytes(b'msgstr "\xff"')
    with pytest.warns(UserWarning, match=r"^3 files could not be read.*b\.mo"):
        sample = load_translations(translations, at_least=1, letters=(5, 99))
    assert sample.counts == {"de": 2, "fr": 1}
