"""The cost model: its counts against the kernel, its rows against each other."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from robustbook.agreement.solver import Kernel
from robustbook.studies.agreement_speed import ordinary_problem
from robustbook.studies.cost_model import (
    CHUNK,
    COUNTS,
    KEPT,
    KEPT_COUNTS,
    predicted_parts,
)


class Calls(TorchDispatchMode):
    """Operations by name and by the size of their largest tensor."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        tensors = [x for x in (*arguments, result) if isinstance(x, torch.Tensor)]
        most = max((x.numel() for x in tensors), default=0)
        self.counts[function.overloadpacket.__name__, most] += 1
        return result


@pytest.mark.parametrize("kept", [True, False])
def test_counts_are_those_of_the_kernel(kept):
    classes = 128
    samples = CHUNK // classes * (1 if kept else 1 + KEPT // CHUNK)
    kernel = Kernel(*ordinary_problem(samples, classes))
    kernel.evaluate_all([0.5], columns=False)
    with Calls() as calls:
        kernel.evaluate_all([0.5], columns=False)
    chunks = samples * classes // CHUNK
    counted = Counter()
    for (name, size), count in calls.counts.items():
        if size >= CHUNK:
            # Operations on several views at once count as several.
            is_sweep = name in ("copy_", "sub_", "mul", "mul_", "add", "add_")
            counted["sweep" if is_sweep else name] += count * size // CHUNK
    expected = KEPT_COUNTS if kept else COUNTS
    assert counted["exp_"] == expected["exp"] * chunks
    assert counted["mv"] == expected["product"] * chunks
    assert counted["sweep"] == expected["sweep"] * chunks
    assert calls.counts.total() / chunks == pytest.approx(expected["call"], rel=0.1)


def test_what_is_predicted_grows_with_the_work(cost_model):
    for row in cost_model.select(what="size"):
        size = row["samples"], row["classes"]
        parts = predicted_parts(row, *size)
        assert row["predicted"] == pytest.approx(sum(parts.values()))
        double = predicted_parts(row, 2 * size[0], size[1])
        assert double["product"] == pytest.approx(2 * parts["product"])
        # Loosely: a busy machine is no reason to fail.
        assert 0.1 < row["predicted"] / row["cpu"] < 10
    # Streams take as many passes as arrays.
    for row in cost_model.select(what="passes"):
        assert row["passes"] == row["streamed"] <= row["blind"]
