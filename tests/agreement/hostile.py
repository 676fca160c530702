"""Hostile problems by family: paired logits that are hard on a certificate.

Every family is a function of a random generator and returns two arrays (N, K).
:mod:`fuzz` draws thousands of them, the tests a few.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]
Generator = np.random.Generator


def _between(rng: Generator, low: int, high: int) -> int:
    """A whole number, log-uniform."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _shape(rng: Generator) -> tuple[int, int]:
    return _between(rng, 2, 200), _between(rng, 2, 30)


def ordinary(rng: Generator) -> Pair:
    """Logits of a fairly accurate model, and the same under noise."""
    samples, classes = _between(rng, 50, 400), _between(rng, 2, 30)
    clean = 2 * rng.normal(size=(samples, classes))
    clean[range(samples), rng.integers(classes, size=samples)] += 6
    return clean, clean + rng.uniform(0.3, 5) * rng.normal(size=clean.shape)


def chance(rng: Generator) -> Pair:
    """Independent logits: agreement by chance only."""
    shape = _shape(rng)
    return rng.normal(size=shape), rng.normal(size=shape)


def scales(rng: Generator) -> Pair:
    """Samples whose scales are up to sixty decades apart."""
    samples, classes = _shape(rng)
    top = rng.choice([3, 10, 30])
    scale = 10 ** rng.uniform(-top, top, size=(samples, 1))
    clean = rng.normal(size=(samples, classes))
    noise = rng.choice([0.1, 1, 5]) * rng.normal(size=clean.shape)
    return clean * scale, (clean + noise) * scale


def scales_apart(rng: Generator) -> Pair:
    """The same, with other scales in each view."""
    samples, classes = _shape(rng)
    top = rng.choice([3, 10, 30])
    clean = rng.normal(size=(samples, classes))
    shifted = clean + rng.choice([0.1, 1, 5]) * rng.normal(size=clean.shape)
    one, two = (10 ** rng.uniform(-top, top, size=(samples, 1)) for _ in "12")
    return clean * one, shifted * two


def entry_scales(rng: Generator) -> Pair:
    """Scales that differ from entry to entry."""
    shape = _between(rng, 1, 20), _between(rng, 2, 8)
    top = rng.choice([2, 8, 30])
    one, two = (
        rng.normal(size=shape) * 10 ** rng.uniform(-top, top, size=shape) for _ in "12"
    )
    return one, two


def ties(rng: Generator) -> Pair:
    """Small whole numbers: exact ties, some of them for the largest logit."""
    shape = _shape(rng)
    top = rng.integers(1, 4)
    clean = rng.integers(0, top + 1, size=shape).astype(float)
    other = rng.integers(0, top + 1, size=shape)
    kept = rng.random(shape) < rng.uniform(0, 1)
    return clean, np.where(kept, clean, other) * 10 ** rng.uniform(-2, 2)


def near_ties(rng: Generator) -> Pair:
    """Ties that a little noise breaks."""
    clean, shifted = ties(rng)
    noise = 10 ** rng.uniform(-14, -3)
    one, two = (noise * rng.normal(size=clean.shape) for _ in "12")
    return clean + one, shifted + two


def spikes(rng: Generator) -> Pair:
    """A few entries that are up to a million times as large as the others."""
    shape = _shape(rng)
    clean = 10 ** rng.uniform(-4, 0) * rng.normal(size=shape)
    shifted = clean + 10 ** rng.uniform(-4, 0) * rng.normal(size=shape)
    for view in (clean, shifted):
        hit = rng.random(shape) < 10 ** rng.uniform(-3, -0.5)
        view[hit] += 10 ** rng.uniform(0, 6) * rng.normal(size=hit.sum())
    return clean, shifted


def humps(rng: Generator) -> Pair:
    """Two to five groups of binary pairs at scales decades apart."""
    groups: list[tuple[int, float, float]] = []
    scale = 1.0
    for _ in range(rng.integers(2, 6)):
        sign = 1 if rng.random() < 0.7 else -1
        many = _between(rng, 1, 30) * _between(rng, 1, 30)
        groups.append((many, scale, sign * scale))
        if rng.random() < 0.7:
            one, two = scale * rng.uniform(0.01, 1, size=2)
            groups.append((_between(rng, 1, 20), one, -two))
        scale /= 10 ** rng.uniform(0.5, 4)
    counts, clean, shifted = zip(*groups, strict=True)
    one, two = (np.repeat(margins, counts) / 2 for margins in (clean, shifted))
    return np.stack([one, -one], 1), np.stack([two, -two], 1)


def collapsed(rng: Generator) -> Pair:
    """A model that says the same everywhere but for rounding, in low precision."""
    samples, classes = _shape(rng)
    dtype = np.float32 if rng.random() < 0.5 else np.float16
    value = rng.uniform(1, 8, size=(1, classes if rng.random() < 0.3 else 1))
    ulp = np.spacing(value.astype(dtype)).astype(float)

    def model() -> np.ndarray:
        steps = rng.integers(-3, 4, size=(samples, classes))
        return (value + ulp * steps).astype(dtype)

    other = (rng.choice([1, 10]) * rng.normal(size=(samples, classes))).astype(dtype)
    return model(), model() if rng.random() < 0.25 else other


def near_constant(rng: Generator) -> Pair:
    """A view whose logits are up to fourteen decades smaller, related or not."""
    shape = _shape(rng)
    clean = 10 ** rng.uniform(-14, -1) * rng.normal(size=shape)
    shifted = rng.normal(size=shape)
    if rng.random() < 0.3:
        shifted += clean / np.abs(clean).max() * rng.uniform(0, 1)
    return clean, shifted


def few(rng: Generator) -> Pair:
    """One to three pairs of few classes with tiny and ordinary differences."""
    shape = rng.integers(1, 4), rng.integers(2, 7)
    entries = [0, -1, -0.5, -1e-12, -2e-12, -1e-6, 1e-6, 1.0]
    one, two = (
        rng.choice(entries, size=shape) * rng.choice([1, 1, 1e-3]) for _ in "12"
    )
    return one, two


def flat(rng: Generator) -> Pair:
    """Views that see independent factors of the class: J is 0 at every beta."""
    rows, columns = rng.integers(2, 5, size=2)
    samples = _between(rng, 1, 20)
    scale = 10 ** rng.uniform(0, rng.choice([0.01, 1, 3]), size=(samples, 1))
    one = rng.normal(size=(samples, rows))
    if rng.random() < 0.5:
        one = rng.integers(0, 2, size=(samples, rows)).astype(float)
    two = rng.normal(size=(samples, columns)) * rng.choice([1, 0.1, 1e-3])
    return np.repeat(one, columns, axis=1) * scale, np.tile(two, (1, rows)) * scale


def nearly_flat(rng: Generator) -> Pair:
    """The same with a little noise."""
    clean, shifted = flat(rng)
    noise = 10 ** rng.uniform(-12, -2)
    one, two = (noise * rng.normal(size=clean.shape) for _ in "12")
    return clean + one, shifted + two


def agreeing(rng: Generator) -> Pair:
    """Almost the same logits, at another scale."""
    shape = _shape(rng)
    clean = rng.normal(size=shape)
    noise = 10 ** rng.uniform(-6, 0) * rng.normal(size=shape)
    return clean, clean * 10 ** rng.uniform(-3, 3) + noise


def opposed(rng: Generator) -> Pair:
    """Logits with the other sign."""
    shape = _shape(rng)
    clean = rng.normal(size=shape)
    noise = rng.choice([0, 0.01, 1]) * rng.normal(size=shape)
    return clean, noise - clean * 10 ** rng.uniform(-3, 3)


FAMILIES: dict[str, Callable[[Generator], Pair]] = {
    one.__name__: one
    for one in (
        ordinary, chance, scales, scales_apart, entry_scales, ties, near_ties, spikes,
        humps, collapsed, near_constant, few, flat, nearly_flat, agreeing, opposed,
    )
}  # fmt: skip


def problem(family: str, seed: int) -> Pair:
    """The problem of one family and seed."""
    return FAMILIES[family](np.random.default_rng([list(FAMILIES).index(family), seed]))


def many_views(seed: int) -> tuple[list[np.ndarray], np.ndarray | None, int]:
    """Two to six views, a prior with a rare class or none, and the size of a chunk."""
    rng = np.random.default_rng(seed)
    views, samples, classes = (
        rng.integers(2, 7),
        _between(rng, 1, 60),
        rng.integers(2, 7),
    )
    signal = rng.normal(size=(samples, classes)) * 10 ** rng.uniform(-2, 2)
    noise = 10 ** rng.uniform(-2, 1)
    others = [signal + noise * rng.normal(size=signal.shape) for _ in range(views)]
    prior = None
    if rng.random() < 0.7:
        prior = rng.dirichlet(np.ones(classes)) + 1e-3
        prior[0] = 10 ** rng.uniform(-6, 0)
        prior /= prior.sum()
    return others, prior, _between(rng, 1, 20)
