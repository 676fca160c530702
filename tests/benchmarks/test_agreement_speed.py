"""Posterior agreement against the papers' procedure, as ratios within one run.

Run as tests these check that the pieces work; `make bench` times them and prints
the ratios. Nothing here asserts a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from robustbook.agreement import adam_agreement, posterior_agreement
from robustbook.studies import STUDIES
from robustbook.studies._run import one_thread
from robustbook.studies.agreement_speed import (
    MEASURED_EPOCHS,
    PAPER_BATCH,
    PAPER_EPOCHS,
    adam_row,
    exact_row,
    ordinary_problem,
    papers_row,
)


@pytest.fixture
def timed(benchmark) -> Iterator[bool]:
    """Whether this is a timing run (`make bench`) or a quick check; one thread."""
    with one_thread():
        yield benchmark.enabled


def test_exact_against_the_papers_procedure(timed, benchmark, capsys):
    samples = 10_000 if timed else 1000
    benchmark(posterior_agreement, *ordinary_problem(samples, 10))
    exact = exact_row(samples, 10, repeat=30 if timed else 1)
    assert exact["gap"] <= 1e-9
    assert exact["evaluations"] <= 40
    full = adam_row(
        samples, 10, epochs=500, measured=500 if timed else 5, batch_size=None
    )
    batches = adam_row(
        samples,
        10,
        epochs=PAPER_EPOCHS,
        measured=MEASURED_EPOCHS if timed else 1,
        batch_size=PAPER_BATCH,
    )
    with capsys.disabled():
        print(
            f"\nN={samples}, K=10: exact {exact['seconds'] * 1e3:.1f} ms, "
            f"{exact['evaluations']} evaluations, gap {exact['gap']:.1e}"
        )
        papers = papers_row(
            samples, 10, epochs=PAPER_EPOCHS, measured=MEASURED_EPOCHS if timed else 1
        )
        for row in (full, batches, papers):
            print(
                f"  {row['what']}, {row['epochs']} epochs (extrapolated from "
                f"{row['measured_epochs']}): {row['seconds']:.2f} s, "
                f"{row['seconds'] / exact['seconds']:.0f} times as long"
            )


@pytest.mark.slow
def test_a_thousand_classes(timed, benchmark, capsys):
    samples = 50_000 if timed else 500
    row = benchmark.pedantic(
        exact_row, args=(samples, 1000), kwargs={"repeat": 1}, rounds=1
    )
    assert row["gap"] <= 1e-9
    with capsys.disabled():
        print(
            f"\nN={samples}, K=1000: {row['seconds']:.1f} s, {row['evaluations']} "
            f"evaluations, gap {row['gap']:.1e}"
        )


def test_the_comparison_is_fair(benchmark):
    """Adam does reach the same value on this problem: only slower."""
    pair = ordinary_problem(1000, 10)
    exact = posterior_agreement(*pair)
    trace = benchmark.pedantic(adam_agreement, args=pair, rounds=1)
    assert trace.best_pa == pytest.approx(exact.pa, abs=1e-4)


def test_the_experiment_returns_its_rows():
    rows = STUDIES["agreement_speed"].compute(profile="quick").rows
    assert {row["what"] for row in rows} == {
        "exact", "arithmetic", "adam-full-batch", "adam-minibatches",
        "papers-procedure",
    }  # fmt: skip
