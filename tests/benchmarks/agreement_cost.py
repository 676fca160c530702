"""The cost of a certified optimum, in bare passes of exponentials: `make bench`.

A bare pass takes one exponential in float64 for each class, sample and view, and does
nothing else: no measure of this kind can cost less. The rival is full-batch Adam, as
the papers optimize. The last column is an estimate of the accuracy from the same pairs,
its calibration on as many labeled samples included. All times are the shortest of a
few, in one run on one machine.
"""

import argparse
import time
from collections.abc import Callable

import torch

from robustbook.agreement import (
    adam_agreement,
    paired_accuracy,
    posterior_agreement,
)
from robustbook.studies.agreement_speed import ordinary_problem

SIZES = ((1000, 10), (10_000, 10), (100_000, 10), (10_000, 100), (50_000, 1000))
BUFFER_ENTRIES = 2**16


def shortest(action: Callable[[], object], repeat: int) -> float:
    """Return the shortest CPU time of a few runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def bare_pass(views: list[torch.Tensor]) -> None:
    """Take one exponential of every entry, chunk by chunk."""
    rows = max(1, BUFFER_ENTRIES // views[0].shape[1])
    room = torch.empty(rows, views[0].shape[1], dtype=torch.float64)
    for view in views:
        for chunk in view.split(rows):
            torch.exp(chunk, out=room[: len(chunk)])


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    header = ("samples", "classes", "bare pass", "ours", "passes", "evaluations")
    header += ("Adam", "estimate")
    print("".join(f"{name:>13}" for name in header))
    for samples, classes in SIZES:
        pair = [view.double() for view in ordinary_problem(samples, classes, 0)]
        floor = shortest(lambda pair=pair: bare_pass(pair), options.repeat)
        ours = shortest(lambda pair=pair: posterior_agreement(*pair), options.repeat)
        adam = shortest(lambda pair=pair: adam_agreement(*pair), 1)
        labels = pair[0].softmax(1).multinomial(1)[:, 0]
        source = pair[0], labels
        estimate = shortest(
            lambda pair=pair, source=source: paired_accuracy(
                *pair, calibrated_on=source
            ),
            1,
        )
        found = posterior_agreement(*pair)
        cells = (
            f"{samples}",
            f"{classes}",
            f"{1e3 * floor:.2f} ms",
            f"{1e3 * ours:.1f} ms",
            f"{ours / floor:.1f}",
            f"{found.evaluations}",
            f"{adam / floor:.0f} passes",
            f"{estimate / floor:.0f} passes",
        )
        print("".join(f"{cell:>13}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
