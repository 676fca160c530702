"""Attack once, keep the logits: what all experiments of Part III start from."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from robustbook import attacks
from robustbook._checks.arguments import check_count, check_non_negative, check_positive
from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.datasets import Dataset
from robustbook.models import features_of, load_model, logits_of, resolve_device

__all__ = ["Attack", "AttackedLogits", "attack_model", "data_sha256", "model_sha256"]

Option = str | int | float | bool

#: Attacks by the name that rows give them: the function, and fixed options.
_KINDS: dict[str, tuple[str, dict[str, Option]]] = {
    "pgd": ("pgd", {"skip_errors": False}),
    "pgd-surrogate": ("pgd", {"skip_errors": False}),
    "apgd-ce": ("apgd", {"loss": "ce"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "fmn": ("fmn", {}),
    "fab": ("fab", {}),
}


@dataclass(frozen=True)
class Attack:
    """An attack with its settings.

    Attributes
    ----------
    kind : {"pgd", "pgd-surrogate", "apgd-ce", "apgd-dlr", "fmn", "fab"}
        Which attack; "pgd-surrogate" attacks the ``surrogate`` of a defended model.
    eps : float or None
        ℓ∞ bound in [0, 1] pixel units. None, for "fmn" and "fab" only: no bound.
        "fab" with a bound keeps the clean image where it found nothing within it.
    steps : int
        Gradient steps.
    """

    kind: str
    eps: float | None
    steps: int

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(
                f"kind: expected one of {', '.join(_KINDS)}; got {self.kind!r}"
            )
        if self.eps is None and not self.unbounded:
            raise ValueError(f"eps: expected a bound for {self.kind}, got None")
        if self.unbounded and self.eps is not None:
            eps = check_non_negative("eps", self.eps, infinite=True)
            object.__setattr__(self, "eps", eps)
        elif self.eps is not None:
            object.__setattr__(self, "eps", check_positive("eps", self.eps))
        object.__setattr__(self, "steps", check_count("steps", self.steps))

    @property
    def unbounded(self) -> bool:
        """Whether the attack looks for the smallest perturbation itself."""
        return self.kind in ("fmn", "fab")

    def run(
        self, model: nn.Module, data: Dataset, *, seed: int
    ) -> attacks.AttackResult:
        """Attack a model, without a bound if the attack needs none."""
        function, options = _KINDS[self.kind]
        bound: dict[str, Any] = {} if self.unbounded else {"eps": self.eps}
        target: Any = model
        if self.kind == "pgd-surrogate":
            target = getattr(model, "surrogate", None)
            if target is None:
                raise ValueError(
                    "model: expected a defended model with a surrogate for "
                    f"{self.kind}, got {type(model).__name__}; attack it with pgd"
                )
        with warnings.catch_warnings():
            # Chapter 9 shows which models hide their gradients, and from what.
            warnings.filterwarnings("ignore", message=".*gradient of zero")
            result: attacks.AttackResult = getattr(attacks, function)(
                target, data.images, data.labels,
                steps=self.steps, seed=seed, **bound, **options,
            )  # fmt: skip
        return result


@dataclass(frozen=True, eq=False)
class AttackedLogits:
    """What a model makes of clean images and of attacked ones.

    Attributes
    ----------
    logits, shifted_logits : Tensor, shape (N, K)
        Of the clean and of the attacked images.
    labels : Tensor, shape (N,)
        True classes.
    norms : Tensor, shape (N,)
        ℓ∞ size of each perturbation that changed the prediction away from the
        label, 0 where the model was wrong before, inf where the attack failed.
    features, shifted_features : Tensor, shape (N, D)
        What the last linear layer receives.
    """

    logits: Tensor
    shifted_logits: Tensor
    labels: Tensor
    norms: Tensor
    features: Tensor
    shifted_features: Tensor

    def within(self, eps: float | None) -> AttackedLogits:
        """Keep the clean image where the perturbation is larger than a bound."""
        if eps is None:
            return self
        kept = (self.norms <= eps)[:, None]
        return AttackedLogits(
            self.logits,
            torch.where(kept, self.shifted_logits, self.logits),
            self.labels,
            torch.where(self.norms <= eps, self.norms, torch.inf),
            self.features,
            torch.where(kept, self.shifted_features, self.features),
        )


def attack_model(
    name: str,
    attack: Attack,
    data: Dataset,
    *,
    seed: int = 0,
    device: str = "auto",
    directory: Path | str | None = None,
) -> AttackedLogits:
    """Attack a model, or read from the cache what came of it.

    Parameters
    ----------
    name : str
        A name that :func:`robustbook.models.load_model` knows.
    attack : Attack
        The attack.
    data : Dataset
        Images and labels.
    seed : int, default 0
        Of the attack.
    device : str, default "auto"
        Where to run.
    directory : Path or str, optional
        The cache; see ``robustbook._store.cache``.

    Returns
    -------
    AttackedLogits
        On the CPU.

    Raises
    ------
    ValueError, DataUnavailableError
        If there is no such model, its weights are not to be had, or it has no
        surrogate for "pgd-surrogate".
    OSError
        If nothing can be written to the cache.

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> data = load_dataset("digits", "test").subset(range(8))
    >>> attack = Attack("pgd", 0.2, steps=3)
    >>> attack_model("digits-linear", attack, data).shifted_logits.shape
    torch.Size([8, 10])
    """
    seed = check_count("seed", seed, minimum=0)
    model = load_model(name).eval()
    # Minimum-norm attacks run once: a bound only selects from what they found.
    configuration: dict[str, Option | None] = {
        "model": name,
        "model_sha256": model_sha256(model),
        "data": f"{data.name} {data.split}",
        "data_sha256": data_sha256(data),
        "attack": attack.kind,
        "eps": None if attack.unbounded else attack.eps,
        "steps": attack.steps,
        "seed": seed,
        "code_sha256": code_sha256(["robustbook.attacks"], follow_imports=False),
    }
    if "+" in name:
        # What is around the network has no weights that would tell versions apart.
        defenses = code_sha256(["robustbook.models._defenses"], follow_imports=False)
        configuration["defenses_sha256"] = defenses

    def compute() -> Arrays:
        model.to(resolve_device(device))
        result = attack.run(model, data, seed=seed)
        return {
            "logits": logits_of(model, data.images).numpy(),
            "shifted_logits": logits_of(model, result.adversarial).numpy(),
            "labels": data.labels.numpy(),
            "norms": result.norms.numpy(),
            # Features serve comparisons, not the measure: half the digits will do.
            "features": _halved(features_of(model, data.images)),
            "shifted_features": _halved(features_of(model, result.adversarial)),
        }

    arrays = cached_arrays(configuration, compute, directory=directory)
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    for key in ("features", "shifted_features"):
        tensors[key] = tensors[key].float()
    return AttackedLogits(**tensors).within(attack.eps if attack.unbounded else None)


def _halved(features: Tensor) -> npt.NDArray[Any]:
    """In float16, unless a feature is too large for it."""
    half = features.half()
    return (half if bool(half.isfinite().all()) else features).numpy()


def model_sha256(model: nn.Module) -> str:
    """Return the sha256 of a model: its structure and its weights.

    Parameters
    ----------
    model : torch.nn.Module
        The model.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> len(model_sha256(nn.Linear(2, 2)))
    64
    """
    digest = hashlib.sha256(repr(model).encode())
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def data_sha256(data: Dataset) -> str:
    """Return the sha256 of images and labels.

    Parameters
    ----------
    data : Dataset
        The samples, in their order.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> len(data_sha256(load_dataset("digits", "test")))
    64
    """
    digest = hashlib.sha256()
    for tensor in (data.images, data.labels):
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
