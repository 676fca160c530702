"""Posterior agreement against the papers' procedure, as ratios within one run.

Run as tests these check that the pieces work; `make bench` times them and prints
the ratios. Nothing here asserts a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from robustbook.agreement import posterior_agreement
from robustbook.studies import agreement_speed as study
from robustbook.studies._run import one_thread
from robustbook.studies.agreement_speed import ordinary_problem


@pytest.fixture
def timed(benchmark) -> Iterator[bool]:
    """Whether this is a timing run (`make bench`) or a quick check; one thread."""
    with one_thread():
        yield benchmark.enabled


def test_exact_against_the_papers_procedure(timed, benchmark, capsys):
    samples = 10_000 if timed else 1000
    pair = ordinary_problem(samples, 10)
    benchmark(posterior_agreement, *pair)
    exact = study.exact(pair, repeat=30 if timed else 1)
    assert exact["gap"] <= 1e-9
    assert exact["evaluations"] <= 40
    batched = {"measured": 5 if timed else 1}
    rows = {
        "full batch": study.adam(pair, measured=500 if timed else 5),
        "batches": study.adam(pair, **batched, batch_size=study.PAPER_BATCH),
        "papers": study.papers(pair, **batched),
    }
    with capsys.disabled():
        print(
            f"\nN={samples}, K=10: exact {exact['seconds'] * 1e3:.1f} ms, "
            f"{exact['evaluations']} evaluations, gap {exact['gap']:.1e}"
        )
        for what, row in rows.items():
            print(
                f"  {what}, {row['epochs']} epochs (extrapolated from "
                f"{row['measured_epochs']}): {row['seconds']:.2f} s, "
                f"{row['seconds'] / exact['seconds']:.0f} times as long"
            )


@pytest.mark.slow
def test_a_thousand_classes(timed, benchmark, capsys):
    samples = 50_000 if timed else 500
    pair = ordinary_problem(samples, 1000)
    row = benchmark.pedantic(study.exact, args=(pair, 1), rounds=1)
    assert row["gap"] <= 1e-9
    with capsys.disabled():
        print(
            f"\nN={samples}, K=1000: {row['seconds']:.1f} s, {row['evaluations']} "
            f"evaluations, gap {row['gap']:.1e}"
        )
