"""The ensemble of minimum-norm attacks behind :func:`input_margin`.

First pass: targeted FMN and targeted FAB, for the few classes whose boundaries are
nearest to first order. Second pass, for the class that turned out nearest: FAB with
more steps where it did better than FMN, then FMN that starts from the best image so
far. Gradients that vanish stop FMN and not FAB; elsewhere FMN gets closer.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from robustbook.attacks.engine import Batch, Norm, distances

#: Who found a margin; the first where nobody did. After the plus, who shortened it.
ATTACKS: Final = ("none", "fmn", "fab", "fmn+fmn", "fab+fmn", "line", "line+fmn")

#: First steps of FMN, as lengths: the long one gets closer on most networks.
LONG_STEP: Final = 10.0
SHORT_STEP: Final = 1.0
#: First relative change of the size of FMN's ball.
GAMMA: Final = 0.05
#: Halvings of FAB's results, lest its 5 % overshoot lose the comparison.
HALVINGS: Final = 4
#: What a perturbation is stretched by in the end, lest rounding undo it.
PUSH: Final = 1e-4
#: Of how many of the likeliest classes the gradients are compared.
CANDIDATES: Final = 20


@dataclass(frozen=True)
class Recipe:
    """How thoroughly to look."""

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
        """Keep what is smaller; return all sizes, ``inf`` where it fooled nobody."""
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
    """Return the closest images found and who found them (index in ATTACKS)."""
    from robustbook.attacks.foolbox_runs import run_fmn
    from robustbook.attacks.pyautoattack_runs import run_fab

    norm, steps = recipe.norm, recipe.steps
    best = _Best(batch, norm)
    nearest = nearest_classes(batch, recipe.targets, norm)
    by_fmn, by_fab = [], []
    for target in nearest:
        images = run_fmn(
            batch, target, norm=norm, steps=steps, step_size=LONG_STEP, gamma=GAMMA
        )
        by_fmn.append(best.offer(images, "fmn"))
        images = run_fab(batch, target, norm=norm, steps=steps)
        by_fab.append(best.offer(images, "fab"))
    fmn_sizes, fab_sizes = torch.stack(by_fmn), torch.stack(by_fab)
    # Of equals the first: where all failed, the class that comes first.
    order = torch.minimum(fmn_sizes, fab_sizes).argmin(dim=0)
    target = torch.stack(nearest).gather(0, order[None])[0]
    harder = ~(fmn_sizes.amin(dim=0) < fab_sizes.amin(dim=0))
    if recipe.refine_steps and bool(harder.any()):
        rows = harder.nonzero()[:, 0]
        harder_steps = recipe.refine_steps
        images = run_fab(batch[rows], target[rows], norm=norm, steps=harder_steps)
        best.offer(images, "fab", rows)
    _lines(batch, best, recipe)
    if recipe.refine_steps:
        for step in (LONG_STEP, SHORT_STEP):
            _warm(batch, best, step, recipe)
    return _finish(batch, best, recipe), best.found_by


def _lines(batch: Batch, best: _Best, recipe: Recipe) -> None:
    """Where all failed: straight to black, gray and white, and to the negative."""
    rows = torch.isinf(best.sizes).nonzero()[:, 0]
    if len(rows) == 0:
        return
    part = batch[rows]
    plain = [torch.full_like(part.images, value) for value in (0.0, 0.5, 1.0)]
    for end in (*plain, 1 - part.images):
        best.offer(part.bisect(end, steps=recipe.bisections), "line", rows)


def nearest_classes(batch: Batch, count: int, norm: Norm) -> list[Tensor]:
    """Other classes, nearest first: by the gap of logits over its slope's norm."""
    others = batch.logits.shape[1] - 1
    # The likeliest first: that order decides where gradients vanish.
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
    """FMN from the best images so far, toward the classes that they are in."""
    from robustbook.attacks.foolbox_runs import run_fmn

    rows = torch.isfinite(best.sizes).nonzero()[:, 0]
    if len(rows) == 0:
        return
    part, start = batch[rows], best.images[rows]
    target = part.model(start).argmax(dim=1)
    images = run_fmn(
        part, target, norm=recipe.norm, steps=recipe.refine_steps, step_size=step_size,
        gamma=GAMMA, start=start,
    )  # fmt: skip
    best.offer(images, "fmn-warm", rows)


def _finish(batch: Batch, best: _Best, recipe: Recipe) -> Tensor:
    """Shorten, then step over the boundary by a hair."""
    shortened = batch.bisect(best.images, steps=recipe.bisections)
    pushed = torch.lerp(batch.images, shortened, 1 + PUSH).clamp(0, 1)
    shorter = distances(batch.images, pushed, recipe.norm) < best.sizes
    good = batch.fools(pushed) & shorter
    return torch.where(batch.column(good), pushed, shortened)
