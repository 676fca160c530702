"""Recipes of the committed models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from robustbook.training._losses import (
    Loss,
    adversarial_loss,
    cross_entropy_loss,
    gradient_norm_loss,
)


@dataclass(frozen=True)
class LongTraining:
    """Further options of trainings that take hours, which are in bfloat16, too.

    Attributes
    ----------
    step_size : float
        Step of the attack, in [0, 1] pixel units.
    momentum, weight_decay : float
        Options of stochastic gradient descent with Nesterov's momentum.
    warm_up, cool_down : float
        Epochs in which the learning rate rises to its peak, and share of all epochs,
        at the end, in which it falls to zero.
    averaging : float
        Decay of the averaged weights in a step.
    padding : int
        Pixels by which an image is shifted at most; 0 for none, and no mirroring.
    held_out : int
        Images at the end of the training set on which accuracy is only measured.
    whitened : bool
        Whether the first convolution, a "whiten" of
        :func:`robustbook.models.build_model`, is set from the training images and then
        kept.
    stored_as : str
        Type of the stored weights: "float16" halves the file.
    """

    step_size: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warm_up: float = 1.0
    cool_down: float = 0.5
    averaging: float = 0.998
    padding: int = 4
    held_out: int = 200
    whitened: bool = False
    stored_as: str = "float32"


@dataclass(frozen=True)
class Recipe:
    """Options of the training of a committed model.

    Attributes
    ----------
    model, arch, options : str, str, tuple of (str, value)
        Its name, its architecture and that one's options.
    epochs, batch_size, lr : int, int, float
        Passes over the training set, samples in a step, peak learning rate.
    noise_std : float
        Standard deviation of the noise that is added to the training images.
    adversarial_eps, adversarial_steps : float, int
        Size of the ℓ∞ perturbations of adversarial training, in [0, 1] pixel units (0
        for plain training), and gradient steps to each of them.
    gradient_penalty : float
        Weight of the squared norm of the cross-entropy's gradient by the pixels.
    seeds : int
        The number of training seeds of the committed models: 0, 1, ...
    long : LongTraining, optional
        Further options of a training that takes hours.
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
        """The objective of training."""
        if self.adversarial_eps > 0:
            eps, steps = self.adversarial_eps, self.adversarial_steps
            step = None if self.long is None else self.long.step_size
            return adversarial_loss(eps=eps, steps=steps, step_size=step)
        if self.gradient_penalty > 0:
            return gradient_norm_loss(weight=self.gradient_penalty)
        return cross_entropy_loss

    def described(self) -> dict[str, Any]:
        """Return the fields for a checkpoint, without those of procedures not used.

        So a new procedure does not change the files of models that do without it.
        """
        always = {"model", "arch", "epochs", "lr", "noise_std"}
        elsewhere = {"options", "seeds"}  # in the checkpoint itself
        plain = asdict(Recipe(self.model, self.arch, self.epochs, self.lr))
        fields = {
            name: value
            for name, value in asdict(self).items()
            if name in always or (name not in elsewhere and value != plain[name])
        }
        if self.long is not None:
            usual = asdict(LongTraining())
            fields["long"] = {
                name: value
                for name, value in asdict(self.long).items()
                if name not in ("whitened", "stored_as") or value != usual[name]
            }
        return fields


def _convolutions(channels: int, size: int) -> tuple[tuple[str, Any], ...]:
    """Three convolutions of stride 2 and one linear layer."""
    layers = [[16, 4, 2, 1], [32, 4, 2, 1], [64, 4, 2, 1]]
    shape = (("channels", channels), ("size", size))
    return (*shape, ("convolutions", layers), ("linear", [10]))


#: Weights of the gradient-norm penalty: those of the average-case paper, and larger.
GRADIENT_PENALTIES: Final = {
    f"grad{name}": float(name) for name in ("1e-4", "1e-3", "1e-2", "1e-1", "1")
}


def _family(plain: Recipe, *, twice: Sequence[str] | None = None) -> tuple[Recipe, ...]:
    """A model without and with each penalty; `twice` names those of all its seeds."""
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
    "mnist-cnn", "conv-net", 3, 0.003, batch_size=128, options=_convolutions(1, 28)
)
_COLOR: Final = Recipe(
    "cifar10-cnn", "conv-net", 6, 0.003, batch_size=128, options=_convolutions(3, 32)
)

_HELD_OUT: Final = LongTraining(
    warm_up=3.0,
    cool_down=0.8,
    averaging=0.995,
    held_out=10_000,
    stored_as="float16",
)
_BLOCKS: Final = Recipe(
    "cifar10-blocks",
    "block-cnn",
    epochs=15,
    lr=0.2,
    batch_size=250,
    options=(("widths", [64, 160, 192]),),
    long=replace(_HELD_OUT, whitened=True),
)
_STRIDED: Final = replace(
    _BLOCKS,
    model="cifar10-strided",
    arch="strided-cnn",
    epochs=8,
    options=(("width", 24),),
    long=_HELD_OUT,
)


def _robust(plain: Recipe, *, epochs: int) -> Recipe:
    """Adversarial training of two steps, at the bound of the literature."""
    return replace(
        plain,
        model=f"{plain.model}-adv",
        epochs=epochs,
        adversarial_eps=8 / 255,
        adversarial_steps=2,
        seeds=1,
        long=replace(plain.long or _HELD_OUT, step_size=6 / 255),
    )


#: Recipes by NAME, for ``python -m robustbook.training NAME``.
RECIPES: Final[dict[str, tuple[Recipe, ...]]] = {
    "digits": (
        Recipe("digits-linear", "linear", epochs=60, lr=0.01, seeds=5),
        _DIGITS,
        replace(_DIGITS, model="digits-cnn-noise", noise_std=0.3),
        replace(
            _DIGITS, model="digits-cnn-adv", adversarial_eps=0.15, adversarial_steps=10
        ),
        *_family(_DIGITS)[1:],
    ),
    "mnist": _family(_GRAY),
    "fashion-mnist": _family(
        replace(_GRAY, model="fashion-mnist-cnn"), twice=["grad1e-1"]
    ),
    "cifar10": _family(_COLOR),
    "cifar10-adversarial": (
        Recipe(
            "cifar10-preact-adv", "preact-resnet", epochs=32, lr=0.1, batch_size=128,
            adversarial_eps=10 / 255, adversarial_steps=2,
            options=(("widths", [48, 96, 128]), ("blocks", [1, 1, 1])),
            long=LongTraining(step_size=7 / 255), seeds=1,
        ),
    ),
    # Trained on 40 000 images: the others of the training set are a test set.
    "cifar10-held-out": (
        *_family(_BLOCKS)[:4],
        _robust(_BLOCKS, epochs=28),
        *_family(_STRIDED)[:4],
        _robust(_STRIDED, epochs=8),
    ),
}  # fmt: skip
