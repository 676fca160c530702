"""The ensemble of minimum-norm attacks behind :func:`input_margin`.

The first pass runs targeted FMN and FAB for the few classes whose boundaries are
nearest to first order. The second pass goes for the class that turned out nearest: FAB
with more steps where it did better than FMN, then FMN from the best image so far.
Vanishing gradients stop FMN but not FAB; elsewhere FMN gets closer.
"""

from typing import Final

import torch
from torch import Tensor

from robustbook.attacks.engine import Batch, Norm, SmallestSoFar, distances
from robustbook.attacks.foolbox_runs import run_fmn
from robustbook.attacks.pyautoattack_runs import run_fab
from robustbook.margins._free import boundary_distances

#: Lengths of FMN's first step: the long one gets closer on most networks.
LONG_STEP: Final = 10.0
SHORT_STEP: Final = 1.0
#: Halvings of FAB's results before they are compared, as FAB overshoots by 5 %.
HALVINGS: Final = 4
#: Halvings of the way back to the clean images in the end.
BISECTIONS: Final = 12
#: Share by which a perturbation is stretched after that, if it does not become longer
#: than it was before, so that the rounding of another batch size does not undo it.
PUSH: Final = 1e-4
#: Number of the likeliest classes whose gradients are compared.
CANDIDATES: Final = 20


class Search(SmallestSoFar):
    """The search for the smallest perturbations of a batch."""

    def run(self, targets: int, steps: int, refine_steps: int) -> Tensor:
        """Return the closest images found, the clean ones where there are none."""
        target, harder = self._first_pass(targets, steps)
        if refine_steps and len(harder):
            part, goal = self.batch[harder], target[harder]
            images = run_fab(part, goal, norm=self.norm, steps=refine_steps)
            self.keep(images, harder, bisections=HALVINGS)
        failed = torch.isinf(self.sizes).nonzero()[:, 0]
        if len(failed):
            self._try_lines(failed)
        if refine_steps:
            for step_size in (LONG_STEP, SHORT_STEP):
                self._shorten_by_fmn(refine_steps, step_size)
        return self._beyond_the_boundary()

    def _first_pass(self, targets: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return the nearest class of each image, and where FMN did not beat FAB."""
        batch, norm = self.batch, self.norm
        nearest = nearest_classes(batch, targets, norm)
        rows = batch.rows()
        by_fmn, by_fab = [], []
        for target in nearest:
            images = run_fmn(batch, target, norm=norm, steps=steps, step_size=LONG_STEP)
            by_fmn.append(self.keep(images, rows))
            images = run_fab(batch, target, norm=norm, steps=steps)
            by_fab.append(self.keep(images, rows, bisections=HALVINGS))
        fmn_sizes, fab_sizes = torch.stack(by_fmn), torch.stack(by_fab)
        # Among equals argmin takes the first: where all failed, the nearest class.
        order = torch.minimum(fmn_sizes, fab_sizes).argmin(dim=0)
        harder = ~(fmn_sizes.amin(dim=0) < fab_sizes.amin(dim=0))
        return torch.stack(nearest)[order, rows], harder.nonzero()[:, 0]

    def _try_lines(self, rows: Tensor) -> None:
        """Go straight to black, gray, white and the negative."""
        part = self.batch[rows]
        plain = [torch.full_like(part.images, value) for value in (0.0, 0.5, 1.0)]
        for end in (*plain, 1 - part.images):
            self.keep(end, rows, bisections=BISECTIONS)

    def _shorten_by_fmn(self, steps: int, step_size: float) -> None:
        """Run FMN from the best images so far, toward the classes that they are in."""
        rows = torch.isfinite(self.sizes).nonzero()[:, 0]
        if len(rows) == 0:
            return
        part, start = self.batch[rows], self.images[rows]
        goal = part.model(start).argmax(dim=1)
        images = run_fmn(
            part, goal, norm=self.norm, steps=steps, step_size=step_size, start=start
        )
        self.keep(images, rows)

    def _beyond_the_boundary(self) -> Tensor:
        """Shorten the perturbations, then step slightly over the boundary."""
        batch = self.batch
        shortened = batch.bisect(self.images, steps=BISECTIONS)
        pushed = torch.lerp(batch.images, shortened, 1 + PUSH).clamp(0, 1)
        shorter = distances(batch.images, pushed, self.norm) < self.sizes
        good = batch.fools(pushed) & shorter
        return torch.where(batch.column(good), pushed, shortened)


def nearest_classes(batch: Batch, count: int, norm: Norm) -> list[Tensor]:
    """Return other classes, nearest first: by the logit gap over its slope's norm."""
    likely = batch.ranked_classes(max(count, CANDIDATES))
    if count >= len(likely):
        return likely
    images = batch.images.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = batch.model(images)
    distances_to = list(boundary_distances(logits, images, batch.labels, likely, norm))
    # Sorting is stable: where gradients vanish, the likeliest class comes first.
    order = torch.stack(distances_to).nan_to_num(torch.inf).argsort(dim=0, stable=True)
    return list(torch.stack(likely).gather(0, order[:count]))
