"""Certificates on thousands of hostile problems, against grids and forty digits.

`make fuzz` runs it. It can be stopped and goes on where it was; at the end, and with
``--table`` at any time, it prints how many evaluations each family took, and what
failed:

    python tests/agreement/fuzz.py --problems 100000 --jobs 2 --rows build/fuzz.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import mpmath
import numpy as np
import torch
from hostile import FAMILIES, Pair, problem

from robustbook.agreement import agreement_search

TOL = 1e-9
#: One problem in so many is checked with forty digits.
DIGITS_EVERY = 500
#: Points of the grid over all scales; each interval of the certificate has one more.
GRID = 60
#: Problems between two writes.
BLOCK = 64
COLUMNS = ("family", "seed", "evaluations", "seconds", "failure")


def check(family: str, seed: int) -> tuple[str, int, int, float, str]:
    """Solve one problem and look for anything above its bounds."""
    pair = problem(family, seed)
    start = time.process_time()
    try:
        found = agreement_search(*pair, tol=TOL)
    except ArithmeticError as error:
        return family, seed, -1, time.process_time() - start, str(error)[:200]
    seconds = time.process_time() - start
    failure = _above(pair, found, np.random.default_rng(seed))
    if not failure and seed % DIGITS_EVERY == 0:
        failure = _digits(pair, found)
    return family, seed, found.evaluations, seconds, failure


def _above(pair: Pair, found, rng: np.random.Generator) -> str:
    """A point of J above the bound of its interval, or above the result."""
    wide = [np.ptp(view.astype(float), axis=1) for view in pair]
    live = np.concatenate(wide)
    live = live[live > 0]
    if not len(live):
        return "" if found.value == 0.0 else "a constant problem that is not 0"
    low, high = 1e-3 / live.max(), 1e3 / live.min()
    betas = np.geomspace(low, high, GRID)
    bounds = np.full(GRID, found.upper_bound)
    if found.intervals:
        left, right, bound = np.array(found.intervals).T
        right = np.minimum(right, np.maximum(1e3 * left, high))
        inside = left + (right - left) * rng.random(len(left))
        betas, bounds = np.append(betas, inside), np.append(bounds, bound)
    for place in (_curve(pair, betas) > bounds).nonzero()[0]:
        # Rounding of a plain sum, or a bound that is wrong? Forty digits know.
        excess = _exact(pair, betas[place]) - bounds[place]
        if excess > 0:
            return f"J({betas[place]!r}) exceeds its bound by {float(excess):.1e}"
    if found.upper_bound - found.value > TOL:
        return f"gap {found.upper_bound - found.value:.1e}"
    return ""


def _curve(pair: Pair, betas: np.ndarray) -> np.ndarray:
    """J at all betas at once, from its definition."""
    scale = torch.from_numpy(betas)[:, None, None]
    one, two = (torch.from_numpy(view.astype(float)) for view in pair)
    one, two = (scale * (view - view.amax(1, keepdim=True)) for view in (one, two))
    logs = [x.logsumexp(2) for x in (one + two, one, two)]
    return (math.log(pair[0].shape[1]) + logs[0] - logs[1] - logs[2]).mean(1).numpy()


def _digits(pair: Pair, found) -> str:
    """The value at the optimum and the bound nearby, with forty digits."""
    if math.isinf(found.beta):
        return ""
    for factor in (1.0, 0.97, 1.03, 0.5, 2.0):
        exact = _exact(pair, found.beta * factor)
        if factor == 1.0 and abs(exact - found.value) > 1e-11:
            return f"value off by {float(exact - found.value):.1e}"
        if exact > found.upper_bound:
            return f"J with forty digits exceeds the bound at {factor} beta"
    return ""


def _exact(pair: Pair, beta: float) -> mpmath.mpf:
    """J with forty digits."""
    with mpmath.workdps(40):
        scale, total = mpmath.mpf(beta), mpmath.mpf(0)
        for one, two in zip(*(view.astype(float) for view in pair), strict=True):
            first, second = (
                [
                    mpmath.exp(scale * (mpmath.mpf(x) - mpmath.mpf(max(row))))
                    for x in row
                ]
                for row in (one.tolist(), two.tolist())
            )
            joint = mpmath.fdot(first, second) * len(first)
            total += mpmath.log(joint / (mpmath.fsum(first) * mpmath.fsum(second)))
        return total / len(pair[0])


def _block(tasks: list[tuple[str, int]]) -> list[tuple[str, int, int, float, str]]:
    torch.set_num_threads(1)
    # Large logits overflow on purpose.
    warnings.simplefilter("ignore")
    return [check(*task) for task in tasks]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.exists():
        with path.open(newline="") as file:
            # A row that was cut short by an interruption is done again.
            yield from (
                row for row in csv.DictReader(file) if row["failure"] is not None
            )


def table(path: Path) -> list[dict[str, str | int]]:
    """Evaluations by family: median, 99 %, most, above 40, failures."""
    lines: list[dict[str, str | int]] = []
    rows = list(_rows(path))
    for family in [*FAMILIES, "all"]:
        own = [row for row in rows if family in ("all", row["family"])]
        if not own:
            continue
        counts = np.array([int(row["evaluations"]) for row in own])
        middle, high = np.percentile(counts, [50, 99])
        lines.append({
            "row": len(lines) + 1, "family": family.replace("_", " "),
            "problems": len(own), "median": round(middle), "high": round(high),
            "most": int(counts.max()), "above_40": int((counts > 40).sum()),
            "failures": sum(bool(row["failure"]) for row in own),
        })  # fmt: skip
    return lines


def store(lines: list[dict[str, str | int]], path: Path) -> None:
    """Write the table where the book reads it."""
    about = {
        "schema": 1,
        "title": "Evaluations of certified searches on hostile problems",
        "document": "This book",
        "place": "Table that `make fuzz` prints",
        "notes": f"Families of tests/agreement/hostile.py, tol = {TOL:g}; high is the "
        "99 % quantile. A failure is a CertificateError, a point of J above its bound, "
        "or a gap above tol.",
    }
    path.write_text(json.dumps({**about, "rows": lines}, indent=1) + "\n", "utf-8")


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--rows", type=Path, default=Path("build/fuzz.csv"))
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    parser.add_argument("--store", type=Path, help="where the table goes, as JSON")
    options = parser.parse_args()
    path = options.rows
    if not options.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = {(row["family"], int(row["seed"])) for row in _rows(path)}
        seeds = range(math.ceil(options.problems / len(FAMILIES)))
        tasks = [(family, seed) for seed in seeds for family in FAMILIES]
        left = [task for task in tasks if task not in done]
        blocks = [left[place : place + BLOCK] for place in range(0, len(left), BLOCK)]
        fresh = not path.exists()
        with (
            path.open("a", newline="") as file,
            ProcessPoolExecutor(options.jobs) as pool,
        ):
            writer = csv.writer(file)
            if fresh:
                writer.writerow(COLUMNS)
            for rows in pool.map(_block, blocks):
                writer.writerows(rows)
                file.flush()
    lines = table(path)
    for line in [list(lines[0]), *(list(line.values()) for line in lines)]:
        print(*(f"{value!s:>14}" for value in line))
    if options.store:
        store(lines, options.store)
    failures = [row for row in _rows(path) if row["failure"]]
    for row in failures[:20]:
        print(f"{row['family']} {row['seed']}: {row['failure']}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
