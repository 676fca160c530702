"""The mean corruption error."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from robustbook._checks.arguments import ArrayLike, as_real

#: Errors of AlexNet on ImageNet-C, means over five severities, and on clean pictures,
#: as published by Hendrycks and Dietterich.
ALEXNET: Final[Mapping[str, float]] = MappingProxyType(
    {
        "clean": 0.435,
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    }
)


def mean_corruption_error(
    errors: Mapping[str, ArrayLike],
    *,
    clean: float | None = None,
    baseline: Mapping[str, ArrayLike] | None = None,
) -> float:
    """Return the mean corruption error (mCE), or the relative one.

    For each kind of corruption, the error is averaged over severities and divided by
    that of a baseline; then the kinds are averaged. On ImageNet-C the baseline is
    :data:`ALEXNET`, and the ratio is printed in percent. On CIFAR-10-C one takes none:
    the mean error itself. With `clean`, it is the relative mCE: both the error and that
    of the baseline are what they exceed the error on clean images by.

    Parameters
    ----------
    errors : mapping of str to float or array
        Errors in [0, 1] by kind of corruption: one for each severity, or their mean.
    clean : float, optional
        Error on clean images, for the relative mCE.
    baseline : mapping of str to float or array, optional
        Errors of the baseline by kind; for the relative mCE also its error on "clean"
        images.

    Raises
    ------
    TypeError, ValueError
        If errors are not numbers in [0, 1], there are none, or the baseline lacks a
        kind or makes no more errors than on clean images.

    Examples
    --------
    >>> errors = {"fog": [0.2, 0.4], "snow": [0.3, 0.5]}
    >>> round(mean_corruption_error(errors), 3)
    0.35
    >>> round(mean_corruption_error(errors, clean=0.1), 3)
    0.25
    >>> round(mean_corruption_error(errors, baseline=ALEXNET), 3)
    0.414
    """
    if not errors:
        raise ValueError("errors: expected at least one kind of corruption, got none")
    means = {kind: _mean_error(f"errors[{kind!r}]", e) for kind, e in errors.items()}
    before = 0.0 if clean is None else _mean_error("clean", clean)
    if baseline is None:
        return float(np.mean([mean - before for mean in means.values()]))
    needed = [*means] if clean is None else [*means, "clean"]
    lacking = [kind for kind in needed if kind not in baseline]
    if lacking:
        raise ValueError(
            f"baseline: expected errors for {', '.join(needed)}; {lacking[0]!r} is "
            "missing: add it, or leave out the baseline"
        )
    theirs = {k: _mean_error(f"baseline[{k!r}]", baseline[k]) for k in needed}
    base = 0.0 if clean is None else theirs["clean"]
    for kind in means:
        if theirs[kind] <= base:
            raise ValueError(
                f"baseline[{kind!r}]: expected an error above {base:g}, got "
                f"{theirs[kind]:g}; leave out this kind"
            )
    return float(np.mean([(means[k] - before) / (theirs[k] - base) for k in means]))


def _mean_error(name: str, value: ArrayLike) -> float:
    errors = as_real(name, value)
    if not errors.numel() or not bool(((errors >= 0) & (errors <= 1)).all()):
        raise ValueError(
            f"{name}: expected errors in [0, 1], got {value!r}; divide percent by 100"
        )
    return float(errors.mean())
