"""The cache of arrays: resumes, and never mixes two configurations."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np
import pytest

from robustbook._store import cache
from robustbook._store.cache import (
    BusyError,
    DeadlineError,
    cache_directory,
    deadline,
    earlier_work,
    without_waiting,
)

#: The code is the same, unless a test is about it.
cached_arrays = partial(cache.cached_arrays, code="robustbook.scores")


@pytest.fixture(autouse=True)
def _cache_of_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))


class Counting:
    """Computes an array, and counts how often."""

    def __init__(self, value=0.0):
        self.value = value
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"x": np.full(3, self.value)}


@pytest.mark.parametrize(
    "other", [{"eps": 0.2}, {"eps": 0.1, "seed": 0}, {"eps": "0.1"}, {"eps": None}]
)
def test_arrays_are_read_back_and_configurations_do_not_mix(other):
    first = cached_arrays({"eps": 0.1}, Counting(1.0))
    found = cached_arrays(other, Counting(2.0))
    assert found["x"][0] == 2.0
    idle = Counting(3.0)
    again = cached_arrays({"eps": 0.1}, idle)
    np.testing.assert_array_equal(first["x"], again["x"])
    assert (again["x"][0], idle.calls) == (1.0, 0)


def test_a_file_under_a_wrong_name_is_not_believed(tmp_path):
    cached_arrays({"eps": 0.1}, Counting(1.0))
    (first,) = tmp_path.iterdir()
    cached_arrays({"eps": 0.2}, Counting(2.0))
    (second,) = set(tmp_path.iterdir()) - {first}
    first.replace(second)
    assert cached_arrays({"eps": 0.2}, Counting(4.0))["x"][0] == 4.0


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and nothing more", None])
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    cached_arrays({"eps": 0.1}, Counting(1.0))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    compute = Counting(1.0)
    for _ in range(2):
        cached_arrays({"eps": 0.1}, compute)
        assert compute.calls == 1


def test_an_interruption_or_an_invalid_configuration_leaves_no_file(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_arrays({"eps": 0.1}, interrupted)
    with pytest.raises(TypeError, match="not JSON serializable"):
        cached_arrays({"eps": {1}}, Counting())
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path.resolve()
    monkeypatch.delenv("ROBUSTBOOK_CACHE")
    assert cache_directory().name == "studies"


def test_a_file_with_any_bit_flipped_does_not_stop_a_study(tmp_path):
    compute = Counting(1.0)
    cached_arrays({"eps": 0.1}, compute)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(len(whole)):
        flipped = bytes([whole[place] ^ (1, 4)[place % 2]])
        path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        cached_arrays({"eps": 0.1}, compute)
    assert compute.calls > 1


def test_an_unusable_cache_is_an_error_before_anything_is_computed(
    tmp_path, monkeypatch
):
    compute = Counting()
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(file))
    with pytest.raises(OSError, match="set ROBUSTBOOK_CACHE to another"):
        cached_arrays({"eps": 0.1}, compute)
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(OSError, match="not writable"):
        cached_arrays({"eps": 0.1}, compute)
    assert compute.calls == 0


class Slow(Counting):
    """Computes until `end` is set."""

    def __init__(self):
        super().__init__(1.0)
        self.started, self.end = Event(), Event()

    def __call__(self):
        self.started.set()
        assert self.end.wait(10)
        return super().__call__()


def test_of_two_processes_one_computes_and_one_waits(tmp_path):
    slow, idle = Slow(), Counting(2.0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cached_arrays, {"eps": 1}, slow)
        assert slow.started.wait(10)
        second = pool.submit(cached_arrays, {"eps": 1}, idle)
        # Who passes by goes on with what nobody computes.
        with without_waiting():
            cached_arrays({"eps": 2}, Counting())
            with pytest.raises(BusyError, match="another process"):
                cached_arrays({"eps": 1}, idle)
        slow.end.set()
        assert second.result()["x"][0] == first.result()["x"][0] == 1.0
    assert (slow.calls, idle.calls) == (1, 0)
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


def test_a_lock_is_released_when_its_process_is_killed():
    program = (
        "import time; from robustbook._store.cache import cached_arrays\n"
        "def compute(): print('at it', flush=True); time.sleep(60)\n"
        "cached_arrays({'eps': 1}, compute, code='robustbook.scores')"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert killed.stdout.readline() == b"at it\n"
    with without_waiting(), pytest.raises(BusyError):
        cached_arrays({"eps": 1}, Counting())
    killed.kill()
    killed.wait()
    killed.stdout.close()
    compute = Counting(3.0)
    with without_waiting():
        assert cached_arrays({"eps": 1}, compute)["x"][0] == 3.0


def test_a_deadline_stops_no_running_computation():
    def ask(eps, compute):
        return cached_arrays({"eps": eps}, compute)["x"][0]

    def in_parts():
        return {"x": np.full(3, ask(2, Counting(2.0)) + ask(3, Counting(3.0)))}

    late = Counting()
    with deadline(0.0, spare=1):
        # What is begun takes the parts that it needs.
        assert ask(1, in_parts) == 5.0
        with pytest.raises(DeadlineError):
            ask(4, late)
        # What is kept is read.
        assert ask(3, late) == 3.0
    assert late.calls == 0
    for end in (None, 1e12):
        with deadline(end):
            ask(end, late)
    assert late.calls == 2


def test_changed_code_computes_again(monkeypatch):
    compute = Counting()
    code = {"robustbook.scores": "a", "robustbook.selection": "b"}
    monkeypatch.setattr(
        cache, "fingerprint", lambda *names: " ".join(code[name] for name in names)
    )

    def ask():
        cached_arrays({"eps": 0.1}, compute)

    ask()
    ask()
    code["robustbook.selection"] = "c"
    ask()
    assert compute.calls == 1
    code["robustbook.scores"] = "c"
    ask()
    assert compute.calls == 2


def test_a_reader_learns_the_time_of_the_earlier_run(monkeypatch):
    clock = iter([0.0, 100.0])
    monkeypatch.setattr(cache, "perf_counter", lambda: next(clock))
    cached_arrays({"eps": 0.1}, Counting())
    with earlier_work() as outer, earlier_work() as inner:
        cached_arrays({"eps": 0.1}, Counting())
    assert (outer.files, outer.seconds) == (1, 100.0) == (inner.files, inner.seconds)
    with earlier_work() as nothing:
        pass
    assert (nothing.files, nothing.seconds, nothing.ended) == (0, 0.0, None)
    # The results are as old as the first of them.
    outer.times["later"] = (1.0, "2999-01-01")
    assert outer.ended == inner.ended < "2999"


def test_time_of_earlier_work_counts_once_for_computations_that_read_it(monkeypatch):
    def compute():
        return cached_arrays({"part": 1}, Counting())

    # The first of two files computes the part that the second one reads.
    clock = iter([0.0, 1.0, 101.0, 103.0, 0.0, 7.0])
    monkeypatch.setattr(cache, "perf_counter", lambda: next(clock))
    with earlier_work() as present:
        for number in range(2):
            cached_arrays({"whole": number}, compute)
    assert (present.files, present.seconds, present.ended) == (0, 0.0, None)
    for number, seconds in enumerate((103.0, 107.0)):
        with earlier_work() as earlier:
            cached_arrays({"whole": number}, Counting())
        assert (earlier.files, earlier.seconds) == (2, seconds)
    with earlier_work() as earlier:
        for number in (0, 1, 0):
            cached_arrays({"whole": number}, Counting())
    assert (earlier.files, earlier.seconds) == (3, 110.0)


def test_a_full_disk_does_not_lose_the_result(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.warns(RuntimeWarning, match="could not be written .No space left"):
        arrays = cached_arrays({"eps": 0.1}, Counting(2.0))
    assert arrays["x"][0] == 2.0
    assert list(tmp_path.iterdir()) == []
