"""Training, plain and for robustness, and the command behind our checkpoints.

``python -m robustbook.training digits`` trains every digits model with every
training seed and writes ``data/checkpoints``; ``mnist``, ``fashion-mnist`` and
``cifar10`` do so for the larger data sets, and ``--models NAME`` trains some models
only and leaves the others as they are. ``cifar10-adversarial`` takes hours; when it
is cut off, the same command goes on after the last full epoch. On one machine with
one version of torch the result is the same to the last bit; elsewhere the rounding
of sums may differ, which moves weights in their last digits.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_count, check_non_negative, check_positive
from robustbook._store import SCHEMA, data_directory, read_json
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import (
    build_model,
    logits_of,
    resolve_device,
    save_checkpoint,
)
from robustbook.scores import accuracy
from robustbook.training._long import LongTraining, train_long

__all__ = [
    "RECIPES",
    "Loss",
    "Recipe",
    "add_gaussian_noise",
    "adversarial_loss",
    "cross_entropy_loss",
    "gradient_norm_loss",
    "train_classifier",
]

#: What training minimizes: a number, to be differentiated by the parameters, of
#: model, images (n, C, H, W), labels (n,) and a CPU generator for what is random.
Loss = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a committed model is trained.

    Attributes
    ----------
    model : str
        Name of the model.
    arch : str
        Its architecture.
    epochs : int
        Passes over the training set.
    lr : float
        Peak learning rate of Adam.
    noise_std : float
        Standard deviation of the noise that is added to the training images.
    adversarial_eps : float
        Size of the ℓ∞ perturbations of adversarial training, in [0, 1] pixel
        units; 0 for plain training.
    adversarial_steps : int
        Gradient steps to each of them.
    gradient_penalty : float
        Weight of the squared norm of the cross-entropy's gradient by the pixels;
        0 for none.
    batch_size : int
        Samples in a step.
    options : tuple of (str, value)
        Options of the architecture.
    seeds : int
        Training seeds 0, 1, ... of the committed models: as many.
    long : LongTraining, optional
        What a training of hours has beyond a plain one.
    """

    model: str
    arch: str
    epochs: int
    lr: float
    noise_std: float = 0.0
    adversarial_eps: float = 0.0
    adversarial_steps: int = 0
    gradient_penalty: float = 0.0
    batch_size: int = 64
    options: tuple[tuple[str, Any], ...] = ()
    seeds: int = 2
    long: LongTraining | None = None

    @property
    def loss(self) -> Loss:
        """What training minimizes."""
        if self.adversarial_eps > 0:
            eps, steps = self.adversarial_eps, self.adversarial_steps
            step = None if self.long is None else self.long.step_size
            return adversarial_loss(eps=eps, steps=steps, step_size=step)
        if self.gradient_penalty > 0:
            return gradient_norm_loss(weight=self.gradient_penalty)
        return cross_entropy_loss

    def described(self) -> dict[str, Any]:
        """Fields for a checkpoint; those of a procedure that is not used are left out.

        So a new procedure does not change the files of models that do without it.
        """
        fields = asdict(self)
        if self.adversarial_eps == 0:
            del fields["adversarial_eps"], fields["adversarial_steps"]
        if self.gradient_penalty == 0:
            del fields["gradient_penalty"]
        if self.batch_size == 64:
            del fields["batch_size"]
        if self.long is None:
            del fields["long"]
        del fields["options"]  # a field of the checkpoint itself
        del fields["seeds"]
        return fields


def _convolutions(channels: int, size: int) -> tuple[tuple[str, Any], ...]:
    """Options of a small network: three convolutions of stride 2, one linear layer."""
    layers = [[16, 4, 2, 1], [32, 4, 2, 1], [64, 4, 2, 1]]
    return (
        ("channels", channels),
        ("size", size),
        ("convolutions", layers),
        ("linear", [10]),
    )


#: Weights of the gradient-norm penalty: those of the average-case paper, and larger.
GRADIENT_PENALTIES: Final = {
    "grad1e-4": 1e-4,
    "grad1e-3": 1e-3,
    "grad1e-2": 1e-2,
    "grad1e-1": 1e-1,
    "grad1": 1.0,
}


def _family(plain: Recipe, *, twice: Sequence[str] | None = None) -> tuple[Recipe, ...]:
    """The same model without and with each gradient-norm penalty.

    ``twice`` names the suffixes with the plain model's number of seeds; the others
    are trained once. All have that number by default.
    """
    return plain, *(
        replace(
            plain,
            model=f"{plain.model}-{suffix}",
            gradient_penalty=weight,
            seeds=plain.seeds if twice is None or suffix in twice else 1,
        )
        for suffix, weight in GRADIENT_PENALTIES.items()
    )


_DIGITS: Final = Recipe("digits-cnn", "small-cnn", epochs=40, lr=0.003, seeds=5)
_GRAY: Final = Recipe(
    "mnist-cnn",
    "conv-net",
    epochs=3,
    lr=0.003,
    batch_size=128,
    options=_convolutions(1, 28),
)

#: What ``python -m robustbook.training NAME`` trains.
RECIPES: Final[dict[str, tuple[Recipe, ...]]] = {
    "digits": (
        Recipe("digits-linear", "linear", epochs=60, lr=0.01, seeds=5),
        _DIGITS,
        replace(_DIGITS, model="digits-cnn-noise", noise_std=0.3),
        replace(
            _DIGITS,
            model="digits-cnn-adv",
            adversarial_eps=0.15,
            adversarial_steps=10,
        ),
        *_family(_DIGITS)[1:],
    ),
    "mnist": _family(_GRAY),
    "fashion-mnist": _family(
        replace(_GRAY, model="fashion-mnist-cnn"), twice=["grad1e-1"]
    ),
    "cifar10": _family(
        Recipe(
            "cifar10-cnn",
            "conv-net",
            epochs=6,
            lr=0.003,
            batch_size=128,
            options=_convolutions(3, 32),
        )
    ),
    "cifar10-adversarial": (
        Recipe(
            "cifar10-preact-adv",
            "preact-resnet",
            epochs=32,
            lr=0.1,
            adversarial_eps=10 / 255,
            adversarial_steps=2,
            batch_size=128,
            options=(("widths", [48, 96, 128]), ("blocks", [1, 1, 1])),
            long=LongTraining(step_size=7 / 255),
            seeds=1,
        ),
    ),
}

#: Data sets of recipes with another name.
_DATASETS: Final = {"cifar10-adversarial": "cifar10"}

#: Where accuracy is measured, if not on the whole test part: what all loaders have.
_TEST_SPLITS: Final = {"cifar10": "test1000"}


def add_gaussian_noise(
    images: Tensor, std: float, *, generator: torch.Generator, clip: bool = True
) -> Tensor:
    """Add independent Gaussian noise to every pixel.

    Parameters
    ----------
    images : Tensor, shape (n, C, H, W)
        Images with pixels in [0, 1].
    std : float
        Standard deviation of the noise before clipping, in pixel units.
    generator : torch.Generator
        Source of the noise.
    clip : bool, default True
        Clip the result to [0, 1], so that it is an image again. On a black or
        white pixel this takes away half of the noise.

    Returns
    -------
    Tensor, shape (n, C, H, W)
        The noisy images.

    Raises
    ------
    ValueError
        If `std` is negative.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> noisy = add_gaussian_noise(torch.zeros(1, 1, 2, 2), 0.1, generator=generator)
    >>> bool(((noisy >= 0) & (noisy <= 1)).all())
    True
    """
    if not std >= 0:
        raise ValueError(f"std: expected a number >= 0, got {std}")
    noise = torch.randn(
        images.shape, generator=generator, dtype=images.dtype, device=generator.device
    )
    noisy = images + std * noise.to(images.device)
    return noisy.clamp(0.0, 1.0) if clip else noisy


def cross_entropy_loss(
    model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
) -> Tensor:
    """Return the mean cross-entropy: what plain training minimizes.

    Parameters
    ----------
    model : torch.nn.Module
        Returns logits (n, K).
    images : Tensor, shape (n, C, H, W)
        Images with pixels in [0, 1].
    labels : Tensor, shape (n,)
        Their classes.
    generator : torch.Generator
        Not used.

    Returns
    -------
    Tensor, shape ()
        The loss, in nats.

    Examples
    --------
    >>> model = build_model("linear", seed=0)
    >>> images, labels = torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])
    >>> cross_entropy_loss(model, images, labels, torch.Generator()).shape
    torch.Size([])
    """
    return F.cross_entropy(model(images), labels)


def adversarial_loss(
    *, eps: float, steps: int = 10, step_size: float | None = None
) -> Loss:
    """Make the loss of adversarial training: cross-entropy on attacked images.

    Every image is attacked anew each time it is seen: from a random point of the
    ℓ∞ ball around it, by gradient steps that are clipped to ball and box (PGD).
    This inner loop is the attack of :func:`robustbook.attacks.pgd` without its
    checks and copies, which would more than double the time of training.

    Parameters
    ----------
    eps : float
        Radius of the ball, in [0, 1] pixel units.
    steps : int, default 10
        Gradient steps.
    step_size : float, optional
        Size of a step, in [0, 1] pixel units; 2.5 eps / steps by default.

    Returns
    -------
    Loss
        For :func:`train_classifier`. The attack sees the model in the mode in which
        it is, so in training mode. Its random starts come from the generator.

    Raises
    ------
    ValueError
        If `eps`, `steps` or `step_size` is not positive.

    References
    ----------
    Madry et al., "Towards deep learning models resistant to adversarial attacks",
    ICLR 2018. Chapter 9 of this book.

    Examples
    --------
    >>> data = load_dataset("digits", "train").subset(range(256))
    >>> model = build_model("linear", seed=0)
    >>> losses = train_classifier(
    ...     model,
    ...     data,
    ...     epochs=3,
    ...     lr=0.01,
    ...     seed=0,
    ...     loss=adversarial_loss(eps=0.1, steps=2),
    ...     progress=False,
    ... )
    >>> losses[-1] < losses[0]
    True
    """
    eps = check_positive("eps", eps)
    steps = check_count("steps", steps)
    step = 2.5 * eps / steps
    if step_size is not None:
        step = check_positive("step_size", step_size)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        start = torch.rand(images.shape, generator=generator, dtype=images.dtype)
        low, high = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
        attacked = images + eps * (2 * start.to(images.device) - 1)
        attacked = torch.clamp(attacked, low, high)
        for _ in range(steps):
            attacked.requires_grad_()
            value = F.cross_entropy(model(attacked), labels)
            # By the images only: no gradient is left in the parameters.
            (gradient,) = torch.autograd.grad(value, attacked)
            attacked = torch.clamp(
                attacked.detach() + step * gradient.sign(), low, high
            )
        return F.cross_entropy(model(attacked), labels)

    return loss


def gradient_norm_loss(*, weight: float) -> Loss:
    r"""Make the loss of gradient-norm regularization.

    The mean over the images of :math:`\ell_i + \lambda\,\|\nabla_{x_i}
    \ell_i\|_2^2`, where :math:`\ell_i` is the cross-entropy of image i in nats and
    the gradient is by its pixels in [0, 1].

    Parameters
    ----------
    weight : float
        λ, in units of (pixel)² / nat: the gradient is of each image's own loss, not
        of the mean over a batch, so the batch size does not matter. Where pixels are
        divided by s first and the gradient is by those, λ stands for s² λ here.

    Returns
    -------
    Loss
        For :func:`train_classifier`. It differentiates twice, which costs two to
        three times the time of plain training.

    Raises
    ------
    ValueError
        If `weight` is not positive.

    Notes
    -----
    What is penalized is the slope of the loss, not of the margin: it is small for
    every image that is classified with confidence, however near the boundary is.

    References
    ----------
    Average-case paper, appendix A.3, which does not print the penalty. H. Drucker,
    Y. LeCun, *Improving generalization performance using double backpropagation*,
    IEEE Transactions on Neural Networks 3(6), 1992. Chapters 20 and 22 of this book.

    Examples
    --------
    >>> data = load_dataset("digits", "train").subset(range(256))
    >>> model = build_model("linear", seed=0)
    >>> losses = train_classifier(
    ...     model,
    ...     data,
    ...     epochs=3,
    ...     lr=0.01,
    ...     seed=0,
    ...     loss=gradient_norm_loss(weight=0.1),
    ...     progress=False,
    ... )
    >>> losses[-1] < losses[0]
    True
    """
    weight = check_positive("weight", weight)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        images = images.detach().requires_grad_()
        # Of the sum: what an image's gradient is must not depend on the others.
        value = F.cross_entropy(model(images), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(value, images, create_graph=True)
        total: Tensor = value + weight * gradient.square().sum()
        return total / len(images)

    return loss


def train_classifier(
    model: nn.Module,
    dataset: Dataset,
    *,
    epochs: int,
    lr: float,
    seed: int,
    noise_std: float = 0.0,
    loss: Loss = cross_entropy_loss,
    batch_size: int = 64,
    device: str = "cpu",
    progress: bool = True,
) -> list[float]:
    """Train a classifier by minimizing the mean cross-entropy, or another loss.

    Adam, with a learning rate that falls to zero along half a cosine. The order
    of the samples, the noise and what is random in the loss come from a generator
    of their own: the result depends on the model's initial weights, on `seed` and
    on the options, not on the state of the global generator.

    Parameters
    ----------
    model : torch.nn.Module
        The model, changed in place; in evaluation mode afterwards.
    dataset : Dataset
        Training images and labels.
    epochs : int
        Passes over the data.
    lr : float
        Learning rate at the start.
    seed : int
        Seed of the order, of the noise and of what is random in the loss.
    noise_std : float, default 0.0
        Standard deviation of Gaussian noise added to every training image,
        drawn anew each time; the result is clipped to [0, 1].
    loss : Loss, default cross_entropy_loss
        What to minimize: a function of model, images, labels and generator. With
        :func:`adversarial_loss`, this is adversarial training; see also
        :func:`gradient_norm_loss`.
    batch_size : int, default 64
        Samples in a step.
    device : str, default "cpu"
        Where to train; "auto" means a CUDA device if there is one.
    progress : bool, default True
        Show a progress bar, where tqdm is installed.

    Returns
    -------
    list of float
        The mean training loss of each epoch; in nats for the losses here.

    Raises
    ------
    ValueError
        If `epochs`, `lr` or `batch_size` is not positive, `noise_std` or `seed` is
        negative, or there is no image.
    FloatingPointError
        If the loss is no longer a finite number; what is left of the model is of
        no use.

    Examples
    --------
    >>> data = load_dataset("digits", "train").subset(range(256))
    >>> model = build_model("linear", seed=0)
    >>> losses = train_classifier(
    ...     model, data, epochs=3, lr=0.01, seed=0, progress=False
    ... )
    >>> len(losses), losses[-1] < losses[0], model.training
    (3, True, False)
    """
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_positive("lr", lr)
    check_non_negative("noise_std", noise_std)
    seed = check_count("seed", seed, minimum=0)
    if len(dataset) == 0:
        raise ValueError(f"dataset: expected at least one image, got {dataset!r}")
    target = resolve_device(device)
    generator = torch.Generator().manual_seed(seed)
    model.to(target).train()
    images, labels = dataset.images, dataset.labels
    steps = epochs * -(-len(dataset) // batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    for epoch in _progress(range(epochs), show=progress):
        total = 0.0
        order = torch.randperm(len(dataset), generator=generator)
        for first in range(0, len(dataset), batch_size):
            index = order[first : first + batch_size]
            batch = images[index]
            if noise_std > 0:
                batch = add_gaussian_noise(batch, noise_std, generator=generator)
            value = loss(model, batch.to(target), labels[index].to(target), generator)
            optimizer.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call, unused-ignore]
            optimizer.step()
            schedule.step()
            total += value.item() * len(index)
        if not math.isfinite(total):
            raise FloatingPointError(
                f"the training loss is {total} in epoch {epoch + 1} of {epochs}; "
                f"expected a finite number: try an lr below {lr:g}, and look whether "
                "all images are finite"
            )
        losses.append(total / len(dataset))
    model.eval()
    return losses


def _progress(epochs: range, *, show: bool) -> Any:
    if not show:
        return epochs
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return epochs
    return tqdm(epochs, desc="training", unit="epoch", leave=False)


# --------------------------------------------------------------------- command


def retrain(
    name: str,
    *,
    output: Path | None = None,
    models: Sequence[str] | None = None,
    num_seeds: int | None = None,
    epochs: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Train the checkpoints of a data set and write them with their registry.

    Nothing is replaced before the last one is trained.

    Parameters
    ----------
    name : str
        A key of :data:`RECIPES`.
    output : Path, optional
        Folder to write to; the project's ``data/checkpoints`` by default.
    models : sequence of str, optional
        Models to train, without their seeds; the others are left as they are. All
        by default.
    num_seeds : int, optional
        Training seeds 0, 1, ... for each model; by default those of its recipe:
        five for digits, one or two for the larger data sets.
    epochs : int, optional
        Fewer epochs than the recipes say, for a trial.
    progress : bool, default True
        Show a progress bar and one line for each checkpoint.

    Returns
    -------
    dict
        The registry that was written. Entries of other data sets, and of models
        that were not to be trained, are kept.

    Raises
    ------
    ValueError
        If there are no recipes of that name, no such model among them, or
        `num_seeds` is less than 1.
    """
    if num_seeds is not None:
        check_count("num_seeds", num_seeds)
    if name not in RECIPES:
        raise ValueError(f"name: expected one of {', '.join(RECIPES)}; got {name!r}")
    known = [recipe.model for recipe in RECIPES[name]]
    chosen = known if models is None else list(models)
    if not chosen or not set(chosen) <= set(known):
        raise ValueError(f"models: expected some of {', '.join(known)}; got {chosen}")
    folder = data_directory() / "checkpoints" if output is None else Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    dataset = _DATASETS.get(name, name)
    train = load_dataset(dataset, "train")
    test = load_dataset(dataset, _TEST_SPLITS.get(dataset, "test"))
    command = f"python -m robustbook.training {name}"
    if num_seeds is not None:
        command += f" --seeds {num_seeds}"
    if epochs is not None:
        command += f" --epochs {epochs}"
    versions = {"python": platform.python_version(), "torch": torch.__version__}

    registry = folder / "registry.json"
    entries: dict[str, Any] = {}
    if registry.is_file():
        present = read_json(registry, remedy="delete it, and all are trained anew")
        entries = {
            run: entry
            for run, entry in present.get("checkpoints", {}).items()
            if entry["dataset"] != dataset or entry["model"] not in chosen
        }
    # Beside what they replace: an interrupted training must not leave new weights
    # under old sums.
    with tempfile.TemporaryDirectory(prefix=".training-", dir=folder) as temporary:
        scratch = Path(temporary)
        for recipe in RECIPES[name]:
            if recipe.model not in chosen:
                continue
            for seed in _seeds_of(recipe, num_seeds):
                run = f"{recipe.model}-s{seed}"
                arch = dict(recipe.options)
                model = build_model(recipe.arch, seed=seed, options=arch)
                common: dict[str, Any] = {
                    "epochs": recipe.epochs if epochs is None else epochs,
                    "lr": recipe.lr,
                    "seed": seed,
                    "loss": recipe.loss,
                    "batch_size": recipe.batch_size,
                }
                resume = folder / f".{run}.resume"
                if recipe.long is None:
                    losses = train_classifier(
                        model,
                        train,
                        noise_std=recipe.noise_std,
                        progress=progress,
                        **common,
                    )
                else:
                    losses = train_long(
                        model,
                        train,
                        eps=recipe.adversarial_eps,
                        options=recipe.long,
                        resume=resume,
                        tell=_tell if progress else None,
                        **common,
                    )
                measured = accuracy(logits_of(model, test.images), test.labels)
                description: dict[str, Any] = {
                    "model": recipe.model,
                    "arch": recipe.arch,
                    "options": arch,
                    "dataset": dataset,
                    "seed": seed,
                    "recipe": recipe.described(),
                    "command": command,
                    "train_loss": round(losses[-1], 6),
                    "test_accuracy": round(measured, 6),
                    "versions": versions,
                }
                path = scratch / f"{run}.safetensors"
                sha256 = save_checkpoint(model, path, description=description)
                entries[run] = {
                    "file": path.name,
                    "sha256": sha256,
                    "bytes": path.stat().st_size,
                    **description,
                }
                if progress:
                    print(f"{run}: test accuracy {measured:.4f}")
        content = {"schema": SCHEMA, "checkpoints": dict(sorted(entries.items()))}
        (scratch / registry.name).write_text(
            json.dumps(content, indent=1) + "\n", encoding="utf-8"
        )
        for path in sorted(scratch.iterdir()):
            path.replace(folder / path.name)
    for recipe in RECIPES[name]:
        for resume in folder.glob(f".{recipe.model}-s*.resume"):
            resume.unlink()
    return content


def _tell(line: str) -> None:
    print(line, flush=True)


def _seeds_of(recipe: Recipe, num_seeds: int | None) -> range:
    return range(recipe.seeds if num_seeds is None else num_seeds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Retrain checkpoints: the command line of this module.

    Parameters
    ----------
    arguments : sequence of str, optional
        Words of the command line; those of the process by default.
    """
    parser = argparse.ArgumentParser(
        prog="python -m robustbook.training",
        description="Retrain the project's checkpoints and write their registry.",
    )
    parser.add_argument("name", choices=list(RECIPES))
    parser.add_argument("--output", type=Path, help="default: data/checkpoints")
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="train these only; default: all"
    )
    parser.add_argument("--seeds", type=int, help="training seeds for each model")
    parser.add_argument("--epochs", type=int, help="fewer, for a trial")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the order of sums must not depend on the cores
    try:
        retrain(
            options.name,
            output=options.output,
            models=options.models,
            num_seeds=options.seeds,
            epochs=options.epochs,
        )
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
