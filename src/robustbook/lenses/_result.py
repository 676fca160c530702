"""What three lenses show of one model on the same images."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from scipy.stats import binomtest
from torch import Tensor

from robustbook._checks.arguments import are_probabilities
from robustbook.agreement import Agreement
from robustbook.average_case import Robustness
from robustbook.margins import Consistency, InputMargins, margin_consistency


@dataclass(frozen=True)
class Passes:
    """Passes through a model, per image that is measured.

    Evaluations of the model, and gradients of a number that its logits give.
    """

    forward: float
    backward: float

    @property
    def total(self) -> float:
        """Both together: a backward pass costs one to two forward ones."""
        return self.forward + self.backward


#: What can be left out.
LENSES: Final = ("agreement", "average-case", "margins")

#: Names of what is measured: two shifts, beside the corruptions, and what no shift is.
ADVERSARIAL, NOISE = "adversarial", "noise"
CLEAN, AVERAGE_CASE = "clean", "average-case"
LOGIT_MARGIN, INPUT_MARGIN = "logit margin", "input margin"


@dataclass(frozen=True)
class Share:
    """A share of images, and its 95 % interval where the images come from."""

    value: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, hits: Tensor) -> Share:
        """The share of true ones (N,), with Wilson's interval."""
        count, total = int(hits.sum()), len(hits)
        return cls(count / total, _wilson(count, total))


@dataclass(frozen=True)
class Settings:
    """With what the model was measured, as :func:`three_lenses` takes it."""

    eps: float
    attack_steps: int
    sigma: float
    noise_samples: int
    corruptions: tuple[str, ...]
    severity: int
    seed: int


@dataclass(frozen=True, eq=False)
class ThreeLenses:
    """Posterior Agreement, average-case robustness and margins of one model.

    Attributes
    ----------
    settings : Settings
        With what it was measured.
    logits : Tensor, shape (N, K)
        Of the clean images.
    labels : Tensor, shape (N,), or None
        True classes, for accuracies.
    shifted_logits : dict of str to Tensor, shape (N, K)
        Of the shifted images: "adversarial", "noise", and each corruption.
    agreements : dict of str to Agreement
        Between clean and shifted, by the same names; both empty if left out.
    robustness : Robustness or None
        How often each prediction survives the noise.
    logit_margins : Tensor, shape (N,)
        Gaps of the two largest logits, float64.
    measured : Tensor, shape (n,)
        Images whose input margins were measured, drawn without replacement.
    margins : InputMargins or None
        Of these n images: upper bounds on the ℓ∞ distances to another class. None, and
        n = 0, if margins were left out.
    consistency : Consistency or None
        How well logit margins order input margins; None for fewer than three of them,
        or where all of one of them are equal.
    robust_share : Share or None
        Share of predictions that no perturbation up to ``eps`` was found to change: by
        PGD on all images, minus what the search for margins adds on the n; without one
        of them, by the other. An upper bound on what a perfect attack would leave, up
        to its interval.
    robust_accuracy : Share or None
        Share of images that are classified correctly and so; None without labels.
    passes : dict of str to Passes
        What each measure cost per image, by the names of ``shifted_logits`` and
        "clean", "average-case" and "input margin" (per image of the n).
    """

    settings: Settings
    logits: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    shifted_logits: dict[str, Tensor] = field(repr=False)
    agreements: dict[str, Agreement] = field(repr=False)
    robustness: Robustness | None = field(repr=False)
    logit_margins: Tensor = field(repr=False)
    measured: Tensor = field(repr=False)
    margins: InputMargins | None = field(repr=False)
    consistency: Consistency | None
    robust_share: Share | None
    robust_accuracy: Share | None
    passes: dict[str, Passes] = field(repr=False)

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    @property
    def correct(self) -> Tensor | None:
        """Whether the clean predictions are right, bool (N,); None without labels."""
        if self.labels is None:
            return None
        return self.logits.argmax(dim=1) == self.labels

    def changed(self, shift: str) -> Tensor:
        """Whether a shift, a key of ``shifted_logits``, changes the prediction, (N,).

        Raises
        ------
        ValueError
            If there is no such shift.
        """
        if shift not in self.shifted_logits:
            known = ", ".join(self.shifted_logits)
            raise ValueError(f"shift: expected one of {known}; got {shift!r}")
        return self.shifted_logits[shift].argmax(dim=1) != self.logits.argmax(dim=1)

    @property
    def constant(self) -> bool:
        """Whether the model names one class for all clean images."""
        return bool((self.logits.argmax(dim=1) == self.logits[0].argmax()).all())

    @property
    def probabilities(self) -> bool:
        """Whether the model returned probabilities in place of logits."""
        return are_probabilities(self.logits)

    @property
    def domain_agreement(self) -> tuple[float, float] | None:
        """Mean agreement over the corruptions, in nats, and its standard error.

        Each corruption has its own inverse temperature; each image counts by its mean
        contribution. None without agreement.
        """
        if not self.agreements:
            return None
        each = [self.agreements[kind].per_sample for kind in self.settings.corruptions]
        return _mean_and_error(torch.stack(each).mean(dim=0))

    @property
    def mean_robustness(self) -> tuple[float, float] | None:
        """Mean over images of the probability to survive noise, and its error.

        It holds the sampling of images and of noise. None without the average case.
        """
        if self.robustness is None:
            return None
        return _mean_and_error(self.robustness.probability)

    def scores(self) -> dict[str, Tensor]:
        """What each lens says of each image: the larger, the safer.

        Returns
        -------
        dict of str to Tensor, shape (N,)
            Float64, of what was not left out. "logit margin"; "average-case", the
            probability to survive the noise; "agreement, S", the contribution to
            Posterior Agreement under each shift S, in nats; "input margin", NaN where
            it was not measured.
        """
        scores = {LOGIT_MARGIN: self.logit_margins}
        if self.robustness is not None:
            scores[AVERAGE_CASE] = self.robustness.probability
        for shift, agreement in self.agreements.items():
            scores[f"agreement, {shift}"] = agreement.per_sample
        if self.margins is not None:
            margins = torch.full((len(self),), math.nan, dtype=torch.float64)
            margins[self.measured] = self.margins.margins.double().cpu()
            scores[INPUT_MARGIN] = margins
        return scores

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers of the whole, without those of single images.

        JSON can hold it, except that an inverse temperature may be infinite.
        """
        correct = self.correct
        tau = self.consistency
        return {
            "images": len(self),
            "classes": self.num_classes,
            "settings": {**vars(self.settings)},
            "accuracy": None if correct is None else float(correct.double().mean()),
            "agreement": {
                shift: {name: getattr(agreement, name) for name in _OF_AGREEMENT}
                for shift, agreement in self.agreements.items()
            },
            "domain": _named(self.domain_agreement, "pa"),
            "average_case": _named(self.mean_robustness, "mean"),
            "margins": {
                "measured": len(self.measured),
                "robust_share": _plain(self.robust_share),
                "robust_accuracy": _plain(self.robust_accuracy),
                "tau": None if tau is None else tau.tau,
                "tau_interval": None if tau is None else list(tau.interval),
            },
            "passes": {name: {**vars(cost)} for name, cost in self.passes.items()},
        }


#: Numbers of each agreement in a summary.
_OF_AGREEMENT: Final = ("pa", "standard_error", "beta", "mismatch", "hard_part")


def _plain(share: Share | None) -> dict[str, Any] | None:
    return None if share is None else {**vars(share), "interval": [*share.interval]}


def _named(estimate: tuple[float, float] | None, name: str) -> dict[str, float] | None:
    return estimate and {name: estimate[0], "standard_error": estimate[1]}


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    error = values.std(correction=1) / math.sqrt(len(values))
    return float(values.mean()), float(error)


def consistency_of(free: Tensor, margins: InputMargins | None) -> Consistency | None:
    if margins is None:
        return None
    measured = margins.margins.cpu()
    constant = any(torch.equal(x.min(), x.max()) for x in (free, measured))
    if len(measured) < 3 or constant:
        return None
    return margin_consistency(free, measured)


def robust_share(
    unchanged: Tensor | None,
    measured: Tensor,
    margins: InputMargins | None,
    eps: float,
    counted: Tensor | None = None,
) -> Share | None:
    """The share that no change up to `eps` was found for, of what was measured.

    PGD on all images says which are `unchanged`. Of some, the margin was measured; the
    share for which that found a change is subtracted. Two variances add up, that of
    these few and that of the images; they stand for fewer images in Wilson's interval.
    `counted` are the images that count as anything but 0.
    """
    if unchanged is None:
        if margins is None:
            return None
        unchanged = torch.ones(len(measured), dtype=torch.bool)
        counted = None if counted is None else counted[measured]
        measured = torch.arange(len(measured))
    if counted is not None:
        unchanged = unchanged & counted
    count, drawn = len(unchanged), len(measured)
    if margins is None:
        return Share.of(unchanged)
    more = unchanged[measured] & (margins.margins.cpu() <= eps)
    value = float(unchanged.double().mean() - more.double().mean())
    value = min(1.0, max(0.0, value))
    # As Agresti and Coull do it: none among the drawn is no proof of none.
    few = (int(more.sum()) + 2) / (drawn + 4)
    variance = few * (1 - few) / drawn * (1 - drawn / count)
    spread = value * (1 - value)
    enough = count
    if spread > 0:
        enough = max(1, round(spread / (spread / count + variance)))
    elif drawn < count and bool(unchanged.any()):
        enough = drawn
    return Share(value, _wilson(round(value * enough), enough))


def _wilson(count: int, total: int) -> tuple[float, float]:
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
