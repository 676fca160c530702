"""Long adversarial training: of color images, with everything that makes it short.

Behind ``python -m robustbook.training cifar10-adversarial``. What it has beyond
:func:`robustbook.training.train_classifier`: shifted and mirrored images, momentum
with a trapezoid of learning rates, averaged weights, arithmetic in bfloat16, and a
file from which an interrupted training goes on without loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from robustbook._checks.arguments import check_count, check_fraction, check_positive
from robustbook.datasets import Dataset

__all__ = ["LongTraining", "mirror_and_shift", "train_long", "trapezoid"]

_Loss = Callable[[Any, Tensor, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class LongTraining:
    """What a long training has beyond a plain one.

    Attributes
    ----------
    step_size : float
        Step of the attack, in [0, 1] pixel units.
    momentum, weight_decay : float
        Of stochastic gradient descent, with Nesterov's momentum.
    warm_up : float
        Epochs in which the learning rate rises to its peak.
    cool_down : float
        Share of all epochs, at the end, in which it falls to zero.
    averaging : float
        What the averaged weights keep of themselves in a step.
    padding : int
        Pixels by which an image is shifted at most; 0 for none, and no mirroring.
    held_out : int
        Images at the end of the training set that are not trained on; robust
        accuracy on them is told after every epoch.
    """

    step_size: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warm_up: float = 1.0
    cool_down: float = 0.5
    averaging: float = 0.998
    padding: int = 4
    held_out: int = 200


def mirror_and_shift(
    images: Tensor, padding: int, *, generator: torch.Generator
) -> Tensor:
    """Mirror every other image and shift all, at random; black comes in at the edge.

    Parameters
    ----------
    images : Tensor, shape (n, C, H, W)
        Images.
    padding : int
        Pixels by which an image moves at most, up, down, left or right.
    generator : torch.Generator
        A CPU generator; the source of shifts and mirrorings.

    Returns
    -------
    Tensor, shape (n, C, H, W)
        The new images.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> mirror_and_shift(torch.ones(2, 3, 8, 8), 1, generator=generator).shape
    torch.Size([2, 3, 8, 8])
    """
    n, _, height, width = images.shape
    down, right = torch.randint(2 * padding + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.arange(width).expand(n, width)
    columns = right + torch.where(mirrored, columns.flip(1), columns)
    rows = down + torch.arange(height)
    padded = F.pad(images, (padding,) * 4).permute(0, 2, 3, 1)
    which = torch.arange(n)[:, None, None]
    moved: Tensor = padded[which, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)  # the channels are last in memory


def trapezoid(step: int, *, steps: int, rise: int, fall: int) -> float:
    """Share of the peak learning rate: up, level, and down to zero in straight lines.

    Parameters
    ----------
    step : int
        Steps done.
    steps : int
        Steps of the whole training.
    rise, fall : int
        Steps of the ascent and of the descent.

    Returns
    -------
    float
        In (0, 1]; 0 after the last step.

    Examples
    --------
    >>> [trapezoid(s, steps=8, rise=2, fall=4) for s in range(9)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return max(0.0, min((step + 1) / rise, 1.0, (steps - step) / fall))


def train_long(
    model: nn.Module,
    dataset: Dataset,
    *,
    loss: _Loss,
    eps: float,
    epochs: int,
    lr: float,
    seed: int,
    batch_size: int,
    options: LongTraining,
    resume: Path | None = None,
    stop_after: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[float]:
    """Train a classifier for many epochs; go on where an earlier call was cut off.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Afterwards it has the averaged weights and is in evaluation mode.
    dataset : Dataset
        Training images and labels.
    loss : callable
        What to minimize, as for :func:`robustbook.training.train_classifier`.
    eps : float
        Size of the perturbations under which held-out images are classified.
    epochs : int
        Passes over the data.
    lr : float
        Peak learning rate.
    seed : int
        Seed of the order, of shifts and mirrorings, and of what is random in the
        loss.
    batch_size : int
        Samples in a step.
    options : LongTraining
        The rest.
    resume : Path, optional
        Where to keep what is needed to go on, after each epoch. If the file is there,
        training goes on from it, and ends with the same weights as without a break.
        It belongs to one set of options, but more or fewer `epochs` are
        allowed as long as the learning rate has not begun to fall.
    stop_after : int, optional
        Leave after this epoch with the weights of then.
    tell : callable, optional
        Called with a line of text after each epoch.

    Returns
    -------
    list of float
        The mean training loss of each epoch.

    Raises
    ------
    ValueError
        If `resume` is of another training, or there are too few images.
    FloatingPointError
        If the loss is no longer a finite number.
    """
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_positive("lr", lr)
    check_fraction("cool_down", options.cool_down)
    size = len(dataset) - options.held_out
    if size < 1:
        raise ValueError(
            f"dataset: expected more than the {options.held_out} images that are "
            f"held out, got {len(dataset)}"
        )
    batches = -(-size // batch_size)
    steps = epochs * batches
    rise = max(1, round(options.warm_up * batches))
    fall = max(1, round(options.cool_down * steps))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(
        model.train().parameters(),
        lr=lr,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        nesterov=True,
    )
    keep: Any = get_ema_multi_avg_fn(options.averaging)  # type: ignore[no-untyped-call]
    average = AveragedModel(model, multi_avg_fn=keep, use_buffers=True)
    losses: list[float] = []
    identity = {
        **asdict(options),
        **{"lr": lr, "seed": seed, "batch_size": batch_size, "eps": eps, "size": size},
    }
    parts: dict[str, Any] = {"model": model, "average": average, "optimizer": optimizer}
    if resume is not None and resume.is_file():
        state = torch.load(resume, weights_only=True)
        _check_same(state, identity, resume, steps=steps, fall=fall, batches=batches)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        generator.set_state(state["generator"])
        losses = state["losses"]

    def half(images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = model(images)
        return logits.float()

    while len(losses) < min(epochs, stop_after or epochs):
        total = 0.0
        order = torch.randperm(size, generator=generator)
        for batch in range(batches):
            index = order[batch * batch_size : (batch + 1) * batch_size]
            done = len(losses) * batches + batch
            rate = lr * trapezoid(done, steps=steps, rise=rise, fall=fall)
            for group in optimizer.param_groups:
                group["lr"] = rate
            images, labels = dataset.images[index], dataset.labels[index]
            if options.padding:
                images = mirror_and_shift(images, options.padding, generator=generator)
            value = loss(half, images, labels, generator)
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call, unused-ignore]
            optimizer.step()
            average.update_parameters(model)
            total += value.item() * len(index)
        if not math.isfinite(total):
            raise FloatingPointError(
                f"the training loss is {total} in epoch {len(losses) + 1} of {epochs}; "
                f"expected a finite number: try an lr below {lr:g}"
            )
        losses.append(total / size)
        if resume is not None:
            state = {name: part.state_dict() for name, part in parts.items()}
            state |= {"generator": generator.get_state(), "losses": losses}
            state |= {"identity": identity, "steps": steps, "fall": fall}
            written = resume.with_suffix(".part")
            torch.save(state, written)
            written.replace(resume)
        if tell is not None:
            line = f"epoch {len(losses)} of {epochs}: loss {losses[-1]:.4f}"
            if options.held_out:
                held_out = dataset.subset(range(size, len(dataset)))
                average.module.eval()
                clean, robust = _accuracies(average.module, held_out, eps)
                line += f"; held out: accuracy {clean:.3f}, robust {robust:.3f}"
            tell(line)
    model.load_state_dict(average.module.state_dict())
    model.eval()
    return losses


def _check_same(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    path: Path,
    *,
    steps: int,
    fall: int,
    batches: int,
) -> None:
    """Refuse to go on with a training that was begun otherwise."""
    remedy = f"delete {path} to begin anew"
    if state["identity"] != identity:
        raise ValueError(
            f"resume: expected a training with {dict(identity)}, got one with "
            f"{state['identity']}; {remedy}"
        )
    done = len(state["losses"]) * batches
    level = min(steps - fall, state["steps"] - state["fall"])
    if steps != state["steps"] and done > level:
        raise ValueError(
            f"resume: expected a training of as many epochs, as its learning rate "
            f"falls already; {remedy}"
        )


def _accuracies(model: nn.Module, data: Dataset, eps: float) -> tuple[float, float]:
    """Accuracy without and with an attack by PGD of ten steps."""
    from robustbook.attacks import pgd
    from robustbook.models import logits_of
    from robustbook.scores import accuracy

    clean = accuracy(logits_of(model, data.images), data.labels)
    result = pgd(model, data.images, data.labels, eps=eps, steps=10, progress=False)
    return clean, result.robust_accuracy()
