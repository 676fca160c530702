"""Input margins: upper bounds from an ensemble of attacks, batch by batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_count, check_non_negative
from robustbook._checks.models import Model, model_answers
from robustbook._store.files import atomic_write, check_writable
from robustbook._store.provenance import fingerprint
from robustbook._store.sums import model_sum, tensor_sum, tensors_sum
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

    def brittle(self, eps: float) -> Tensor:
        """Where a change of size `eps` or less, in pixel units, was found, bool (N,).

        The rest may be brittle, too: a margin is an upper bound.
        """
        return self.margins <= check_non_negative("eps", eps)


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
    more steps and FMN that starts from the best input; then a bisection. What is found
    is an upper bound on the margin. On linear models it is the margin.

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
        parameters and settings, and by logits and gradients on the inputs and on the
        closest ones found.
    {progress} {device}

    Returns
    -------
    InputMargins
        Margins, closest inputs, and which attack found them.

    Raises
    ------
    {TypeError} {ValueError}
    OSError
        If nothing can be written to `checkpoint`.
    {ModuleNotFoundError}

    References
    ----------
    Margin paper, equation 1. Chapter 21 of this book.

    Examples
    --------
    >>> import torch
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
    store = None
    if checkpoint is not None:
        options = {**asdict(recipe), "seed": seed, "code": fingerprint(__name__)}
        store = Checkpoint(checkpoint, options, model)
    clean = as_tensor("images", images)
    with torch.inference_mode(False):
        found_by = torch.zeros(len(clean) if clean.ndim else 0, dtype=torch.int64)

    def perturb(batch: Batch) -> Tensor:
        _reseed(seed, batch, "attack")
        measured = None if store is None else store.read(batch)
        if measured is None:
            # As if nothing had been read.
            _reseed(seed, batch, "attack")
            closest, attacks = search(batch, recipe)
            measured = {"adversarial": closest, "found_by": attacks}
            if store is not None:
                _reseed(seed, batch, "attack")
                store.write(batch, measured)
        found_by[batch.indices] = measured["found_by"].cpu()
        # As far as if nothing had been read: the next batch must not notice.
        _reseed(seed, batch, "after")
        return measured["adversarial"].to(batch.images)

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


_KEY: Final = "configuration"
_SUM: Final = "sum"

#: Logits and gradients of one model, on one machine or another, agree this well.
_TOLERANCE: Final = {"logits": 1e-3, "gradients": 1e-2}


class Checkpoint:
    """A folder with one file for each batch and configuration.

    Its name is the sum of all that the result depends on. What the model makes of the
    images is kept and compared, too: a model that only answers alike is another one.
    """

    def __init__(
        self, folder: Path | str, configuration: Mapping[str, Any], model: object
    ) -> None:
        self._folder = Path(folder)
        self._configuration = {**configuration, "model": model_sum(model)}
        check_writable(folder, what="checkpoint", remedy="name another folder")

    def read(self, batch: Batch) -> dict[str, Tensor] | None:
        path, text = self._place(batch)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get(_KEY) != text:
                    return None
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None
        # The format knows no checksum of its own.
        if metadata.get(_SUM) != tensors_sum(stored):
            return None
        answers = _answers(batch, stored["adversarial"].to(batch.images))
        if all(_alike(name, stored.pop(name), answers[name]) for name in answers):
            return stored
        return None

    def write(self, batch: Batch, margins: Mapping[str, Tensor]) -> None:
        path, text = self._place(batch)
        content = {**margins, **_answers(batch, margins["adversarial"])}
        content = {k: v.detach().cpu().contiguous() for k, v in content.items()}
        metadata = {_KEY: text, _SUM: tensors_sum(content)}
        with atomic_write(path) as file:
            file.write(save(content, metadata=metadata))

    def _place(self, batch: Batch) -> tuple[Path, str]:
        sums = {"images": tensor_sum(batch.images), "labels": tensor_sum(batch.labels)}
        text = json.dumps({**self._configuration, **sums}, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self._folder / f"{name}.safetensors", text


def _answers(batch: Batch, adversarial: Tensor) -> dict[str, Tensor]:
    """Logits, and gradients of one mixture of them, clean and adversarial."""
    answers = {}
    for kind, images in (("clean", batch.images), ("adversarial", adversarial)):
        logits, gradients = model_answers(batch.model, images)
        answers[f"logits, {kind}"] = logits
        answers[f"gradients, {kind}"] = gradients.flatten(1)
    return answers


def _alike(name: str, stored: Tensor, now: Tensor) -> bool:
    """Whether each row is what it was, up to rounding."""
    now = now.cpu()
    if stored.shape != now.shape:
        return False
    allowed = _TOLERANCE[name.partition(",")[0]] * stored.norm(dim=1)
    return bool(((stored - now).norm(dim=1) <= allowed).all())
