"""Studies over processes and clusters: equal rows, nothing lost, nothing done twice."""

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from robustbook._engine import Engine, connect, run_on_worker
from robustbook._store import cache
from robustbook._store.cache import cached_arrays
from robustbook._store.provenance import fingerprint
from robustbook.studies import Study, _compute, run_study

from ..conftest import RUN_SEED


def test_engines_have_names(monkeypatch):
    assert Engine.named("local:3") == Engine(processes=3)
    assert Engine.named("local").processes == len(os.sched_getaffinity(0))
    assert Engine.named("dask://a:1").scheduler == "tcp://a:1"
    assert Engine.named("tls://a:1").scheduler == "tls://a:1"
    for name in ("", "local:0", "local:", "local:x", "dask:a", "spark://a:1"):
        with pytest.raises(ValueError, match="engine: expected local, local:N"):
            Engine.named(name)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .robustbook\[cl"):
        connect("tcp://a:1")


def test_results_keep_their_order_and_a_dead_process_is_an_error():
    engine = Engine(processes=2)
    calls = [partial(time.sleep, 0.2), int, float]
    assert [*engine.results(calls, title="toy")] == [None, 0, 0.0]
    with pytest.raises(ValueError, match="invalid literal"):
        [*engine.results([partial(int, "x"), int], title="toy")]
    kill = partial(os._exit, 1)
    with pytest.raises(OSError, match="the same command continues"):
        [*engine.results([int, kill], title="toy")]


def test_an_interrupted_run_drops_its_calls_silently(monkeypatch):
    thread_errors = []
    monkeypatch.setattr("threading.excepthook", thread_errors.append)
    calls = [int, *([partial(time.sleep, 60)] * 12)]
    results = Engine(processes=2).results(calls, title="toy")
    assert next(results) == 0
    # Where tests run in processes, they are started without Python's handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.5, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
    finally:
        signal.signal(signal.SIGINT, before)
    assert thread_errors == []


def test_workers_with_another_cache_or_other_code_are_refused(tmp_path):
    with pytest.raises(OSError, match="set ROBUSTBOOK_CACHE, where the run is started"):
        run_on_worker(tmp_path / "elsewhere" / "cache", tmp_path, int)
    with pytest.raises(RuntimeError, match="start the workers anew"):
        _compute._with_code("robustbook.scores", "0" * 64, int)


@pytest.fixture
def done(tmp_path, monkeypatch):
    """The parts that a study of five has computed."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    done = []

    def compute(part):
        time.sleep(0.02)
        done.append(part)
        return {"x": np.zeros(1)}

    def measure(_, part):
        cached_arrays({"part": part}, partial(compute, part), code="robustbook.scores")

    module = "robustbook.studies.agreement_speed"
    monkeypatch.setattr(f"{module}.measure", measure, raising=False)
    monkeypatch.setattr(f"{module}.parts", lambda _: zip("abcde"), raising=False)
    return done


def test_two_runs_on_one_cache_do_no_part_twice(done):
    study = Study("toy", "agreement_speed")
    # Python 3.11 cannot parse in two threads at once, as two processes do.
    fingerprint("robustbook.scores", study.code)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(_compute._compute_parts, study, None, Engine()) for _ in "ab"
        ]
    for run in runs:
        run.result()
    assert sorted(done) == [*"abcde"]


def test_an_engine_starts_no_part_after_the_deadline(done, monkeypatch):
    for module in (_compute, cache):
        monkeypatch.setattr(module, "time", lambda: float(len(done)))
    for end in (3.0, 3.0, 4.0):
        _compute._compute_parts(Study("toy", "agreement_speed"), None, Engine(), end)
    assert done == ["a", "b", "c", "d"]


@pytest.fixture
def cluster(tmp_path):
    """The address of a Dask scheduler, and the processes of its two workers."""
    file = tmp_path / "scheduler.json"
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    started = []

    def start(*words):
        log = (tmp_path / "log").open("a")
        command = [sys.executable, "-m", "dask", *words, *shared]
        started.append(subprocess.Popen(command, stdout=log, stderr=log))
        log.close()
        return started[-1]

    start("scheduler", "--host", "127.0.0.1", "--port", "0")
    workers = [start("worker", "--nthreads", "1", "--no-nanny") for _ in "ab"]
    from distributed import Client

    with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        address = client.scheduler.address
    yield address, workers
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_study_on_a_cluster_survives_a_worker(cluster, quick, tmp_path, monkeypatch):
    address, (doomed, _) = cluster
    cache = tmp_path / "cache"
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(cache))
    ask = partial(
        run_study, "attack_convergence", profile="quick", seed=RUN_SEED, device="cpu",
        engine=address, directory=tmp_path,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(ask)
        while not any(cache.glob("*.npz")):
            assert not run.done(), run.exception()
            time.sleep(0.01)
        doomed.kill()
        results = run.result()
    assert results.rows == quick("attack_convergence").rows
    kinds = Counter(path.suffix for path in cache.iterdir())
    # A process that is killed may leave half a file or, where it has just written the
    # whole of it, the file of a lock that the system has taken back.
    assert kinds.keys() <= {".npz", ".writing", ".lock"}
    assert all(lock.with_suffix(".npz").is_file() for lock in cache.glob("*.lock"))
    # For each row the attack, and the row.
    assert kinds[".npz"] == 2 * len(results.rows)
    assert results.provenance["from_cache"]["files"] == kinds[".npz"]
