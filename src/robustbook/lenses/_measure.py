"""Measure one model with all three lenses, on the same images."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from robustbook import _defaults as defaults
from robustbook._checks.arguments import (
    PROBABILITIES,
    ArrayLike,
    are_probabilities,
    check_count,
    check_labels,
)
from robustbook._checks.images import check_images
from robustbook._checks.models import Model, evaluation_mode, find_device, model_dtype
from robustbook.agreement import posterior_agreement
from robustbook.average_case import monte_carlo
from robustbook.lenses import _evaluator, _result
from robustbook.lenses._evaluator import Evaluator
from robustbook.lenses._result import AVERAGE_CASE, INPUT_MARGIN, Passes, Settings
from robustbook.lenses._resume import cache_key, resumed
from robustbook.margins import input_margin, logit_margin

#: With fewer images, standard errors mean nothing.
FEWEST: Final = 10

#: A difference between two evaluations of at most this share of the logits' standard
#: deviation is rounding.
ROUNDING: Final = 0.01


def three_lenses(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float = defaults.EPS,
    sigma: float = defaults.SIGMA,
    corruptions: tuple[str, ...] = _result.DEFAULT_CORRUPTIONS,
    severity: int = defaults.SEVERITY,
    attack_steps: int = defaults.ATTACK_STEPS,
    noise_samples: int = defaults.NOISE_SAMPLES,
    margin_images: int = defaults.MARGIN_IMAGES,
    skip: str | Iterable[str] = (),
    seed: int = 0,
    batch_size: int = 256,
    progress: bool = True,
    device: str | torch.device | None = None,
    resume: bool = False,
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
        Returns logits (n, K) for images (n, C, H, W) in [0, 1]; normalization belongs
        inside the model. A module is measured in evaluation mode and then gets its
        former mode back; its parameters are float32 or float64.
    images : Tensor or ndarray, shape (N, C, H, W)
        At least ten images in [0, 1], floating-point.
    labels : Tensor or ndarray, shape (N,), optional
        True classes, for accuracies.
    eps : float, default 8/255
        ℓ∞ radius of the attack, for pixels in [0, 1].
    sigma : float, default 0.1
        Standard deviation of the noise, for pixels in [0, 1]. Noise is not clipped.
    corruptions : tuple of str
        Kinds of :func:`robustbook.corruptions.corrupt`; by default "shot_noise",
        "motion_blur", "fog", "contrast" and "pixelate", of its fifteen.
    severity : int, default 3
        Severity of the corruptions, 1 to 5.
    attack_steps : int, default 40
        Steps of PGD.
    noise_samples : int, default 256
        Noisy copies of each image, for average-case robustness, drawn in blocks of 64.
    margin_images : int, default 100
        How many of the images have their input margins measured, which costs most.
    skip : str or iterable of str, optional
        Lenses to leave out: "agreement", "average-case", "margins". Commas separate
        several in one string.
    seed : int, default 0
        Seed of the noise, of the corruptions, of the start of the attack, and of the
        choice of images.
    batch_size : int, default 256
        How many images are evaluated at once. It changes the result by rounding only.
    progress : bool, default True
        Show progress bars, on a terminal.
    device : str or torch.device, optional
        Where to run: "auto" for a CUDA device if there is one; by default where the
        model is. The result is on the CPU.
    resume : bool, default False
        Keep each finished measure in the cache (the folder ROBUSTBOOK_CACHE): after an
        interruption, the same call goes on with the next one.

    Warns
    -----
    UserWarning
        If the model returns other logits for the same images in another batch, if it
        predicts one class for all of them, or if it returns probabilities.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits are not finite.
    ModuleNotFoundError
        If foolbox or pyautoattack is not installed: ``robustbook[attacks]`` has them.

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
    settings = Settings(
        eps, attack_steps, sigma, noise_samples, corruptions, severity, seed
    )
    check_count("margin_images", margin_images, minimum=2)
    check_count("batch_size", batch_size)
    clean = check_images(images).cpu()
    if len(clean) < FEWEST:
        raise ValueError(
            f"images: expected at least {FEWEST}, got {len(clean)}; standard errors "
            "of fewer mean nothing"
        )
    skip = defaults.parse_skip(skip)
    if isinstance(model, type):
        raise TypeError(
            f"model: expected a model, got the class {model.__name__}; call it first"
        )
    place = find_device(model, clean, device)
    counted = _evaluator.CountedModel(model)
    clean = clean.to(model_dtype(counted) or clean.dtype)
    drawn = torch.arange(0)
    if "margins" not in skip:
        order = np.random.default_rng([settings.seed, 1]).permutation(len(clean))
        drawn = torch.from_numpy(order[:margin_images])
    with evaluation_mode(counted):
        logits = _evaluator.compute_logits(counted, clean, batch_size, place)
        _evaluator.check_shifted_logits(_result.CLEAN, logits, logits.shape[1])
        true = None
        if labels is not None:
            true = check_labels(
                "labels", labels, length=len(clean), num_classes=logits.shape[1]
            ).cpu()
        _warn(logits, _evaluator.compute_logits(model, clean[:5], batch_size, place))
        options: dict[str, Any] = {"seed": settings.seed, "device": place}
        search = options | {"batch_size": batch_size, "progress": progress}
        evaluator = Evaluator(counted, clean, logits, settings, search)
        measures: dict[str, Callable[[], Any]] = {}
        if "agreement" not in skip:
            for shift in (_result.ADVERSARIAL, _result.NOISE, *settings.corruptions):
                measures[shift] = partial(evaluator.shifted_logits, shift)
        if "average-case" not in skip:
            survival = partial(monte_carlo, counted, clean, settings.sigma, **options)
            measures[AVERAGE_CASE] = partial(survival, samples=settings.noise_samples)
        if "margins" not in skip:
            attack = partial(input_margin, counted, clean[drawn], **search)
            measures[INPUT_MARGIN] = lambda: attack().margins.cpu()
        if resume:
            key = cache_key(model, settings, place, clean, logits, drawn)
        results: dict[str, Any] = {}
        passes = {_result.CLEAN: Passes(1.0, 0.0)}
        # With None, tqdm shows the bar on a terminal only.
        hidden = None if progress else True
        for name in tqdm(measures, "measures", leave=False, disable=hidden):
            count = len(drawn) if name == INPUT_MARGIN else len(clean)
            measure = partial(counted.count, measures[name], per=count)
            if resume:
                measure = partial(resumed, key, name, measure)
            results[name], passes[name] = measure()
    predicted, logit_margins = logits.argmax(dim=1), logit_margin(logits)
    robustness = results.pop(AVERAGE_CASE, None)
    margins = results.pop(INPUT_MARGIN, None)
    unchanged = None
    if results:
        unchanged = results[_result.ADVERSARIAL].argmax(dim=1) == predicted
    robust = partial(_result.robust_share, unchanged, drawn, margins, settings.eps)
    return _result.ThreeLenses(
        settings=settings,
        logits=logits,
        labels=true,
        shifted_logits=results,
        agreements={n: posterior_agreement(logits, x) for n, x in results.items()},
        robustness=robustness,
        logit_margins=logit_margins,
        measured=drawn,
        margins=margins,
        consistency=_result.consistency_of(logit_margins[drawn], margins),
        robust_share=robust(),
        robust_accuracy=None if true is None else robust(predicted == true),
        passes=passes,
    )


def _warn(logits: Tensor, logits_again: Tensor) -> None:
    """Warn of a constant model, of probabilities, and of logits that vary by batch."""
    predicted, remarks = logits.argmax(dim=1), []
    if bool((predicted == predicted[0]).all()):
        remarks.append(
            f"it names class {int(predicted[0])} for all {len(logits)} images; "
            "agreement and robustness of a constant say nothing about what it learned"
        )
    if are_probabilities(logits):
        remarks.append(PROBABILITIES)
    spread = float(logits.double().std())
    difference = (logits_again - logits[: len(logits_again)]).double().abs()
    if float(difference.max()) > ROUNDING * spread:
        remarks.append(
            "the same images had other logits in a smaller batch, so forward draws "
            "random numbers or mixes the images of a batch; the numbers measure that, "
            "too, and another run gives others"
        )
    for remark in remarks:
        warnings.warn(f"model: {remark}", UserWarning, stacklevel=3)
