"""Margins against the clock: run as tests these check that the pieces work.

`make bench` times them. Nothing here asserts a time.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robustbook.attacks import fab, fmn
from robustbook.datasets import load_dataset
from robustbook.margins import (
    detection_scores,
    gradient_normalized_margin,
    input_margin,
    logit_margin,
    margin_consistency,
)
from robustbook.models import load_model


@pytest.fixture
def margins(benchmark):
    """Two margins that agree mostly: ten thousand if timed."""
    count = 10_000 if benchmark.enabled else 500
    random = np.random.default_rng(0)
    measured = random.gamma(2, size=count)
    return measured + random.normal(size=count), measured


@pytest.fixture
def network(benchmark):
    images = load_dataset("digits", "test").images
    return load_model("digits-cnn-adv"), images[: 100 if benchmark.enabled else 4]


def test_consistency(benchmark, margins):
    assert 0.3 < benchmark(margin_consistency, *margins).tau < 0.9


def test_detection(benchmark, margins):
    found = benchmark(
        lambda: [detection_scores(*margins, eps) for eps in (0.5, 1.0, 2.0)]
    )
    assert all(one.auroc > 0.6 for one in found)


def test_forward_and_backward_pass(benchmark, network):
    model, images = network
    assert bool((benchmark(gradient_normalized_margin, model, images) > 0).all())


def test_forward_pass(benchmark, network):
    model, images = network

    def forward():
        with torch.no_grad():
            return logit_margin(model(images))

    assert bool((benchmark(forward) > 0).all())


@pytest.mark.parametrize(
    "recipe",
    [
        input_margin,
        lambda *a: fmn(*a, steps=30, step_size=10, targets=9, bisections=12),
        lambda *a: fab(*a, steps=20, targets=9, bisections=12),
    ],
    ids=["input_margin", "fmn-9-targets", "fab-9-targets"],
)
def test_input_margins(benchmark, network, recipe, capsys):
    """Time, and beside it what it finds: the mean distance."""
    model, images = network
    found = benchmark(recipe, model, images)
    sizes = found.margins if recipe is input_margin else found.norms
    with capsys.disabled():
        print(f"\nmean distance {float(sizes.mean()):.4f}")
    assert bool((sizes > 0).all())
