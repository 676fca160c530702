"""What happens to files and texts."""

import random
from collections import Counter

import pytest

from robustbook.deployed import TEXT_SHIFTS, apply_shift
from robustbook.deployed._shifts import BYTE_SHIFTS

FILE = b"def f(x):\n    if x:\n\t\treturn 'y'\n" * 200
TEXT = "Größere Übungen für Anfänger, déjà vu"


def moved(shift, content):
    return apply_shift(shift, [content])[0]


def test_shifts_without_chance_by_hand():
    assert moved("first 200 bytes", FILE) == FILE[:200]
    assert moved("upper case", b"abC\xe4") == b"ABC\xe4"
    assert moved("no line ends", b"a\n  b\n") == b"a   b "
    assert moved("no indentation", b"a\n  b\n\tc\n\nd") == b"a\nb\nc\n\nd"
    assert moved("quoted in a mail", b"a\n\nb") == b"> a\n> \n> b"
    assert moved("first 10 letters", TEXT) == "Größere Üb"
    assert moved("no accents", TEXT) == "Großere Ubungen fur Anfanger, deja vu"
    assert moved("capitals", "über") == "ÜBER"


def test_a_wrong_encoding_can_be_undone():
    assert moved("wrong encoding", TEXT).encode("latin-1").decode() == TEXT
    every = bytes(range(256))
    assert moved("wrong encoding", every).decode().encode("latin-1") == every


@pytest.mark.parametrize("size", [512, 2048])
def test_fragments_are_pieces_from_anywhere(size):
    pieces = apply_shift(f"fragment of {size} bytes", [FILE] * 50)
    assert all(len(piece) == size and piece in FILE for piece in pieces)
    assert len({FILE.index(piece) for piece in pieces}) > 5
    assert moved(f"fragment of {size} bytes", b"short") == b"short"


@pytest.mark.parametrize(("name", "share"), [("1 %", 0.01), ("10 %", 0.1)])
def test_as_many_bytes_are_replaced_as_the_name_says(name, share):
    content = random.Random(0).randbytes(40_000)
    after = moved(f"{name} of bytes replaced", content)
    changed = sum(one != other for one, other in zip(content, after, strict=True))
    assert changed / len(content) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(("name", "share"), [("5 %", 0.05), ("20 %", 0.2)])
def test_typing_errors_double_drop_and_exchange(name, share):
    text = "".join(chr(0x4E00 + number) for number in range(20_000))
    after = moved(f"{name} of letters mistyped", text)
    counts = Counter(after)
    doubled = sum(count == 2 for count in counts.values())
    dropped = len(set(text) - set(counts))
    for count in (doubled, dropped):
        assert count / len(text) == pytest.approx(share / 3, rel=0.25)
    assert len(after) == len(text) + doubled - dropped


@pytest.mark.parametrize("shift", [*BYTE_SHIFTS, *TEXT_SHIFTS])
def test_each_content_has_its_own_numbers_and_empty_ones_stay(shift):
    kind = FILE if shift in BYTE_SHIFTS and shift != "wrong encoding" else TEXT
    both = apply_shift(shift, [kind, kind])
    assert both[:1] == apply_shift(shift, [kind])
    assert type(both[0]) is type(kind)
    if shift != "quoted in a mail":
        assert apply_shift(shift, [kind[:0]]) == (kind[:0],)
    if "%" in shift or "fragment" in shift:
        assert both[0] != both[1]
        assert both != apply_shift(shift, [kind, kind], seed=1)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="shift: expected one of first 200 bytes"):
        apply_shift("capitals", [FILE])
    with pytest.raises(TypeError, match=r"expected bytes .* or str .*, got bytes, str"):
        apply_shift("capitals", [FILE, TEXT])
