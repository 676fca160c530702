"""An attack on a network in memory, and the arrays of it that the cache keeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.attacks import AttackResult, apgd, fab, fmn, pgd, square
from robustbook.datasets import Dataset
from robustbook.models import features_of, logits_of

#: Attacks by the name that rows give them: the function, and fixed options.
_KINDS: Final[dict[str, tuple[Callable[..., AttackResult], dict[str, Any]]]] = {
    "pgd": (pgd, {"skip_errors": False}),
    "apgd-ce": (apgd, {"loss": "ce"}),
    "apgd-dlr": (apgd, {"loss": "dlr"}),
    "apgd-targeted": (apgd, {"loss": "targeted"}),
    "fmn": (fmn, {}),
    "fab": (fab, {}),
    "square": (square, {}),
}
_INFORMED: Final = "-surrogate"


@dataclass(frozen=True)
class Attack:
    """An attack by its kind, its ℓ∞ bound in [0, 1] pixel units, and its steps.

    "pgd-surrogate" is PGD on the ``surrogate`` of a defended model, and so are others
    with this ending. "fmn" and "fab" may go without a bound (None).
    """

    kind: str
    eps: float | None
    steps: int

    @property
    def unbounded(self) -> bool:
        """Whether the attack looks for the smallest perturbation itself."""
        return self.kind in ("fmn", "fab")

    @property
    def keys(self) -> dict[str, Any]:
        """Columns that name the attack."""
        return {"attack": self.kind, "eps": self.eps, "steps": self.steps}

    def run(self, model: nn.Module, data: Dataset, *, seed: int) -> AttackResult:
        """Attack a model, without a bound if the attack needs none."""
        function, options = _KINDS[self.kind.removesuffix(_INFORMED)]
        if not self.unbounded:
            options = {**options, "eps": self.eps}
        informed = self.kind.endswith(_INFORMED)
        target: Any = model.surrogate if informed else model
        with warnings.catch_warnings():
            # Chapter 10 shows which models hide their gradients, and from what.
            warnings.filterwarnings("ignore", message=".*gradient of zero")
            return function(
                target, data.images, data.labels, steps=self.steps, seed=seed, **options
            )


def attacked_arrays(
    model: nn.Module, attack: Attack, data: Dataset, seed: int
) -> Arrays:
    """Logits and features of the clean images and of the attacked ones."""
    result = attack.run(model, data, seed=seed)
    return {
        "logits": logits_of(model, data.images).numpy(),
        "shifted_logits": logits_of(model, result.adversarial).numpy(),
        "labels": data.labels.numpy(),
        "norms": result.norms.numpy(),
        # Half precision suffices: features are compared, not measured by agreement.
        "features": _halved(features_of(model, data.images)),
        "shifted_features": _halved(features_of(model, result.adversarial)),
    }


def _halved(features: Tensor) -> npt.NDArray[Any]:
    """Convert to float16, unless a feature is too large for it."""
    half = features.half()
    return (half if bool(half.isfinite().all()) else features).numpy()
