"""Worlds of factors against the clock: pictures, an epoch, and its agreement.

`make bench` times them, and tells pictures a second and what share of an epoch
goes to agreement. Nothing here asserts a time.
"""

from __future__ import annotations

import pytest
import torch

from robustbook.datasets import diagvib
from robustbook.datasets.diagvib import Scenes
from robustbook.models import build_model
from robustbook.selection import pair_scores
from robustbook.training import ERM, train_domains

SIZE = 64


@pytest.fixture
def scenes(benchmark) -> Scenes:
    count = 2000 if benchmark.enabled else 20
    world = diagvib.Environment(texture="tiles", scale="large")
    return diagvib.draw(world, shapes=(4, 9), count=count)


def test_pictures_at_once(benchmark, scenes, capsys):
    images = benchmark(scenes.images, size=SIZE)
    if benchmark.enabled:
        with capsys.disabled():
            print(f"\n{len(images) / benchmark.stats['median']:.0f} pictures a second")
    assert images.shape == (len(scenes.labels), 3, SIZE, SIZE)


def test_epoch_and_its_agreement(benchmark, capsys):
    """An epoch of 2 x 10 000 images whose validation has 20 000 pairs."""
    count, pairs = (10_000, 20_000) if benchmark.enabled else (40, 40)
    setup = diagvib.DISCRIMINABILITY
    domains = [
        one.dataset(size=SIZE, dtype=torch.uint8)
        for one in diagvib.draw_all(setup.training, shapes=setup.shapes, count=count)
    ]
    first, second = (
        one.dataset(size=SIZE, dtype=torch.uint8)
        for one in diagvib.draw_all(
            setup.validation["ID"], shapes=setup.shapes, count=pairs, paired=True
        )
    )
    options = {"width": 16, "num_classes": 2, "norm": "group"}

    def epoch():
        return train_domains(
            build_model("strided-cnn", seed=0, options=options),
            ERM(),
            domains,
            pairs={"ID": (first, second)},
            measure=pair_scores,
            epochs=1,
            lr=1e-3,
            seed=0,
            progress=False,
        )

    history = benchmark.pedantic(epoch, rounds=1)
    (seconds,) = history.seconds
    if benchmark.enabled:
        with capsys.disabled():
            parts = {name: f"{value:.3f} s" for name, value in seconds.items()}
            share = seconds["measure"] / sum(seconds.values())
            print(f"\n{parts}: agreement takes {share:.2%} of the epoch")
    assert set(seconds) == {"train", "logits", "measure"}
    assert 0 <= history.rows[0]["ID/pa"] <= 0.7
