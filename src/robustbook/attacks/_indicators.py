"""Indicators of attack failure: why a gradient attack left some images right."""

from __future__ import annotations

from functools import partial
from typing import Final, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from robustbook import _defaults as defaults
from robustbook._checks.arguments import ArrayLike, check_bound, check_count
from robustbook._checks.models import Model
from robustbook.attacks.engine import Batch, Classifier, Options, run_attack

#: Random points that test whether the loss is stable, within this share of eps.
_POINTS: Final = 8
_NEARBY: Final = 0.1
#: A loss that changes by more than this share from point to point is unstable.
_UNSTABLE: Final = 0.1
#: The loss still rises if the last tenth of the steps adds more than this share.
_RISING: Final = 0.01

_NAMES: Final = ("unavailable", "unstable", "silent", "incomplete", "transfer")


def failure_indicators(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    steps: int = defaults.ATTACK_STEPS,
    surrogate: Model | None = None,
    **options: Unpack[Options],
) -> dict[str, Tensor]:
    """Attack with PGD, and name what may explain each image that it leaves right.

    A small robust share of images that carry an indicator is no evidence against the
    attack; a large one says that robust accuracy was overestimated, and by which cure:
    a surrogate with a gradient, another loss, more steps, the best point of the path.

    Source: M. Pintor et al., "Indicators of attack failure", NeurIPS 2022, with
    thresholds of this package; Chapter 10.

    Parameters
    ----------
    model, images, labels, eps, steps, **options
        As for :func:`pgd`, in ℓ∞; without a progress bar by default.
    surrogate : callable, optional
        The network whose gradient is followed; by default the model itself.

    Returns
    -------
    dict of str to Tensor, each of shape (N,), bool
        "failed": the model is right in the end. Among these images:

        - "unavailable": the gradient at the clean image is exactly zero;
        - "unstable": within eps / 10 the loss changes by more than a tenth of itself;
        - "silent": the model was wrong at an earlier point of the path;
        - "incomplete": the last tenth of the steps adds more than 1 % of the rise of
          the loss;
        - "transfer": the surrogate is wrong in the end, the model is not;
        - "unconstrained": the attack fails with eps = 1, too.

    Raises
    ------
    TypeError, ValueError
        As :func:`pgd`.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> model = load_model("digits-linear")
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> loud = failure_indicators(lambda x: 1e4 * model(x), images, eps=0.01)
    >>> {name: bool(mask) for name, mask in loud.items() if mask}
    {'failed': True, 'unavailable': True}
    """
    check_bound("eps", eps)
    check_count("steps", steps)
    options = {"progress": False, **options}
    attack = partial(run_attack, attack="indicators", **options)

    def everywhere(batch: Batch) -> Tensor:
        return _follow(batch, surrogate, 1.0, steps)[0]

    free = attack(everywhere, model, images, labels)
    masks = {name: torch.zeros_like(free.success) for name in _NAMES}

    def perturb(batch: Batch) -> Tensor:
        last, seen = _follow(batch, surrogate, eps, steps)
        for name, mask in seen.items():
            masks[name][batch.indices] = mask.to(free.success.device)
        return last

    failed = ~attack(perturb, model, images, labels).success
    masks["unconstrained"] = ~free.success
    return {"failed": failed, **{name: m & failed for name, m in masks.items()}}


def _follow(
    batch: Batch, surrogate: Model | None, eps: float, steps: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run PGD on a batch; return its last images and what was seen on the way."""
    source = batch.model
    if surrogate is not None:
        source = Classifier(surrogate, batch.images.dtype)

    def losses(model: Classifier, images: Tensor) -> Tensor:
        return functional.cross_entropy(model(images), batch.labels, reduction="none")

    def gradient(images: Tensor) -> Tensor:
        inner = images.detach().requires_grad_()
        (slope,) = torch.autograd.grad(losses(source, inner).sum(), inner)
        return slope

    clean = batch.images
    unavailable = (gradient(clean) == 0).flatten(1).all(1)
    before = losses(batch.model, clean)
    changes = torch.zeros_like(before)
    for point in range(_POINTS):
        nearby = clean + _NEARBY * eps * batch.random_points("linf", point + 1)
        changes += (losses(batch.model, nearby.clamp(0, 1)) - before).abs() / _POINTS
    low, high = (clean - eps).clamp(min=0), (clean + eps).clamp(max=1)
    moved = torch.clamp(clean + eps * batch.random_points("linf"), low, high)
    best = [losses(batch.model, moved)]
    silent = torch.zeros_like(unavailable)
    for _ in range(steps):
        silent |= batch.fools(moved)
        step = 2.5 * eps / steps * gradient(moved).sign()
        moved = torch.clamp(moved + step, low, high)
        best.append(torch.maximum(best[-1], losses(batch.model, moved)))
    late = best[-1] - best[-1 - max(1, steps // 10)]
    return moved, {
        "unavailable": unavailable,
        "unstable": changes > _UNSTABLE * before,
        "silent": silent,
        "incomplete": late > _RISING * (best[-1] - best[0]),
        "transfer": source(moved).argmax(1) != batch.labels,
    }
