"""Writing: whole or not at all, whatever happens."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from robustbook._store.files import (
    DataUnavailableError,
    atomic_write,
    check_writable,
    read_json,
    write_text,
)
from robustbook.models import checkpoint_entry
from robustbook.studies import read_results


def test_a_file_appears_complete_with_its_folders(tmp_path):
    path = tmp_path / "new" / "deeper" / "file.txt"
    with atomic_write(path, "w") as file:
        file.write("β\n")
        assert not path.exists()
    assert path.read_bytes() == "β\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError(5, "broken")])
def test_an_error_leaves_the_earlier_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("before")

    def fail():
        with atomic_write(path) as file:
            file.write(b"after")
            raise error

    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    path = tmp_path / "file"
    with (
        pytest.raises(OSError, match="No space left") as caught,
        atomic_write(path),
        open("/dev/full", "wb", buffering=0) as full,  # noqa: PTH123
    ):
        full.write(b"1")
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_concurrent_writers_leave_one_complete_file(tmp_path):
    path = tmp_path / "file"
    texts = [str(k) * 300_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(path, text), texts))
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_of_a_killed_writer_is_removed_later(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    program = (
        "import sys, time; from robustbook._store.files import atomic_write\n"
        f"with atomic_write({str(path)!r}, 'w') as file:\n"
        "    file.write('half'); file.flush(); print('now', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGKILL)
    assert path.read_text() == "before"
    (left,) = (p for p in tmp_path.iterdir() if p != path)
    write_text(path, "after")
    assert left.exists(), "another writer may be at work on it"
    os.utime(left, (time.time() - 90_000,) * 2)
    write_text(path, "again")
    assert list(tmp_path.iterdir()) == [path]


def test_an_unusable_folder_is_refused(tmp_path, monkeypatch):
    check_writable(tmp_path / "made", what="cache", remedy="")
    assert (tmp_path / "made").is_dir()
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        with pytest.raises(OSError, match=r"^cache: expected .* got .*; name another$"):
            check_writable(folder, what="cache", remedy="name another")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(OSError, match="not writable"):
        check_writable(tmp_path, what="cache", remedy="")


def test_reads_are_recorded_for_the_stamp(tmp_path, monkeypatch):
    listing, path = tmp_path / "reads", tmp_path / "a.json"
    path.write_text('{"schema": 1}')
    monkeypatch.setenv("ROBUSTBOOK_READS", str(listing))
    read_json(path, remedy="")
    with pytest.raises(DataUnavailableError):
        read_json(tmp_path / "missing.json", remedy="")
    read_json(path, remedy="", note=False)
    read_results("agreement_speed")
    checkpoint_entry("digits-cnn")
    direct, *others = (json.loads(line) for line in listing.read_text().splitlines())
    assert direct == [str(path.resolve())]
    assert {(Path(file).name, *keys) for file, *keys in others} == {
        ("agreement_speed.json", "rows"),
        ("agreement_speed.json", "provenance"),
        ("registry.json", "checkpoints", "digits-cnn-s0"),
    }
