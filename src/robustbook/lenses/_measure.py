"""Measure one model with all three lenses, on the same images."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import (
    PROBABILITIES,
    are_probabilities,
    as_tensor,
    check_bound,
    check_count,
    check_labels,
    check_positive,
)
from robustbook._checks.images import check_images
from robustbook._checks.models import Model, check_model, find_device
from robustbook.agreement import posterior_agreement
from robustbook.attacks.engine import DOCS
from robustbook.average_case import Robustness
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.lenses import _result, _subject
from robustbook.margins import InputMargins, logit_margin

#: Fewer images have no standard error worth the name.
FEWEST: Final = 10

#: What moves a logit by more than this share of the spread of all is no rounding.
ROUNDING: Final = 0.01


@DOCS.fill
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
) -> _result.ThreeLenses:
    """Measure a model with all :class:`ThreeLenses`, on the same images.

    Posterior Agreement between the images and shifted ones: attacked by PGD, with
    Gaussian noise, and with each corruption. Average-case robustness under that noise.
    Input margins of some images, and how well logit margins order them. Attacks go
    against the model's own predictions; if its cross-entropy is flat, PGD sees its
    logits divided by a constant.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, C, H, W) in [0, 1]; normalization belongs
        inside of it. A module is evaluated in evaluation mode and left as it was; its
        parameters are float32 or float64.
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
        Noisy copies of each image, for average-case robustness, drawn in blocks of 64.
    margin_images : int, default 100
        How many of the images have their input margins measured, which costs most.
    skip : iterable of str, optional
        Lenses to leave out: "agreement", "average-case", "margins".
    seed : int, default 0
        Of the noise, of the attack's start, of the choice of images.
    {batch_size}
    checkpoint : path, optional
        A folder that keeps what is measured of each batch as soon as it is. A later
        call with the same model, images and options goes on from there. Models are
        compared by their code, parameters, logits and gradients.
    progress : bool, default True
        Show a progress bar for each measure, on a terminal.
    device : str or torch.device, optional
        Where to run, "auto" for a CUDA device if there is one; where the model is by
        default. The result is on the CPU.

    Warns
    -----
    UserWarning
        If the model gives the same images other logits in another batch, names one
        class for all of them, or returns probabilities.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits are not finite.
    OSError
        If nothing can be written to `checkpoint`.
    {ModuleNotFoundError}

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> from robustbook.models import load_model
    >>> test = load_dataset("digits", "test").subset(range(20))
    >>> measured = three_lenses(
    ...     load_model("digits-linear"), test.images, test.labels,
    ...     attack_steps=5, noise_samples=50, margin_images=5,
    ... )
    >>> measured.agreements["noise"].pa > measured.agreements["contrast"].pa
    True
    """
    settings = _result.Settings(
        eps=check_bound("eps", eps),
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
    lenses = {*_result.LENSES} - _check_skipped(skip)
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
    counted = _subject.CountedModel(model)
    clean = _subject.as_the_model_wants(counted, clean)
    everything, drawn = torch.arange(len(clean)), torch.arange(0)
    if "margins" in lenses:
        drawn = _drawn(len(clean), margin_images, seed)
    with _subject.evaluated(counted):
        logits = _subject.logits_of(counted, clean, batch_size, place)
        _subject.check_shift(_result.CLEAN, logits, logits)
        if labels is not None:
            labels = check_labels(
                "labels", labels, length=len(clean), num_classes=logits.shape[1]
            ).cpu()
        _warn(logits, _subject.logits_of(model, clean[:5], batch_size, place))
        subject = _subject.Subject(counted, clean, logits, settings, batch_size, place)
        # What is measured of which images, in this order; each is kept under its name.
        steps: dict[str, tuple[Tensor, Callable[[Tensor], _subject.Tensors]]] = {}
        if "agreement" in lenses:
            for shift in (_result.ADVERSARIAL, _result.NOISE, *settings.corruptions):
                steps[shift] = everything, partial(subject.under, shift)
        if "average-case" in lenses:
            steps[_result.AVERAGE_CASE] = everything, subject.survival
        if "margins" in lenses:
            steps[_result.INPUT_MARGIN] = drawn, subject.margins
        parts = _subject.Parts(
            subject, len(steps), checkpoint=checkpoint, progress=progress
        )
        tensors, passes = {}, {_result.CLEAN: _result.Passes(1.0, 0.0)}
        for name, (rows, measure) in steps.items():
            tensors[name], passes[name] = parts.measure(name, rows, measure)
    return _assembled(subject, labels, drawn, tensors, passes)


def _assembled(
    subject: _subject.Subject,
    labels: Tensor | None,
    drawn: Tensor,
    tensors: dict[str, _subject.Tensors],
    passes: dict[str, _result.Passes],
) -> _result.ThreeLenses:
    settings, logits = subject.settings, subject.logits
    predicted, free = logits.argmax(dim=1), logit_margin(logits)
    shifted = {
        name: t[_subject.LOGITS] for name, t in tensors.items() if _subject.LOGITS in t
    }
    robustness = margins = unchanged = None
    if _result.AVERAGE_CASE in tensors:
        sigma = torch.tensor(settings.sigma).double()
        robustness = Robustness(
            sigma=sigma, method="monte_carlo", **tensors[_result.AVERAGE_CASE]
        )
    if _result.INPUT_MARGIN in tensors:
        margins = InputMargins(norm="linf", **tensors[_result.INPUT_MARGIN])  # type: ignore[arg-type]
    if shifted:
        unchanged = shifted[_result.ADVERSARIAL].argmax(dim=1) == predicted
    robust = partial(_result.robust_share, unchanged, drawn, margins, settings.eps)
    return _result.ThreeLenses(
        settings=settings,
        logits=logits,
        labels=labels,
        shifted_logits=shifted,
        agreements={n: posterior_agreement(logits, x) for n, x in shifted.items()},
        robustness=robustness,
        logit_margins=free,
        measured=drawn,
        margins=margins,
        consistency=_result.consistency_of(free[drawn], margins),
        robust_share=robust(),
        robust_accuracy=None if labels is None else robust(predicted == labels),
        passes=passes,
    )


def _check_skipped(skip: Any) -> set[str]:
    """Return the lenses to leave out; one at least is measured."""
    skipped = {skip} if isinstance(skip, str) else {*skip}
    unknown = sorted(map(str, skipped - {*_result.LENSES}))
    if unknown:
        raise ValueError(
            f"skip: expected some of {', '.join(_result.LENSES)}; got {unknown[0]}"
        )
    if len(skipped) == len(_result.LENSES):
        raise ValueError("skip: expected one lens at least to be left, got none")
    return skipped


def _check_corruptions(kinds: Any) -> tuple[str, ...]:
    named = isinstance(kinds, Iterable) and not isinstance(kinds, str | bytes)
    listed = [*kinds] if named else []
    if not listed or not all(kind in [*CORRUPTIONS] for kind in listed):
        raise ValueError(
            f"corruptions: expected at least one of {', '.join(CORRUPTIONS)} in a "
            f"tuple, got {kinds!r}"
        )
    return tuple(dict.fromkeys(map(str, listed)))


def _warn(logits: Tensor, again: Tensor) -> None:
    """Warn of a constant, of probabilities, and of logits that vary by the batch."""
    predicted = logits.argmax(dim=1)
    if bool((predicted == predicted[0]).all()):
        warnings.warn(
            f"model: it names class {int(predicted[0])} for all {len(logits)} images; "
            "agreement and robustness of a constant say nothing of what it has learned",
            UserWarning,
            stacklevel=3,
        )
    if are_probabilities(logits):
        warnings.warn(f"model: {PROBABILITIES}", UserWarning, stacklevel=3)
    spread = float(logits.double().std())
    off = spread
    if again.shape[1] == logits.shape[1]:
        off = float((again - logits[: len(again)]).double().abs().max())
    if off > ROUNDING * spread:
        warnings.warn(
            "model: the same images had other logits in a smaller batch, so forward "
            "draws random numbers or mixes the images of a batch; the numbers measure "
            "that, too, and another run gives others",
            UserWarning,
            stacklevel=3,
        )


def _drawn(count: int, wanted: int, seed: int) -> Tensor:
    order = np.random.default_rng([seed, 1]).permutation(count)
    return as_tensor("order", order[:wanted])
