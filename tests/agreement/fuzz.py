"""Certificates on thousands of hostile problems, against grids and fifty digits.

`make fuzz` runs it. It can be stopped and goes on where it was; at the end, and with
``--problems 0 --streams 0`` at any time, it prints how many evaluations each family
took, and what failed:

    python tests/agreement/fuzz.py --problems 100000 --jobs 2 --rows build/fuzz.csv
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from hostile import FAMILIES, Pair, many_views, problem
from random_views import exact_kernel

from robustbook.agreement import posterior_agreement
from robustbook.agreement.solver import agreement_search

TOL = 1e-9
#: One problem in so many is checked with fifty digits.
DIGITS_EVERY = 500
#: Points of the grid over all scales; each interval of the certificate has one more.
GRID = 60
#: Problems between two writes.
BLOCK = 64
#: What is known with fifty digits.
EXACT = 1e-45
#: The family of problems of many views that are read as streams, and in memory.
STREAMED = "streamed"
COLUMNS = ("family", "seed", "evaluations", "seconds", "failure")


def check(family: str, seed: int) -> tuple[str, int, int, float, str]:
    """Solve one problem and look for anything above its bounds."""
    if family == STREAMED:
        return check_stream(seed)
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
    return family, seed, found.evaluations, seconds, failure or "none"


def check_stream(seed: int) -> tuple[str, int, int, float, str]:
    """Solve a problem of many views in memory and from small chunks."""
    views, prior, size = many_views(seed)
    chunks = [
        tuple(view[start : start + size] for view in views)
        for start in range(0, len(views[0]), size)
    ]
    start, failure = time.process_time(), "none"
    try:
        whole = posterior_agreement(*views, prior=prior, tol=TOL)
        found = posterior_agreement(chunks, prior=prior, tol=TOL)
    except ArithmeticError as error:
        return STREAMED, seed, -1, time.process_time() - start, str(error)[:200]
    if abs(found.pa - whole.pa) > TOL or max(found.gap, whole.gap) > TOL:
        failure = f"{whole.pa!r} in memory, {found.pa!r} as a stream"
    return STREAMED, seed, found.evaluations, time.process_time() - start, failure


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
        # Rounding of a plain sum, or a bound that is wrong? Fifty digits know.
        excess = exact_kernel(_views(pair), betas[place]) - bounds[place]
        if excess > EXACT:
            return f"J({betas[place]!r}) exceeds its bound by {float(excess):.1e}"
    if found.upper_bound - found.value > TOL:
        return f"gap {found.upper_bound - found.value:.1e}"
    return ""


def _curve(pair: Pair, betas: np.ndarray) -> np.ndarray:
    """J at all betas at once, from its definition."""
    scale = torch.from_numpy(betas)[:, None, None]
    one, two = (scale * (x - x.amax(1, keepdim=True)) for x in _views(pair))
    logs = [x.logsumexp(2) for x in (one + two, one, two)]
    return (math.log(pair[0].shape[1]) + logs[0] - logs[1] - logs[2]).mean(1).numpy()


def _views(pair: Pair) -> list[torch.Tensor]:
    return [torch.from_numpy(view.astype(float)) for view in pair]


def _digits(pair: Pair, found) -> str:
    """The value at the optimum and the bound nearby, with fifty digits."""
    if math.isinf(found.beta):
        return ""
    for factor in (1.0, 0.97, 1.03, 0.5, 2.0):
        exact = exact_kernel(_views(pair), found.beta * factor)
        if factor == 1.0 and abs(exact - found.value) > 1e-11:
            return f"value off by {float(exact - found.value):.1e}"
        if exact - found.upper_bound > EXACT:
            return f"J with fifty digits exceeds the bound at {factor} beta"
    return ""


def _block(tasks: list[tuple[str, int]]) -> list[tuple[str, int, int, float, str]]:
    torch.set_num_threads(1)
    # Large logits overflow on purpose.
    warnings.simplefilter("ignore")
    return [check(*task) for task in tasks]


def _rows(path: Path) -> pd.DataFrame:
    """What is done; a row that was cut short by an interruption is done again."""
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path).dropna()


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Evaluations by family: median, 99 %, most, above 40, failures."""
    order = [name for name in FAMILIES if name in {*rows.family}]
    both = pd.concat([rows, rows.assign(family="all")]).astype({"evaluations": int})
    counts = both.groupby("family").evaluations
    lines = pd.DataFrame({
        "problems": counts.size(), "median": counts.median().round().astype(int),
        "high": counts.quantile(0.99).round().astype(int), "most": counts.max(),
        "above_40": counts.agg(lambda own: (own > 40).sum()),
        "failures": (both.failure != "none").groupby(both.family).sum(),
    })  # fmt: skip
    lines = lines.loc[[*order, "all"]].reset_index()
    lines.insert(0, "row", lines.index + 1)
    lines.family = lines.family.str.replace("_", " ")
    return lines


def store(lines: pd.DataFrame, path: Path) -> None:
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
    rows = json.loads(lines.to_json(orient="records"))
    path.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--rows", type=Path, default=Path("build/fuzz.csv"))
    parser.add_argument("--store", type=Path, help="where the table goes, as JSON")
    options = parser.parse_args()
    path = options.rows
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = _rows(path)
    done = {*zip(rows.family, rows.seed.astype(int), strict=True)}
    seeds = range(math.ceil(options.problems / len(FAMILIES)))
    tasks = [(family, seed) for seed in seeds for family in FAMILIES]
    tasks += [(STREAMED, seed) for seed in range(options.streams)]
    left = [task for task in tasks if task not in done]
    blocks = [left[place : place + BLOCK] for place in range(0, len(left), BLOCK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for block in pool.map(_block, blocks):
            new = pd.DataFrame(block, columns=COLUMNS)
            new.to_csv(path, mode="a", header=not path.exists(), index=False)
    rows = _rows(path)
    streamed = rows.family == STREAMED
    lines = table(rows[~streamed]) if not streamed.all() else rows[:0]
    print(lines.to_string(index=False))
    print(f"{streamed.sum()} problems of many views in memory and as streams")
    if options.store:
        store(lines, options.store)
    failures = rows[rows.failure != "none"]
    if len(failures):
        print(failures.head(20).to_string(index=False), file=sys.stderr)
    return int(len(failures) > 0)


if __name__ == "__main__":
    sys.exit(main())
