"""A sample in strata of the logit margin, and its estimate of robust accuracy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_count, check_non_negative
from robustbook.margins._arrays import Vector, check_flags, check_level, check_vector
from robustbook.margins._docs import DOCS
from robustbook.margins._estimate import Estimate, clipped, quantile


@dataclass(frozen=True, eq=False)
class StratifiedSample:
    """Which samples to measure, and what they stand for.

    Attributes
    ----------
    indices : Tensor, shape (n,)
        The samples to measure, int64; all of them are classified rightly.
    strata : Tensor, shape (n,)
        The stratum of each, from 0.
    sizes : Tensor, shape (H,)
        How many samples each stratum stands for.
    num_samples : int
        N, wrong predictions among them.
    """

    indices: Tensor = field(repr=False)
    strata: Tensor = field(repr=False)
    sizes: Tensor = field(repr=False)
    num_samples: int

    def __len__(self) -> int:
        """The number of samples to measure, n."""
        return len(self.indices)

    @DOCS.fill
    def robust_accuracy(
        self, input_margin: Any, eps: float, *, level: float = 0.95
    ) -> Estimate:
        """Estimate robust accuracy from the input margins of this sample.

        Parameters
        ----------
        input_margin : Tensor or array, shape (n,)
            Measured margins, in the order of ``indices``.
        {eps} {level}

        Returns
        -------
        Estimate
            Unbiased, with its interval.

        Raises
        ------
        {TypeError, ValueError}
        """
        margins = check_vector("input_margin", input_margin, length=len(self), low=0.0)
        limit = check_non_negative("eps", eps)
        z = quantile(check_level(level))
        robust, strata = margins > limit, self.strata.numpy()
        totals = self.sizes.double().numpy()
        drawn = np.bincount(strata, minlength=len(totals)).astype(np.float64)
        hits = np.bincount(strata, weights=robust, minlength=len(totals))
        shares = hits / drawn
        value = float((totals * shares).sum() / self.num_samples)
        # Squared residuals within strata; one is a stratum that is known whole.
        squares = drawn * shares * (1 - shares)
        weights = (totals / self.num_samples) ** 2 * (1 - drawn / totals) / drawn
        error = _root(weights * squares / np.maximum(drawn - 1, 1))
        # As wide in all as Wilson's interval where no residual was seen.
        squares = squares + z**2 * drawn / drawn.sum()
        half = z * _root(weights * squares / np.maximum(drawn - 1, 1))
        least = hits.sum() / self.num_samples
        most = (totals.sum() - (drawn - hits).sum()) / self.num_samples
        return Estimate(value, error, clipped(value, half, least, most), level)


def _root(parts: Vector) -> float:
    return float(np.sqrt(parts.sum()))


@DOCS.fill
def stratified_sample(
    logit_margin: Any,
    correct: Any,
    size: int,
    *,
    strata: int = 10,
    seed: int = 0,
) -> StratifiedSample:
    """Choose samples to measure: right predictions, spread over the logit margins.

    A wrong prediction is not robustly right, so no attack is spent on it. Right ones
    are put in strata of equal size by their logit margin, and from each about the
    same share is drawn at random.

    Parameters
    ----------
    {logit_margin} {correct}
    size : int
        How many samples to measure.
    strata : int, default 10
        How many strata; fewer where each would get fewer than two samples.
    {seed}

    Returns
    -------
    StratifiedSample
        The indices, and :meth:`~StratifiedSample.robust_accuracy` for their margins.

    Raises
    ------
    {TypeError, ValueError}
    ValueError
        If `size` is less than 2 or more than the number of right predictions.

    See Also
    --------
    estimate_robust_accuracy : For a simple random sample.

    References
    ----------
    Cochran, "Sampling techniques", 1977, chapter 5. Chapter 25 of this book.

    Examples
    --------
    >>> margins = torch.linspace(0, 1, 1000, dtype=torch.float64)
    >>> sample = stratified_sample(margins, margins > 0.1, 50)
    >>> low, high = sample.robust_accuracy(margins[sample.indices] / 4, 0.1).interval
    >>> low < 0.6 < high
    True
    """
    scores = check_vector("logit_margin", logit_margin)
    right = check_flags("correct", correct, length=len(scores))
    check_count("size", size, minimum=2)
    check_count("strata", strata)
    check_count("seed", seed, minimum=0)
    rows = np.flatnonzero(right)
    if size > len(rows):
        raise ValueError(
            f"size: expected at most the {len(rows)} right predictions, got {size}"
        )
    order = rows[np.argsort(scores[rows], kind="stable")]
    groups = np.array_split(order, min(strata, size // 2))
    # Parts of equal size, to one: so are their shares of the sample.
    shares = [len(part) for part in np.array_split(np.arange(size), len(groups))]
    random = np.random.default_rng(seed)
    drawn = [
        random.choice(group, share, replace=False)
        for group, share in zip(groups, shares, strict=True)
    ]
    return StratifiedSample(
        torch.from_numpy(np.concatenate(drawn)),
        torch.from_numpy(np.repeat(np.arange(len(groups)), shares)),
        torch.tensor([len(group) for group in groups]),
        len(scores),
    )
