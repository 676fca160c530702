"""The cost of Taylor, MMSE and their integration: `make bench`.

The floor is what the model's own passes take, forward and backward, in plain torch.
The rival is naive Monte Carlo with as many noisy inputs as give the same error against
a long run. The last row compares the integration with one that integrates all
constraints together, as the package did before failures kept their digits. All times
are the shortest of a few, in one run on one machine.
"""

import argparse
from functools import partial

import torch
from agreement_cost import shortest

from robustbook.average_case import mmse, monte_carlo, orthant_probability, taylor
from robustbook.average_case.parts import joint_probability, linearize, set_up
from robustbook.datasets import load_dataset
from robustbook.models import load_model

#: Noisy inputs of an MMSE fit, and inputs in a batch: the package's defaults.
FITS, BATCH = 10, 256


def own_passes(model, images, classes, copies):
    """Take the gradients of all class differences, each on average over the copies."""
    for part in images.split(BATCH // copies):
        leaf = part.clone().requires_grad_()
        logits = model(leaf.repeat_interleave(copies, dim=0))
        for other in range(1, classes):
            gap = (logits[:, 0] - logits[:, other]).sum()
            torch.autograd.grad(gap, leaf, retain_graph=other < classes - 1)


@torch.no_grad()
def noisy_pass(model, images, sigma):
    """Count kept predictions for one noisy copy of each image."""
    for part in images.split(BATCH):
        model(part + sigma * torch.randn_like(part)).argmax(dim=1)


def integrations(model, images, sigma):
    """Return the integration of the package, and that of all constraints together."""
    problem = set_up(model, images, sigma)
    parts = [(part.margins / sigma, part.gram) for part in linearize(problem)]
    means, covariances = (torch.cat(column) for column in zip(*parts, strict=True))
    scale = covariances.diagonal(dim1=1, dim2=2).sqrt()
    limits, order = (means / scale).sort(dim=1)
    matrix = covariances / scale[:, :, None] / scale[:, None, :]
    rows = torch.arange(len(order))[:, None, None]
    matrix = matrix[rows, order[:, :, None], order[:, None, :]]
    tolerance = 8 * order.shape[1] * torch.finfo(torch.float64).eps
    return (
        partial(orthant_probability, means, covariances, points=128),
        partial(joint_probability, limits, matrix, 128, 0, tolerance),
    )


def main() -> None:
    """Print a row for each estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="digits-cnn-s0")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--sigma", type=float, default=0.2)
    parser.add_argument("--long-run", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sigma, model = options.sigma, load_model(options.model)
    data = load_dataset(options.dataset, options.split)
    images = data.images[: options.images].float()
    with torch.no_grad():
        classes = model(images[:1]).shape[1]
    long = monte_carlo(model, images, sigma, samples=options.long_run)
    spread = float((long.probability * (1 - long.probability)).mean())
    one_copy = shortest(partial(noisy_pass, model, images, sigma), options.repeat)
    header = "estimate", "ms an image", "own passes", "equal error", "Monte Carlo"
    print("".join(f"{name:>14}" for name in header))
    for estimate, copies in ((taylor, 1), (mmse, FITS)):
        action = partial(estimate, model, images, sigma)
        passes = partial(own_passes, model, images, classes, copies)
        ours = shortest(action, options.repeat)
        floor = shortest(passes, options.repeat)
        square = (action().probability - long.probability).square().mean()
        square = float(square) - spread / options.long_run
        needed = spread / square if square > 0 else float("inf")
        cells = (
            estimate.__name__,
            f"{1e3 * ours / len(images):.2f}",
            f"{100 * floor / ours:.0f} %",
            f"{needed:.0f} copies",
            f"{needed * one_copy / ours:.1f} times",
        )
        print("".join(f"{cell:>14}" for cell in cells), flush=True)
    both = integrations(model, images, sigma)
    ours, joint = (shortest(each, options.repeat) for each in both)
    print(f"integration: {ours / joint:.2f} times one integral of all constraints")


if __name__ == "__main__":
    main()
