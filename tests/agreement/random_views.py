"""Random logits of two views and more, and the kernel by its definition."""

import itertools

import mpmath
import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def rows(*entries):
    return torch.tensor(entries, dtype=torch.float64)


def noisy(seed, views=2, samples=40, classes=10, noise=1.0):
    """One signal, and views of it with noise of their own; of two, one is it."""
    generator = torch.Generator().manual_seed(seed)
    shape = views + (views > 2), samples, classes
    signal, *others = torch.randn(shape, generator=generator).double()
    return [signal] * (views == 2) + [signal + noise * other for other in others]


def one_hot_views(votes, classes, height=1.0):
    return [
        height * torch.nn.functional.one_hot(own, classes).double() for own in votes
    ]


#: More often than not two.
VIEWS = st.sampled_from([2, 2, 2, 3, 4])


@st.composite
def problems(draw, views=VIEWS):
    """Views that are nasty on purpose: ties, near-ties, scales decades apart."""
    views, classes = draw(views), draw(st.integers(2, 6))
    samples = draw(st.integers(1, 12 if views == 2 else 8))
    entries = st.one_of(
        st.integers(-3, 3).map(float),
        st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 9)),
        st.sampled_from([0.0, 1.0, 1.0 - 2**-40, 1.0 + 2**-40]),
    )
    array = draw(hnp.arrays(np.float64, (views, samples, classes), elements=entries))
    if draw(st.booleans()):
        array[1:] += array[0]
    decades = st.lists(st.integers(-4, 4), min_size=samples, max_size=samples)
    scale = 10.0 ** np.array(draw(decades), dtype=float)[:, None]
    return [torch.from_numpy(view) for view in array * scale]


def dense_grid(views, points=200):
    spread = sum(view.amax(1) - view.amin(1) for view in views)
    live = spread[spread > 0]
    if len(live) == 0:
        return [0.0, 1.0]
    low, high = 1e-3 / float(live.max()), 1e3 / float(live.min())
    return np.geomspace(low, high, points).tolist()


def exact_kernel(views, beta, prior=None):
    """J by its definition with 50 digits."""
    with mpmath.workdps(50):
        beta, total = mpmath.mpf(beta), mpmath.mpf(0)
        for sample in zip(*(view.tolist() for view in views), strict=True):
            weights = [[mpmath.e ** (beta * mpmath.mpf(x)) for x in f] for f in sample]
            sums = [mpmath.fsum(own) for own in weights]
            classes = len(sample[0])
            rates = [mpmath.mpf(1) / classes] * classes if prior is None else prior
            overlap = mpmath.fsum(
                rates[j]
                * mpmath.fprod(
                    own[j] / total / rates[j]
                    for own, total in zip(weights, sums, strict=True)
                )
                for j in range(classes)
            )
            total += mpmath.log(overlap)
        return total / len(views[0])


def over_all_hypotheses(views, beta):
    """(1/N) log sum over K^N hypotheses of prod_v p(c|X_v) over p(c)^(m - 1)."""
    samples, classes = views[0].shape
    hypotheses = list(itertools.product(range(classes), repeat=samples))
    kernel = torch.ones(len(hypotheses), dtype=torch.float64) / len(hypotheses)
    for view in views:
        total = [
            beta * sum(float(view[i, c]) for i, c in enumerate(hypothesis))
            for hypothesis in hypotheses
        ]
        kernel *= torch.tensor(total, dtype=torch.float64).softmax(0) * len(hypotheses)
    return float(kernel.sum().log()) / samples
