"""The result of three_lenses, and its settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from robustbook import _defaults as defaults
from robustbook._checks.arguments import are_probabilities, check_bound, check_count
from robustbook._intervals import Estimate, wilson
from robustbook.agreement import Agreement
from robustbook.average_case import Robustness
from robustbook.corruptions import CORRUPTIONS
from robustbook.margins import Consistency, margin_consistency

#: Names of the measures, beside those of the corruptions.
ADVERSARIAL, NOISE = "adversarial", "noise"
CLEAN, AVERAGE_CASE = "clean", "average-case"
LOGIT_MARGIN, INPUT_MARGIN = "logit margin", "input margin"
#: The kinds of corruption that are measured by default, from all four families.
DEFAULT_CORRUPTIONS: Final = "shot_noise", "motion_blur", "fog", "contrast", "pixelate"


@dataclass(frozen=True)
class Passes:
    """Passes through a model for each image: evaluations, and gradients.

    A backward pass costs as much as one or two forward passes.
    """

    forward: float
    backward: float


@dataclass(frozen=True)
class Share(Estimate):
    """A share of the images, with a 95 % interval for the population."""

    @classmethod
    def of(cls, hits: Tensor) -> Share:
        """Return the share of true entries (N,), with Wilson's interval."""
        count, total = int(hits.sum()), len(hits)
        return cls.of_trials(count / total, total)

    @classmethod
    def of_trials(cls, value: float, trials: int) -> Share:
        """Return a share with the error and the interval of so many trials."""
        error = math.sqrt(value * (1 - value) / trials)
        return cls(value, error, wilson(round(value * trials), trials))


@dataclass(frozen=True)
class Settings:
    """Settings of the shifts and of the noise, as :func:`three_lenses` takes them."""

    eps: float = defaults.EPS
    attack_steps: int = defaults.ATTACK_STEPS
    sigma: float = defaults.SIGMA
    noise_samples: int = defaults.NOISE_SAMPLES
    corruptions: tuple[str, ...] = DEFAULT_CORRUPTIONS
    severity: int = defaults.SEVERITY
    seed: int = 0

    def __post_init__(self) -> None:
        checked = {
            "eps": check_bound("eps", self.eps),
            "attack_steps": check_count("attack_steps", self.attack_steps),
            "sigma": check_bound("sigma", self.sigma),
            "noise_samples": check_count("noise_samples", self.noise_samples),
            "corruptions": _check_corruptions(self.corruptions),
            "severity": check_count("severity", self.severity),
            "seed": check_count("seed", self.seed, minimum=0),
        }
        if self.severity > 5:
            raise ValueError(f"severity: expected 1 to 5, got {self.severity}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False, repr=False)
class ThreeLenses:
    """Posterior Agreement, average-case robustness and margins of one model.

    Attributes
    ----------
    settings : Settings
        The settings of the measurement.
    logits : Tensor, shape (N, K)
        Logits of the clean images.
    labels : Tensor, shape (N,), or None
        True classes, for accuracies.
    shifted_logits : dict of str to Tensor, shape (N, K)
        Logits of the shifted images: "adversarial", "noise", and each corruption.
    agreements : dict of str to Agreement
        Agreement between clean and shifted logits, by the same names. Both are empty
        if agreement was left out.
    robustness : Robustness or None
        How often each prediction survives the noise.
    logit_margins : Tensor, shape (N,)
        Differences between the two largest logits, float64.
    measured : Tensor, shape (n,)
        Positions of the images whose input margins were measured, drawn without
        replacement; n = 0 if margins were left out.
    margins : Tensor, shape (n,), or None
        Upper bounds on the ℓ∞ distances of these n images to another class, float64,
        for pixels in [0, 1]; ``inf`` where none was found.
    consistency : Consistency or None
        How well logit margins order input margins. None for fewer than three images,
        or if all logit margins or all input margins are equal.
    robust_share : Share or None
        Share of predictions for which no perturbation of at most ``eps`` was found to
        change them: by PGD on all images, minus the additional ones that the search
        for margins finds on the n images. If one of the two lenses was left out, the
        share is that of the other. An upper bound, up to its interval, on the share
        under a perfect attack.
    robust_accuracy : Share or None
        The same share among images that are also classified correctly. None without
        labels.
    passes : dict of str to Passes
        Cost of each measure for each image, by the names of ``shifted_logits`` and
        "clean", "average-case" and "input margin" (for each of the n images).
    """

    settings: Settings
    logits: Tensor
    labels: Tensor | None
    shifted_logits: dict[str, Tensor]
    agreements: dict[str, Agreement]
    robustness: Robustness | None
    logit_margins: Tensor
    measured: Tensor
    margins: Tensor | None
    consistency: Consistency | None
    robust_share: Share | None
    robust_accuracy: Share | None
    passes: dict[str, Passes]

    def __len__(self) -> int:
        """Return N, the number of images."""
        return len(self.logits)

    def __repr__(self) -> str:
        parts = [f"{name} {result.pa:.3f}" for name, result in self.agreements.items()]
        if self.mean_robustness is not None:
            parts.append(f"survives noise {self.mean_robustness[0]:.3f}")
        if self.robust_share is not None:
            parts.append(f"unchanged {self.robust_share.value:.3f}")
        if self.consistency is not None:
            parts.append(f"tau {self.consistency.tau:.2f}")
        return f"ThreeLenses({len(self)} images: {', '.join(parts)})"

    @property
    def num_classes(self) -> int:
        """K, the number of classes."""
        return self.logits.shape[1]

    @property
    def correct(self) -> Tensor | None:
        """Whether the clean predictions are right, bool (N,); None without labels."""
        if self.labels is None:
            return None
        return self.logits.argmax(dim=1) == self.labels

    def changed(self, shift: str) -> Tensor:
        """Return for each image whether a shift changes the prediction, bool (N,).

        Raises
        ------
        ValueError
            If `shift` is no key of ``shifted_logits``.
        """
        if shift not in self.shifted_logits:
            known = ", ".join(self.shifted_logits)
            raise ValueError(f"shift: expected one of {known}; got {shift!r}")
        return self.shifted_logits[shift].argmax(dim=1) != self.logits.argmax(dim=1)

    @property
    def constant(self) -> bool:
        """Whether the model predicts one class for all clean images."""
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
        kinds = self.settings.corruptions
        contributions = [self.agreements[kind].per_sample for kind in kinds]
        return _mean_and_error(torch.stack(contributions).mean(dim=0))

    @property
    def mean_robustness(self) -> tuple[float, float] | None:
        """Mean probability to survive the noise, and its standard error.

        The error covers the sampling of images and of noise. None without the average
        case.
        """
        if self.robustness is None:
            return None
        return _mean_and_error(self.robustness.probability)

    def scores(self) -> dict[str, Tensor]:
        """Return the scores that each lens gives the images: larger is safer.

        Returns
        -------
        dict of str to Tensor, shape (N,)
            Float64: "logit margin"; "average-case", the probability to survive the
            noise; "agreement, S", the contribution to Posterior Agreement under each
            shift S, in nats; "input margin", NaN where it was not measured. Lenses
            that were left out have no scores.
        """
        scores = {LOGIT_MARGIN: self.logit_margins}
        if self.robustness is not None:
            scores[AVERAGE_CASE] = self.robustness.probability
        for shift, agreement in self.agreements.items():
            scores[f"agreement, {shift}"] = agreement.per_sample
        if self.margins is not None:
            margins = torch.full((len(self),), math.nan, dtype=torch.float64)
            margins[self.measured] = self.margins
            scores[INPUT_MARGIN] = margins
        return scores

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers except those of single images.

        JSON can hold them, except that an inverse temperature may be infinite.
        """
        correct, order = self.correct, self.consistency
        return {
            "images": len(self),
            "classes": self.num_classes,
            "settings": {**vars(self.settings)},
            "accuracy": None if correct is None else float(correct.double().mean()),
            "agreement": {
                shift: {name: getattr(agreement, name) for name in _AGREEMENT_FIELDS}
                for shift, agreement in self.agreements.items()
            },
            "domain": _named(self.domain_agreement, "pa"),
            "average_case": _named(self.mean_robustness, "mean"),
            "margins": {
                "measured": len(self.measured),
                "robust_share": _plain(self.robust_share),
                "robust_accuracy": _plain(self.robust_accuracy),
                "tau": None if order is None else order.tau,
                "tau_interval": None if order is None else list(order.interval),
            },
            "passes": {name: {**vars(cost)} for name, cost in self.passes.items()},
        }


_AGREEMENT_FIELDS: Final = ("pa", "standard_error", "beta", "mismatch", "hard_part")


def _check_corruptions(kinds: Iterable[str]) -> tuple[str, ...]:
    named = isinstance(kinds, Iterable) and not isinstance(kinds, str | bytes)
    listed = [*kinds] if named else []
    if not listed or not all(kind in [*CORRUPTIONS] for kind in listed):
        raise ValueError(
            f"corruptions: expected at least one of {', '.join(CORRUPTIONS)} in a "
            f"tuple, got {kinds!r}"
        )
    return tuple(dict.fromkeys(map(str, listed)))


def _plain(share: Share | None) -> dict[str, Any] | None:
    if share is None:
        return None
    return {"value": share.value, "interval": [*share.interval]}


def _named(estimate: tuple[float, float] | None, name: str) -> dict[str, float] | None:
    return estimate and {name: estimate[0], "standard_error": estimate[1]}


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    error = values.std(correction=1) / math.sqrt(len(values))
    return float(values.mean()), float(error)


def consistency_of(logit_margins: Tensor, margins: Tensor | None) -> Consistency | None:
    """Return the order of the margins, or None where it is not defined."""
    if margins is None or len(margins) < 3:
        return None
    both = logit_margins, margins
    constant = any(torch.equal(values.min(), values.max()) for values in both)
    return None if constant else margin_consistency(*both)


def robust_share(
    unchanged: Tensor | None,
    measured: Tensor,
    margins: Tensor | None,
    eps: float,
    counted: Tensor | None = None,
) -> Share | None:
    """Return the share of images for which no change of at most `eps` was found.

    `unchanged` says which predictions withstand PGD, over all images. For those that
    were `measured`, the margins say what PGD missed, and the share that it missed is
    subtracted. The variances of the two shares add up; Wilson's interval is that of as
    many images as have this variance. Images outside `counted` count as changed.
    """
    if unchanged is None:
        if margins is None:
            return None
        unchanged = torch.ones(len(measured), dtype=torch.bool)
        counted = None if counted is None else counted[measured]
        measured = torch.arange(len(measured))
    if counted is not None:
        unchanged = unchanged & counted
    if margins is None:
        return Share.of(unchanged)
    count, drawn = len(unchanged), len(measured)
    missed = unchanged[measured] & (margins <= eps)
    value = float(unchanged.double().mean() - missed.double().mean())
    value = min(1.0, max(0.0, value))
    # As Agresti and Coull do: none missed among the drawn is no proof of none.
    missed_share = (int(missed.sum()) + 2) / (drawn + 4)
    missed_variance = missed_share * (1 - missed_share) / drawn * (1 - drawn / count)
    spread = value * (1 - value)
    effective = count
    if spread > 0:
        effective = max(1, round(spread / (spread / count + missed_variance)))
    elif drawn < count and bool(unchanged.any()):
        effective = drawn
    return Share.of_trials(value, effective)
