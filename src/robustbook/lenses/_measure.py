"""Measure one model with all three lenses, on the same images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_labels,
    check_logits,
    check_positive,
)
from robustbook._checks.images import check_images
from robustbook._checks.models import (
    Model,
    ask_model,
    check_model,
    find_device,
)
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.agreement import posterior_agreement
from robustbook.attacks import pgd
from robustbook.average_case import Robustness, monte_carlo
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.lenses._parts import Parts, gradients
from robustbook.lenses._passes import CountedModel, Passes
from robustbook.lenses._result import (
    ADVERSARIAL,
    AVERAGE_CASE,
    CLEAN,
    INPUT_MARGIN,
    NOISE,
    Settings,
    Share,
    ThreeLenses,
    wilson,
)
from robustbook.margins import (
    Consistency,
    InputMargins,
    input_margin,
    logit_margin,
    margin_consistency,
)

__all__ = ["three_lenses"]

#: Fewer images have no standard error worth the name.
FEWEST: Final = 10

#: PGD climbs the cross-entropy, whose gradient underflows where a logit leads by more
#: than about 80. Beyond this lead the attack sees all logits divided by a constant.
LARGEST_LEAD: Final = 50.0

#: What can be left out.
LENSES: Final = ("agreement", "average-case", "margins")

LOGITS: Final = "logits"
_SURVIVAL: Final = ("probability", "standard_error", "labels", "calls", "trials")
_MARGINS: Final = ("margins", "adversarial", "found_by")

#: What moves a logit by more than this share of the spread of all is no rounding.
ROUNDING: Final = 0.01


def three_lenses(
    model: Model,
    images: Any,
    labels: Any = None,
    *,
    eps: float = 8 / 255,
    sigma: float = 0.1,
    corruptions: tuple[str, ...] = CORRUPTIONS,
    severity: int = 3,
    attack_steps: int = 40,
    noise_samples: int = 512,
    margin_images: int = 100,
    skip: Iterable[str] = (),
    seed: int = 0,
    batch_size: int = 256,
    checkpoint: Path | str | None = None,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> ThreeLenses:
    """Measure a model with all three lenses, on the same images.

    Posterior Agreement between the images and shifted ones: attacked by PGD, with
    Gaussian noise, and with each corruption. Average-case robustness under that noise.
    Input margins of some images, and how well logit margins order them. No label is
    needed: attacks go against the model's own predictions. PGD sees the logits of a
    model that is so sure that its cross-entropy is flat divided by a constant, which
    changes no prediction.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, C, H, W) in [0, 1]; normalization belongs
        inside of it. A module is evaluated in evaluation mode and left as it was;
        its parameters are float32 or float64.
    images : Tensor or ndarray, shape (N, C, H, W)
        At least ten images in [0, 1], floating-point. They are left as they are.
    labels : Tensor or ndarray, shape (N,), optional
        True classes, for accuracies.
    eps : float, default 8/255
        ℓ∞ bound of the attack, in [0, 1] pixel units.
    sigma : float, default 0.1
        Standard deviation of the noise, in [0, 1] pixel units. Noise is not clipped.
    corruptions : tuple of str, default all
        Kinds of :func:`robustbook.corruptions.corrupt`.
    severity : int, default 3
        Of the corruptions, 1 to 5.
    attack_steps : int, default 40
        Steps of PGD.
    noise_samples : int, default 512
        Noisy copies of each image, for average-case robustness; they are drawn in
        blocks of 64.
    margin_images : int, default 100
        How many of the images have their input margins measured, which costs most;
        all of them if there are fewer.
    skip : iterable of str, optional
        Lenses to leave out: "agreement", "average-case", "margins". Their numbers
        are None, and there are no agreements.
    seed : int, default 0
        Of the noise, of the attack's start, of the choice of images.
    batch_size : int, default 256
        Images at once; the result does not depend on it, rounding apart.
    checkpoint : path, optional
        A folder that keeps what is measured of each batch as soon as it is. A later
        call with the same model, images and options goes on where an earlier one
        stopped. Models are compared by their code, parameters, logits and gradients.
    progress : bool, default True
        Show a progress bar for each measure, on a terminal.
    device : str or torch.device, optional
        Where to run, "auto" for a CUDA device if there is one; where the model is
        by default. The result is on the CPU.

    Returns
    -------
    ThreeLenses
        The three measures, what they say of each image, and what they cost.

    Warns
    -----
    UserWarning
        If the model gives the same images other logits in another batch.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits are not finite.
    OSError
        If nothing can be written to `checkpoint`.
    ModuleNotFoundError
        If foolbox or pyautoattack is not installed: they come with
        ``robustbook[attacks]``.

    See Also
    --------
    robustbook.report.write_report

    References
    ----------
    Chapters 27 and 28 of this book.

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> from robustbook.models import load_model
    >>> test = load_dataset("digits", "test").subset(range(20))
    >>> seen = three_lenses(
    ...     load_model("digits-linear"), test.images, test.labels,
    ...     attack_steps=5, noise_samples=50, margin_images=5,
    ... )
    >>> seen.agreements["noise"].pa > seen.agreements["contrast"].pa
    True
    """
    settings = Settings(
        eps=check_positive("eps", eps),
        attack_steps=check_count("attack_steps", attack_steps),
        sigma=check_positive("sigma", sigma),
        noise_samples=check_count("noise_samples", noise_samples),
        corruptions=_check_corruptions(corruptions),
        severity=check_count("severity", severity),
        seed=check_count("seed", seed, minimum=0),
    )
    if seed >= 2**63:
        raise ValueError(f"seed: expected less than 2**63, got {seed}")
    check_count("margin_images", margin_images, minimum=2)
    check_count("batch_size", batch_size)
    lenses = [lens for lens in LENSES if lens not in check_skipped(skip)]
    check_model(model)
    if isinstance(model, type):
        raise TypeError(
            f"model: expected a model, got the class {model.__name__}; call it first"
        )
    clean = check_images(images).cpu()
    if len(clean) < FEWEST:
        raise ValueError(
            f"images: expected at least {FEWEST}, got {len(clean)}; standard errors "
            "of fewer mean nothing"
        )
    corrupt(clean[:1], settings.corruptions[0], severity=severity)
    place = find_device(model, clean, device)
    counted = CountedModel(model)
    clean = _as_the_model_wants(counted, clean)
    shifts = [ADVERSARIAL, NOISE, *settings.corruptions] * ("agreement" in lenses)
    everything = torch.arange(len(clean))
    key: dict[str, Any] = {}
    parts = Parts(
        counted,
        batch_size,
        count=1 + len(shifts) + len({"average-case", "margins"} & {*lenses}),
        key=key,
        checkpoint=checkpoint,
        progress=progress,
    )

    with _evaluated(counted):
        # Not kept, but what the others are kept under.
        logits = _logits(counted, clean, batch_size, place)
        _check_shift(CLEAN, logits, logits)
        if labels is not None:
            labels = check_labels(
                "labels", labels, length=len(clean), num_classes=logits.shape[1]
            ).cpu()
        passes = {CLEAN: Passes(1.0, 0.0)}
        _warn_of_chance(logits, _logits(model, clean[:5], batch_size, place))
        attackable = _attackable(counted, logits)
        if checkpoint is not None:
            key |= {
                "settings": vars(settings),
                "model": model_sum(model),
                "images": tensor_sum(clean),
                "logits": tensor_sum(logits),
                "gradients": tensor_sum(gradients(counted, clean[:2].to(place))),
                "device": place.type,
            }

        noisy = clean + sigma * _normal(clean, seed) if shifts else clean

        def under(shift: str, rows: Tensor) -> dict[str, Tensor]:
            if shift == ADVERSARIAL:
                inputs = pgd(
                    attackable, clean[rows], eps=eps, steps=attack_steps, seed=seed,
                    first=int(rows[0]), batch_size=batch_size, progress=False,
                    device=place,
                ).adversarial  # fmt: skip
            elif shift == NOISE:
                inputs = noisy[rows]
            else:
                inputs = corrupt(clean[rows], shift, severity=severity)
            answers = _logits(counted, inputs, batch_size, place)
            _check_shift(shift, answers, logits[rows])
            return {LOGITS: answers}

        shifted = {}
        for shift in shifts:
            tensors, passes[shift] = parts.measure(
                shift, everything, partial(under, shift)
            )
            shifted[shift] = tensors[LOGITS]
        robustness = None
        if "average-case" in lenses:

            def survival(rows: Tensor) -> dict[str, Tensor]:
                measured = monte_carlo(
                    counted, clean[rows], sigma, samples=noise_samples, seed=seed,
                    first=int(rows[0]), device=place,
                )  # fmt: skip
                return {name: getattr(measured, name) for name in _SURVIVAL}

            tensors, passes[AVERAGE_CASE] = parts.measure(
                AVERAGE_CASE, everything, survival
            )
            robustness = Robustness(
                sigma=torch.tensor(sigma).double(), method="monte_carlo", **tensors
            )
        measured, margins = everything[:0], None
        if "margins" in lenses:
            measured = _drawn(len(clean), margin_images, seed)

            def search(rows: Tensor) -> dict[str, Tensor]:
                margins = input_margin(
                    counted, clean[rows], seed=seed, batch_size=batch_size,
                    progress=False, device=place,
                )  # fmt: skip
                return {name: getattr(margins, name) for name in _MARGINS}

            tensors, passes[INPUT_MARGIN] = parts.measure(
                INPUT_MARGIN, measured, search
            )
            margins = InputMargins(norm="linf", **tensors)  # type: ignore[arg-type]
    free = logit_margin(logits)
    predicted = logits.argmax(dim=1)
    correct = None if labels is None else predicted == labels
    unchanged = None
    if shifts:
        unchanged = shifted[ADVERSARIAL].argmax(dim=1) == predicted
    return ThreeLenses(
        settings=settings,
        logits=logits,
        labels=labels,
        shifted_logits=shifted,
        agreements={
            name: posterior_agreement(logits, other) for name, other in shifted.items()
        },
        robustness=robustness,
        logit_margins=free,
        measured=measured,
        margins=margins,
        consistency=None if margins is None else _consistency(free[measured], margins),
        robust_share=_robust(unchanged, measured, margins, eps),
        robust_accuracy=None
        if correct is None
        else _robust(unchanged, measured, margins, eps, correct),
        passes=passes,
    )


def check_skipped(skip: Any) -> set[str]:
    """Return the lenses to leave out; one at least is measured."""
    skipped = {skip} if isinstance(skip, str) else {*skip}
    unknown = sorted(map(str, skipped - {*LENSES}))
    if unknown:
        raise ValueError(
            f"skip: expected some of {', '.join(LENSES)}; got {unknown[0]}"
        )
    if len(skipped) == len(LENSES):
        raise ValueError("skip: expected one lens at least to be left, got none")
    return skipped


def _check_corruptions(kinds: Any) -> tuple[str, ...]:
    named = isinstance(kinds, Iterable) and not isinstance(kinds, str | bytes)
    listed = [*kinds] if named else []
    if not listed:
        raise ValueError(
            f"corruptions: expected at least one of {', '.join(CORRUPTIONS)} in a "
            f"tuple, got {kinds!r}."
        )
    for kind in listed:
        if not isinstance(kind, str) or kind not in CORRUPTIONS:
            raise ValueError(
                f"corruptions: expected some of {', '.join(CORRUPTIONS)}; got {kind!r}."
            )
    return tuple(dict.fromkeys(map(str, listed)))


def _check_shift(name: str, logits: Tensor, clean: Tensor) -> None:
    """Refuse logits as soon as they are there, not when all is measured."""
    given = f"model's logits, {name}"
    check_logits(given, logits)
    if logits.shape != clean.shape:
        raise ValueError(
            f"{given}: expected the {clean.shape[1]} classes of the clean images, got "
            f"{logits.shape[1]}."
        )


def _warn_of_chance(logits: Tensor, again: Tensor) -> None:
    """Warn of a model whose logits depend on chance, or on the batch."""
    spread = float(logits.double().std())
    if again.shape[1] != logits.shape[1]:
        off = spread
    else:
        off = float((again - logits[: len(again)]).double().abs().max())
    if off > ROUNDING * spread:
        warnings.warn(
            "model: the same images had other logits in a smaller batch, so forward "
            "draws random numbers or mixes the images of a batch; the numbers measure "
            "that, too, and another run gives others.",
            UserWarning,
            stacklevel=3,
        )


class _Divided(nn.Module):
    def __init__(self, model: nn.Module, by: float) -> None:
        super().__init__()
        self.model, self.by = model, by
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits / self.by


def _attackable(model: nn.Module, logits: Tensor) -> nn.Module:
    """The model, or one with its predictions whose cross-entropy has a gradient."""
    lead = float(logit_margin(logits).max())
    return _Divided(model, lead / LARGEST_LEAD) if lead > LARGEST_LEAD else model


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each module gets back the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _as_the_model_wants(model: nn.Module, images: Tensor) -> Tensor:
    """Images in the type of the parameters; of a function, in their own."""
    kinds = (p.dtype for p in model.parameters() if p.is_floating_point())
    kind = next(kinds, None)
    if kind not in (None, torch.float32, torch.float64):
        raise TypeError(
            f"model: expected parameters in float32 or float64, got {kind}; call "
            "model.float() first."
        )
    if kind is None and images.dtype not in (torch.float32, torch.float64):
        return images.float()
    return images if kind is None else images.to(kind)


@torch.no_grad()
def _logits(
    model: Model, images: Tensor, batch_size: int, place: torch.device
) -> Tensor:
    parts = torch.split(images, batch_size)
    return torch.cat([ask_model(model, part.to(place)).cpu() for part in parts])


def _normal(images: Tensor, seed: int) -> Tensor:
    drawn = np.random.default_rng([seed, 0]).standard_normal(images.shape)
    return as_tensor("noise", drawn).to(images)


def _drawn(count: int, wanted: int, seed: int) -> Tensor:
    """Images to be measured, in the order drawn."""
    order = np.random.default_rng([seed, 1]).permutation(count)
    return as_tensor("order", order[:wanted])


def _consistency(free: Tensor, margins: InputMargins) -> Consistency | None:
    found = margins.margins.cpu()
    if (
        len(found) < 3
        or torch.equal(free.min(), free.max())
        or torch.equal(found.min(), found.max())
    ):
        return None
    return margin_consistency(free, found)


def _robust(
    unchanged: Tensor | None,
    measured: Tensor,
    margins: InputMargins | None,
    eps: float,
    counted: Tensor | None = None,
) -> Share | None:
    """The share that no change up to `eps` was found for, of what was measured.

    Of PGD on all images and of the search for margins on some: of both, or of the one
    that was not left out. `counted` are the images that count as anything but 0.
    """
    if unchanged is None:
        if margins is None:
            return None
        unchanged = torch.ones(len(measured), dtype=torch.bool)
        counted = None if counted is None else counted[measured]
        measured = torch.arange(len(measured))
    if counted is not None:
        unchanged = unchanged & counted
    return _share(unchanged, measured, margins, eps)


def _share(
    withstood: Tensor, measured: Tensor, margins: InputMargins | None, eps: float
) -> Share:
    """A share of the images, with an interval for where they come from.

    All images were attacked; `withstood` says which of those that count kept their
    prediction. Of some, the margin was measured, and the search found a change for a
    few more: their share is subtracted. Two variances add up, that of these few, who
    were drawn, and that of the images; they stand for fewer images in Wilson's
    interval.
    """
    count, drawn = len(withstood), len(measured)
    if margins is None:
        return wilson(withstood)
    more = withstood[measured] & (margins.margins.cpu() <= eps)
    value = float(withstood.double().mean() - more.double().mean())
    value = min(1.0, max(0.0, value))
    # As Agresti and Coull do it: none among the drawn is no proof of none.
    few = (int(more.sum()) + 2) / (drawn + 4)
    variance = few * (1 - few) / drawn * (1 - drawn / count)
    spread = value * (1 - value)
    enough = count
    if spread > 0:
        enough = max(1, round(spread / (spread / count + variance)))
    elif drawn < count and bool(withstood.any()):
        enough = drawn
    interval = binomtest(round(value * enough), enough).proportion_ci(method="wilson")
    return Share(value, (float(interval.low), float(interval.high)))
