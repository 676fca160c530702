"""The ensemble of minimum-norm attacks behind :func:`input_margin`.

The first pass runs targeted FMN and FAB for the few classes whose boundaries are
nearest to first order. The second pass goes for the class that turned out nearest: FAB
with more steps where it did better than FMN, then FMN from the best image so far.
Vanishing gradients stop FMN but not FAB; elsewhere FMN gets closer.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from robustbook.attacks.engine import Batch, Norm, distances

#: The attacks that can find a margin, "none" where all failed. The attack after a plus
#: shortened what the one before it found.
ATTACKS: Final = ("none", "fmn", "fab", "fmn+fmn", "fab+fmn", "line", "line+fmn")

#: Lengths of FMN's first step: the long one gets closer on most networks.
LONG_STEP: Final = 10.0
SHORT_STEP: Final = 1.0
#: Halvings of FAB's results before they are compared, as FAB overshoots by 5 %.
HALVINGS: Final = 4
#: Share by which a perturbation is stretched in the end, so that rounding does not
#: undo it.
PUSH: Final = 1e-4
#: Number of the likeliest classes whose gradients are compared.
CANDIDATES: Final = 20


@dataclass(frozen=True)
class Recipe:
    """The effort of a search."""

    norm: Norm
    #: Classes that the first pass goes for.
    targets: int
    #: Steps of each attack in the first and in the second pass.
    steps: int
    refine_steps: int
    bisections: int


class _Best:
    """The smallest perturbations so far, and which attack found them."""

    def __init__(self, batch: Batch, norm: Norm) -> None:
        self.batch, self.norm = batch, norm
        self.images = batch.images.clone()
        count, device = len(batch), batch.images.device
        self.sizes = torch.full((count,), torch.inf, device=device).double()
        self.found_by = torch.zeros(count, dtype=torch.int64, device=device)

    def offer(self, images: Tensor, attack: str, rows: Tensor | None = None) -> Tensor:
        """Keep smaller perturbations; return all sizes, ``inf`` where one failed."""
        if rows is None:
            rows = torch.arange(len(self.batch), device=self.images.device)
        part = self.batch[rows]
        images = part.inside(images)
        if attack == "fab":
            images = part.bisect(images, steps=HALVINGS)
        sizes = distances(part.images, images, self.norm)
        sizes = torch.where(part.fools(images), sizes, torch.inf)
        better = sizes < self.sizes[rows]
        chosen = rows[better]
        self.images[chosen], self.sizes[chosen] = images[better], sizes[better]
        if attack == "fmn-warm":
            names = [ATTACKS[i].removesuffix("+fmn") for i in self.found_by[chosen]]
            codes = [ATTACKS.index(f"{name}+fmn") for name in names]
            self.found_by[chosen] = torch.tensor(codes).to(self.found_by)
        else:
            self.found_by[chosen] = ATTACKS.index(attack)
        return sizes


def search(batch: Batch, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return the closest images and the attacks that found them (index in ATTACKS)."""
    from robustbook.attacks.foolbox_runs import run_fmn
    from robustbook.attacks.pyautoattack_runs import run_fab

    norm, steps = recipe.norm, recipe.steps
    best = _Best(batch, norm)
    nearest = nearest_classes(batch, recipe.targets, norm)
    by_fmn, by_fab = [], []
    for target in nearest:
        images = run_fmn(batch, target, norm=norm, steps=steps, step_size=LONG_STEP)
        by_fmn.append(best.offer(images, "fmn"))
        images = run_fab(batch, target, norm=norm, steps=steps)
        by_fab.append(best.offer(images, "fab"))
    fmn_sizes, fab_sizes = torch.stack(by_fmn), torch.stack(by_fab)
    # Among equals argmin takes the first: where all failed, the nearest class.
    order = torch.minimum(fmn_sizes, fab_sizes).argmin(dim=0)
    target = torch.stack(nearest).gather(0, order[None])[0]
    harder = ~(fmn_sizes.amin(dim=0) < fab_sizes.amin(dim=0))
    if recipe.refine_steps and bool(harder.any()):
        rows = harder.nonzero()[:, 0]
        more = recipe.refine_steps
        images = run_fab(batch[rows], target[rows], norm=norm, steps=more)
        best.offer(images, "fab", rows)
    _lines(batch, best, recipe)
    if recipe.refine_steps:
        for step in (LONG_STEP, SHORT_STEP):
            _warm(batch, best, step, recipe)
    return _finish(batch, best, recipe), best.found_by


def _lines(batch: Batch, best: _Best, recipe: Recipe) -> None:
    """Where all failed, go straight to black, gray, white and the negative."""
    rows = torch.isinf(best.sizes).nonzero()[:, 0]
    if len(rows) == 0:
        return
    part = batch[rows]
    plain = [torch.full_like(part.images, value) for value in (0.0, 0.5, 1.0)]
    for end in (*plain, 1 - part.images):
        best.offer(part.bisect(end, steps=recipe.bisections), "line", rows)


def nearest_classes(batch: Batch, count: int, norm: Norm) -> list[Tensor]:
    """Return other classes, nearest first: by the logit gap over its slope's norm."""
    others = batch.logits.shape[1] - 1
    # Sorting is stable: where gradients vanish, the likeliest class comes first.
    likely = batch.ranked_classes(min(others, max(count, CANDIDATES)))
    if count >= others:
        return likely
    images = batch.images.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = batch.model(images)
    rows = torch.arange(len(batch), device=images.device)
    distances_to = []
    for target in likely:
        gap = logits[rows, batch.labels] - logits[rows, target]
        (slope,) = torch.autograd.grad(gap.sum(), images, retain_graph=True)
        order = 1 if norm == "linf" else 2
        length = torch.linalg.vector_norm(slope.flatten(1), ord=order, dim=1)
        distance = gap.detach() / length
        distances_to.append(torch.nan_to_num(distance, nan=torch.inf))
    order_of = torch.stack(distances_to).argsort(dim=0, stable=True)[:count]
    return list(torch.stack(likely).gather(0, order_of))


def _warm(batch: Batch, best: _Best, step_size: float, recipe: Recipe) -> None:
    """Run FMN from the best images so far, toward the classes that they are in."""
    from robustbook.attacks.foolbox_runs import run_fmn

    rows = torch.isfinite(best.sizes).nonzero()[:, 0]
    if len(rows) == 0:
        return
    part, start = batch[rows], best.images[rows]
    target = part.model(start).argmax(dim=1)
    run = partial(run_fmn, norm=recipe.norm, steps=recipe.refine_steps)
    images = run(part, target, step_size=step_size, start=start)
    best.offer(images, "fmn-warm", rows)


def _finish(batch: Batch, best: _Best, recipe: Recipe) -> Tensor:
    """Shorten the perturbations, then step slightly over the boundary."""
    shortened = batch.bisect(best.images, steps=recipe.bisections)
    pushed = torch.lerp(batch.images, shortened, 1 + PUSH).clamp(0, 1)
    shorter = distances(batch.images, pushed, recipe.norm) < best.sizes
    good = batch.fools(pushed) & shorter
    return torch.where(batch.column(good), pushed, shortened)
