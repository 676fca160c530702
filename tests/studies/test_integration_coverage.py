"""The cells of the integration: known failures, and which of them are covered."""

import pytest
import torch

from robustbook.studies._integration_coverage import Cell, cells, integration_cells


def test_the_truth_of_a_cell():
    """Independent margins have a product; the logits have these margins at 0."""
    limits = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    cell = Cell("", limits, torch.zeros(3, dtype=torch.float64))
    exact = 1 - float(torch.special.ndtr(limits).prod())
    assert cell.failure() == pytest.approx(exact, rel=1e-12)
    x = torch.zeros(1, 4, dtype=torch.float64)
    assert torch.equal(-cell.logits(x)[0, 1:], limits)
    cell = cells(3)[1]
    (jacobian,) = torch.func.jacrev(cell.logits)(x)[0, 1:].unbind(1)
    assert torch.allclose(jacobian @ jacobian.T, cell.correlation, atol=1e-12)


def test_rows_are_covered_and_were_not():
    rows = integration_cells(0, 20, full=False)
    assert {row["measure"] for row in rows} == {"orthant_probability", "taylor", "mmse"}
    names = {"measure", "regime", "n", "nominal", "coverage", "error", "width_ratio"}
    assert all(set(row) == names | {"before"} for row in rows)
    assert all(row["coverage"] + 3 * row["error"] >= 0.92 for row in rows)
    rare = [row for row in rows if "rare" in row["regime"] and row["n"] == 1024]
    assert all(row["before"] < 0.9 for row in rare)
