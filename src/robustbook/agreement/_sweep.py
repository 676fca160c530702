"""Shifts of a part of the samples, and the contributions of groups to agreement."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_fraction,
    check_labels,
    check_logit_pair,
)
from robustbook.agreement._docs import SHARED
from robustbook.agreement._measure import gibbs_posterior
from robustbook.agreement._result import Agreement, check_same_pairs


@dataclass(frozen=True)
class ContributionGroup:
    """Samples that share whether they were classified correctly and kept."""

    count: int
    #: Their exact share of ``pa``: the sum of their contributions over N (nats).
    contribution: float
    #: The same by one average missing confidence, as the thesis has it; NaN for the
    #: group that it leaves out.
    approximation: float


@dataclass(frozen=True)
class AgreementDecomposition:
    """Posterior agreement as a sum over four groups of samples.

    Predictions are kept or changed by the shift; the clean ones are correct or wrong.
    """

    kept_correct: ContributionGroup
    kept_wrong: ContributionGroup
    changed_correct: ContributionGroup
    changed_wrong: ContributionGroup

    @property
    def total(self) -> float:
        """Sum of the exact contributions: ``pa``."""
        return math.fsum(group.contribution for group in vars(self).values())


@SHARED.fill
def shift_by_ratio(
    logits: Any, shifted_logits: Any, ratio: float, *, norms: Any = None, seed: int = 0
) -> Tensor:
    """Logits of the samples when only a part of them is shifted.

    Source: the PA paper, section 4.1; the thesis, section 4.2 (adversarial ratio).

    Parameters
    ----------
    {logits, shifted_logits}
    ratio : float
        Share of shifted samples, in [0, 1].
    {norms} {seed}

    Returns
    -------
    Tensor, shape (N, K)
        The shifted logits of the first round(ratio N) samples of the order, the
        clean ones of the others.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean, shifted = torch.zeros(4, 2), torch.ones(4, 2)
    >>> shift_by_ratio(clean, shifted, 0.5, norms=[1, 2, 3, 4])[:, 0]
    tensor([1., 1., 0., 0.])
    """
    clean, shifted = check_logit_pair(logits, shifted_logits)
    count = round(check_fraction("ratio", ratio) * len(clean))
    rank = _rank(norms, len(clean), seed).to(clean.device)
    return torch.where((rank < count)[:, None], shifted, clean)


@SHARED.fill
def decompose_agreement(
    result: Agreement, logits: Any, shifted_logits: Any, labels: Any
) -> AgreementDecomposition:
    """Split posterior agreement over kept and changed, correct and wrong.

    Returns an :class:`AgreementDecomposition`. Beside each exact share stands the
    thesis's approximation (section 4.2, Theorem B.1.1), which puts the average missing
    confidence of a group at the optimal temperature into one logarithm. There the terms
    are sums on the scale N (pa - log K); as shares of ``pa``, each has (count / N) log
    K added.

    Parameters
    ----------
    result : Agreement
        From :func:`posterior_agreement` on the same two arrays of logits, with a
        uniform prior; another result is refused.
    {logits, shifted_logits}
    labels : tensor or array, shape (N,)
        True classes.

    {TypeError} {ValueError}

    Examples
    --------
    >>> from robustbook.agreement import posterior_agreement
    >>> clean, shifted = torch.eye(4), torch.eye(4)[[0, 1, 2, 0]]
    >>> result = posterior_agreement(clean, shifted)
    >>> parts = decompose_agreement(result, clean, shifted, torch.arange(4))
    >>> parts.kept_correct.count, parts.changed_correct.count
    (3, 1)
    >>> abs(parts.total - result.pa) < 1e-12
    True
    """
    clean, shifted = check_logit_pair(logits, shifted_logits)
    size, classes = clean.shape
    check_same_pairs(result, size, classes)
    true = check_labels("labels", labels, length=size, num_classes=classes)
    before, after = clean.argmax(1), shifted.argmax(1)
    kept, correct = before == after, before == true.to(before.device)
    posterior = gibbs_posterior(clean, result.beta)
    shifted_posterior = gibbs_posterior(shifted, result.beta)
    per_sample = (classes * (posterior * shifted_posterior).sum(1)).log()
    # Contributions below this may have underflowed.
    pairs = per_sample.clamp(min=-500.0), result.per_sample.clamp(min=-500.0)
    same = torch.allclose(*pairs, rtol=0.0, atol=1e-4)
    if result.num_views != 2 or not same:
        raise ValueError(
            "logits: expected the two views of the result, measured with a uniform "
            "prior; these have other contributions at its beta"
        )
    missing = 1.0 - posterior.amax(1)
    missing_shifted = 1.0 - shifted_posterior.amax(1)
    # For each group its members and what the thesis takes for their overlap.
    groups = {
        "kept_correct": (kept & correct, 1.0 - 2.0 * missing),
        "kept_wrong": (kept & ~correct, 1.0 - 2.0 * missing),
        "changed_correct": (~kept & correct, missing_shifted),
        "changed_wrong": (~kept & ~correct, None),
    }
    shares = {}
    for name, (members, overlap) in groups.items():
        count = int(members.sum())
        exact = float(result.per_sample[members].sum()) / size
        approximation = 0.0
        if overlap is None:
            approximation = math.nan
        elif count:
            confidence = math.log(classes) + float(overlap[members].mean().log())
            approximation = count / size * confidence
        shares[name] = ContributionGroup(count, exact, approximation)
    return AgreementDecomposition(**shares)


def _rank(norms: Any, count: int, seed: int) -> Tensor:
    """Place of each sample in the order of shifting."""
    if norms is None:
        generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0))
        return torch.randperm(count, generator=generator)
    sizes = as_tensor("norms", norms).double().cpu()
    if sizes.shape != (count,):
        raise ValueError(
            f"norms: expected shape ({count},), one a sample, got {tuple(sizes.shape)}"
        )
    bad = sizes.isnan() | (sizes < 0)
    if bool(bad.any()):
        place = int(bad.nonzero()[0])
        raise ValueError(
            f"norms: expected numbers of at least 0, got {float(sizes[place]):g} at "
            f"index {place}"
        )
    return sizes.argsort(stable=True).argsort()
