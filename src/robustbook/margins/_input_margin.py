"""Input margins: upper bounds from an ensemble of attacks, batch by batch."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_count
from robustbook._checks.models import Model, model_answers
from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.files import check_writable
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.attacks.engine import ArrayLike, Batch, Norm, Settings, run_attack
from robustbook.margins._arrays import DOCS
from robustbook.margins._recipe import ATTACKS, Recipe, search


@dataclass(frozen=True, eq=False)
class InputMargins:
    """Input margins: upper bounds by an ensemble of attacks.

    Attributes
    ----------
    margins : Tensor, shape (N,)
        Upper bounds on the distances to the decision boundary, float64, in [0, 1] pixel
        units. ``inf`` where no attack found another class; 0 where labels were given
        and the prediction is wrong.
    adversarial : Tensor, shape (N, ...)
        The closest inputs found, in [0, 1], with another prediction; the clean input
        where `margins` is ``inf`` or 0.
    found_by : Tensor, shape (N,)
        Which attack found it, int64: an index into `attacks`.
    norm : {"linf", "l2"}
        What `margins` measures.
    attacks : tuple of str
        "none" (nothing found, or nothing needed), "fmn", "fab", "line" (where both
        failed: straight to black, gray, white or the negative), and "fmn+fmn",
        "fab+fmn", "line+fmn" where a last run of FMN shortened that.
    """

    margins: Tensor = field(repr=False)
    adversarial: Tensor = field(repr=False)
    found_by: Tensor = field(repr=False)
    norm: Norm
    attacks: tuple[str, ...] = ATTACKS

    def __len__(self) -> int:
        """N, the number of inputs."""
        return len(self.margins)

    @property
    def attack(self) -> list[str]:
        """Name of the attack that found the margin, for each input."""
        return [self.attacks[index] for index in self.found_by.tolist()]

    @property
    def failed(self) -> Tensor:
        """Where no attack found another class, bool (N,)."""
        return torch.isinf(self.margins)


@DOCS.fill
def input_margin(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    norm: Norm = "linf",
    targets: int = 3,
    steps: int = 20,
    refine_steps: int = 50,
    bisections: int = 12,
    batch_size: int = 256,
    seed: int = 0,
    checkpoint: Path | str | None = None,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> InputMargins:
    """Measure distances to the decision boundary: the smallest changes found.

    The smallest of several attacks: FMN and FAB, targeted at the classes whose
    boundaries are nearest to first order; then, for the nearest class found, FAB with
    more steps and FMN that starts from the best input; then a bisection. Returns upper
    bounds, as :class:`InputMargins`; on linear models they are the margins. Source: the
    margin paper, equation 1; Chapter 21.

    Parameters
    ----------
    {model} {images}
    labels : Tensor or ndarray, shape (N,), optional
        True classes. Without them, the margin is that of the prediction, right or
        wrong: the paper's. With them, the margin is 0 where the prediction is wrong.
    {norm}
    targets : int, default 3
        How many classes the first pass goes for; all of them if there are fewer.
    steps : int, default 20
        Steps of each attack in the first pass.
    refine_steps : int, default 50
        Steps of each attack in the second pass; 0 for no second pass.
    bisections : int, default 12
        Halvings of the way back to the clean input in the end. After them, the change
        is stretched by 1/10 000 where that does not make it longer than it was, so that
        rounding in another batch size does not undo it.
    {batch_size}
    seed : int, default 0
        Seed for models that draw random numbers; the search itself draws none.
    checkpoint : path, optional
        A folder that keeps each batch as soon as it is done. A later call with the same
        model, inputs and options goes on from there. Models are compared by their code,
        parameters and settings, and by logits and gradients on the inputs.
    {progress} {device}

    Raises
    ------
    {TypeError} {ValueError}
    OSError
        If nothing can be written to `checkpoint`.
    {ModuleNotFoundError}

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> result = input_margin(lambda x: x @ weights.T, torch.tensor([[0.9, 0.1]]))
    >>> round(float(result.margins[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    recipe = Recipe(
        norm=norm,
        targets=check_count("targets", targets),
        steps=check_count("steps", steps),
        refine_steps=check_count("refine_steps", refine_steps, minimum=0),
        bisections=check_count("bisections", bisections, minimum=0),
    )
    seed = check_count("seed", seed, minimum=0)
    if checkpoint is not None:
        check_writable(checkpoint, what="checkpoint", remedy="name another folder")
        key = {**asdict(recipe), "seed": seed, "model": model_sum(model)}
    clean = as_tensor("images", images)
    with torch.inference_mode(False):
        found_by = torch.zeros(len(clean) if clean.ndim else 0, dtype=torch.int64)

    def perturb(batch: Batch) -> Tensor:
        def searched() -> Arrays:
            _reseed(seed, batch, "attack")
            closest, attacks = search(batch, recipe)
            tensors = {"adversarial": closest, "found_by": attacks}
            return {k: value.detach().cpu().numpy() for k, value in tensors.items()}

        if checkpoint is None:
            measured = searched()
        else:
            _reseed(seed, batch, "attack")
            measured = _resumed(searched, batch, key, Path(checkpoint))
        found_by[batch.indices] = torch.from_numpy(measured["found_by"])
        # As far as if nothing had been read: the next batch must not notice.
        _reseed(seed, batch, "after")
        return torch.from_numpy(measured["adversarial"]).to(batch.images)

    settings = Settings(
        "input_margin", norm, batch_size, seed, progress, device, minimal=True
    )
    result = run_attack(perturb, model, clean, labels, settings)
    found_by = found_by.to(result.norms.device)
    found_by[torch.isinf(result.norms)] = 0
    return InputMargins(result.norms, result.adversarial, found_by, norm)


def _reseed(seed: int, batch: Batch, purpose: str) -> None:
    """The same random numbers for a batch, whatever was done before it."""
    text = f"{seed} {int(batch.indices[0])} {purpose}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    torch.default_generator.manual_seed(number)
    if batch.images.device.type == "cuda":
        with torch.cuda.device(batch.images.device):
            torch.cuda.manual_seed(number)


#: Gradients of one model agree this well, also where arithmetic is not deterministic.
_TOLERANCE: Final = 1e-2


def _resumed(
    searched: Callable[[], Arrays], batch: Batch, key: dict[str, Any], folder: Path
) -> Arrays:
    """What the folder has of this batch and this model; else searched, and kept."""
    logits, gradients = model_answers(batch.model, batch.images)
    seen = {"images": batch.images, "labels": batch.labels, "logits": logits}
    slopes = gradients.flatten(1).cpu().numpy()
    sums = {name: tensor_sum(values) for name, values in seen.items()}
    kept = cached_arrays(
        {**key, **sums, "device": batch.images.device.type},
        lambda: {**searched(), "slopes": slopes},
        code=__name__,
        directory=folder,
    )
    # Of two models with the same logits, one may hide its gradient.
    off = np.linalg.norm(kept["slopes"] - slopes, axis=1)
    same = bool((off <= _TOLERANCE * np.linalg.norm(slopes, axis=1)).all())
    return kept if same else searched()
