"""Samples over processes: the same numbers as in one, the same error on all."""

import json
import subprocess
import sys

import pytest

#: Starts 8 processes that share one import, and runs a function of each of them.
PRELUDE = """
import json, math, multiprocessing, os, sys, tempfile, time, datetime
import torch
import torch.distributed as dist
from robustbook.agreement import (
    PosteriorAgreement, agreement_curve, paired_accuracy, posterior_agreement
)
from robustbook.agreement.solver import Kernel

def noisy(seed, views, samples, classes):
    generator = torch.Generator().manual_seed(seed)
    signal, *others = torch.randn(views + 1, samples, classes, generator=generator)
    return [signal + other for other in others]

def shard(views, rank, ends):
    return [view[ends[rank] : ends[rank + 1]] for view in views]

def said(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def start(rank, size, store, queue, task):
    dist.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=size,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )
    queue.put((rank, task(rank, size)))
    if task is not die:
        dist.barrier()
        dist.destroy_process_group()

def everywhere(size, task, expected=None):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=start, args=(r, size, folder + "/s", queue, task))
            for r in range(size)
        ]
        for worker in workers:
            worker.start()
        told = dict(queue.get(timeout=200) for _ in range(expected or size))
        for rank, worker in enumerate(workers):
            if rank not in told:
                worker.kill()
            worker.join()
    return [told.get(rank) for rank in range(size)]

die = None
TIMEOUT = 20
"""


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


EQUAL = """
from robustbook.agreement.solver import _problem
_problem.KEPT_ENTRIES, _problem.CHUNK_ENTRIES["cpu"] = 2**17, 2**14
PROBLEMS = [
    # More entries than are kept in float64, in one shard or in all.
    ("large", noisy(0, 2, 6000, 50), None),
    ("three views", noisy(1, 3, 500, 5), None),
    ("files", noisy(5, 2, 700, 6), None),
    ("prior", noisy(2, 2, 400, 3), [0.5, 0.3, 0.2]),
    ("all agree", [noisy(3, 2, 90, 4)[0]] * 2, None),
    ("constant rows", [torch.cat([v, torch.zeros(40, 4)]) for v in noisy(4, 2, 90, 4)],
     None),
]
CUTS = {
    1: [[0, 1]],
    2: [[0, 0.4, 1], [0, 0, 1], [0, 1, 1]],
    4: [[0, 0.1, 0.1, 0.7, 1]], 8: [[0, 0, 0.3, 0.35, 0.35, 0.5, 0.9, 1, 1]],
}

def from_files(own, rank):
    # The shard as mapped rows of a file; on the second rank, as chunks.
    import numpy as np
    from robustbook.agreement.solver import _problem, _sources
    _sources.LOADED_ENTRIES, _problem.STREAMED_BATCH = 100, 1
    if rank == 1:
        return [lambda: zip(*(view.split(70) for view in own))]
    files = []
    for v, view in enumerate(own):
        padded = torch.cat([torch.zeros(5, view.shape[1]), view]).numpy()
        np.save(f"{FOLDER}/{rank}-{v}.npy", padded)
        files.append(np.load(f"{FOLDER}/{rank}-{v}.npy", mmap_mode="r")[5:])
    return files

def numbers(views, **options):
    result = posterior_agreement(*views, tol=1e-8, **options)
    curve = agreement_curve(*views, [0.3, 2.0], **options)
    return [result.num_samples, result.pa, result.upper_bound, result.beta,
            result.mismatch, result.hard_part, result.standard_error, *curve.tolist(),
            result.evaluations, float(result.per_sample.sum())]

def task(rank, size):
    told = {}
    for size in CUTS:
        group = dist.new_group(list(range(size)))
        if rank >= size:
            continue
        for cut in CUTS[size]:
            # Eight ranks take half of the time: the first problems will do.
            for name, views, prior in PROBLEMS[: 3 if size == 8 else None]:
                ends = [round(share * len(views[0])) for share in cut]
                own = shard(views, rank, ends)
                if name == "files":
                    own = from_files(own, rank)
                told[f"{cut} {name}"] = numbers(own, prior=prior, group=group)
    return told

with tempfile.TemporaryDirectory() as FOLDER:
    told = everywhere(8, task)
alone = {name: numbers(views, prior=prior) for name, views, prior in PROBLEMS}
print(json.dumps([alone, told]))
"""


def test_shards_give_what_one_process_does():
    alone, told = run(EQUAL)
    assert len(told[0]) == 5 * len(alone) + 3
    for case, (*numbers, evaluations, _) in told[0].items():
        name = case.partition("] ")[2]
        (count, *expected, plain, whole), sums = alone[name], 0.0
        for rank in told:
            if case in rank:
                *same, own_sum = rank[case]
                assert same == [*numbers, evaluations], "the same bits on all ranks"
                sums += own_sum
        assert sums == pytest.approx(whole, abs=1e-12 * count)
        # Ranks keep other samples than one process, so a survey of a large problem
        # may evaluate elsewhere.
        assert abs(evaluations - plain) <= 2
        assert numbers == pytest.approx([count, *expected], rel=1e-7, abs=1e-12)
        _, pa, upper, *_, start, stop = numbers
        exact = expected[0], *expected[-2:]
        assert (pa, start, stop) == pytest.approx(exact, rel=0, abs=1e-12)
        # It has an allowance for rounding, which depends on the size of chunks.
        close = 1e-8 if name == "files" else 1e-11
        assert upper == pytest.approx(expected[1], abs=close)
        assert 0 <= upper - pa <= 1e-8


ERRORS = """
source = noisy(9, 2, 90, 4)[0]
SOURCE = source, source.argmax(1).where(torch.arange(90) % 3 > 0, 3)

def task(rank, size):
    clean, shifted = (view.double() for view in noisy(rank, 2, 20, 4))
    group = dist.group.WORLD
    spoiled, wide = clean.clone(), torch.randn(20, 5)
    spoiled[3, 1] = math.nan
    # In the third pass over the data, as a failing disk would.
    def stop(kernel, *_):
        if rank == 1 and kernel.passes == 3:
            raise OSError("the disk is gone")
        return fill(kernel, *_)
    fill = Kernel.power_sums
    def of(first, second, **options):
        return said(lambda: posterior_agreement(first, second, **options, group=group))
    third = rank == 2
    told = {
        "NaN": of(spoiled if third else clean, shifted),
        "shape": of(clean[:-1] if third else clean, shifted),
        "classes": of(*[wide if third else clean] * 2),
        "type": of(clean.bool() if third else clean, shifted),
        "tol": of(clean, shifted, tol=-1.0 if third else 1e-9),
        "other tol": of(clean, shifted, tol=1e-6 if third else 1e-9),
        "prior": of(clean, shifted, prior=[0.1, 0.2, 0.3, 0.4] if third else None),
        "nothing": of(clean[:0], shifted[:0]),
        "tiny tol": of(clean, shifted, tol=1e-16),
    }
    Kernel.power_sums = stop
    told["disk"] = of(clean, shifted)
    Kernel.power_sums = fill
    told["afterwards"] = posterior_agreement(clean, shifted, group=group).pa
    metric = PosteriorAgreement()
    # Shards may come in different precisions.
    metric.update(*(v.float() if rank == 1 else v for v in (clean, shifted)))
    told["metric"] = float(metric.compute()["pa"])
    told["counted"] = metric.agreement().num_samples
    estimating = PosteriorAgreement(calibrated_on=SOURCE)
    estimating.update(*(view[20 * third :] for view in (clean, shifted)))
    told["accuracy"] = float(estimating.compute()["paired_accuracy"])
    metric = PosteriorAgreement(num_views=3)
    if rank != 1:
        metric.update(clean, shifted, clean)
        metric.update(clean[:2], shifted[:2], shifted[:2])
    else:
        metric.update(clean[:0], shifted[:0], clean[:0])
    gather, most = dist.all_gather_object, []
    def counted(answers, own, group):
        # Numbers of an evaluation are a list.
        most.append(len(own[1]) if isinstance(own[1], list) else 0)
        return gather(answers, own, group)
    dist.all_gather_object = counted
    told["three"] = float(metric.compute()["pa"])
    dist.all_gather_object = gather
    told["largest message"] = max(most)
    told["kept"] = [len(metric.logits), metric._is_synced]
    return told

told = everywhere(3, task)
problem = [torch.cat(parts) for parts in zip(*(noisy(r, 2, 20, 4) for r in range(3)))]
clean, shifted = (part.double() for part in problem)
some = torch.cat([torch.arange(0, 20), torch.arange(40, 60)])
more = torch.tensor([0, 1, 40, 41])
three = [
    torch.cat([view[some], other[more]])
    for view, other in ((clean, clean), (shifted, shifted), (clean, shifted))
]
accuracy = paired_accuracy(clean[:40], shifted[:40], calibrated_on=SOURCE)
print(json.dumps([told, posterior_agreement(clean, shifted).pa,
                  posterior_agreement(*three).pa, accuracy.value]))
"""


def test_what_is_wrong_on_one_rank_is_the_same_clear_error_on_all():
    told, pa, three, accuracy = run(ERRORS)
    assert told[0] == told[1] | {"kept": [2, False]} == told[2]
    errors = told[0]
    expected = {
        "NaN": r"ValueError: rank 2: logits: expected finite numbers, got NaN at index "
        r"(3, 1)",
        "shape": "ValueError: rank 2: shifted_logits: expected the shape of logits",
        "classes": "ValueError: logits: expected the same number of classes on every "
        "rank, got 4 on rank 0 and 5 on rank 2",
        "type": "TypeError: rank 2: logits: expected floating-point",
        "tol": "ValueError: rank 2: tol: expected a positive",
        "other tol": "ValueError: settings: expected the same tol",
        "prior": "ValueError: prior: expected the same prior on every rank, got None",
        "nothing": "ValueError: logits: expected at least one sample",
        "tiny tol": "CertificateError: posterior agreement: the gap",
        "disk": "OSError: rank 1: the disk is gone",
    }
    for name, message in expected.items():
        assert errors[name].startswith(message), name
    # The group is as good as before.
    assert errors["afterwards"] == pytest.approx(pa, abs=1e-12)
    assert errors["metric"] == pytest.approx(pa, abs=1e-12)
    assert errors["counted"] == 60
    # Of ranks 0 and 1: the third has no samples.
    assert errors["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert errors["three"] == pytest.approx(three, abs=1e-12)
    # No logits: of three views and their sum three numbers an evaluation.
    assert 12 <= errors["largest message"] <= 16


DEATH = """
def die(rank, size):
    views = noisy(rank, 2, 50, 4)
    fill = Kernel.power_sums
    def stop(kernel, *arguments):
        if rank == 1 and kernel.passes == 3:
            if HOW == "ends":
                os._exit(1)
            time.sleep(60)
            os._exit(1)
        return fill(kernel, *arguments)
    Kernel.power_sums = stop
    began = time.monotonic()
    message = said(lambda: posterior_agreement(*views, group=dist.group.WORLD))
    return [message, time.monotonic() - began]

print(json.dumps(everywhere(3, die, expected=2)))
"""


@pytest.mark.parametrize(("how", "timeout"), [("ends", 20), ("hangs", 5)])
def test_a_rank_that_is_gone_is_an_error_of_the_others_in_bounded_time(how, timeout):
    told = run(f"HOW, TIMEOUT = {how!r}, {timeout}\n" + DEATH)
    assert told[1] is None
    for rank in (0, 2):
        message, seconds = told[rank]
        assert message.startswith("ConnectionError: group: expected all 3 ranks")
        # Before the timeout of the group, or soon after it.
        assert seconds < 20
