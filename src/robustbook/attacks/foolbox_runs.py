"""Single runs of foolbox 3.3.4, with given starts and two corrections of its FMN."""

import warnings
from typing import Any, Final

from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.attacks.engine import Batch, Norm

with extra("attacks"), warnings.catch_warnings():
    # foolbox imports a name that SciPy has moved.
    warnings.simplefilter("ignore", DeprecationWarning)
    from eagerpy.astensor import astensor
    from foolbox.attacks import L2PGD, LinfPGD
    from foolbox.attacks.fast_minimum_norm import L2FMNAttack, LInfFMNAttack
    from foolbox.criteria import Misclassification, TargetedMisclassification
    from foolbox.devutils import atleast_kd
    from foolbox.models.pytorch import PyTorchModel

#: First relative change of the size of FMN's ball.
_GAMMA: Final = 0.05


def _nudged(epsilon: Any) -> Any:
    """Return a slightly larger size.

    FMN sets the size to its estimate of the distance to the boundary. Where a model is
    linear, the estimate is exact, the two logits come out equal, and FMN stays there
    for good without having fooled the model.
    """
    return epsilon * (1 + 1e-5) + 1e-6


class _LinfFMN(LInfFMNAttack):
    def project(self, x: Any, x0: Any, epsilon: Any) -> Any:
        return super().project(x, x0, _nudged(epsilon))


class _L2FMN(L2FMNAttack):
    def project(self, x: Any, x0: Any, epsilon: Any) -> Any:
        # foolbox divides the norm by itself, which leaves x as it is.
        factor = _nudged(epsilon) / (x - x0).flatten(1).norms.l2(axis=-1).maximum(1e-12)
        return x0 + (x - x0) * atleast_kd(factor.minimum(1), x.ndim)


def run_pgd(
    batch: Batch, start: Tensor, *, norm: Norm, eps: float, steps: int, step_size: float
) -> Tensor:
    """Return PGD's last images; `start` is in the unit ball."""
    kind = LinfPGD if norm == "linf" else L2PGD
    attack = kind(abs_stepsize=step_size, steps=steps)
    # foolbox would draw starts for the batch, not for each image.
    attack.get_random_start = lambda x0, epsilon: x0 + epsilon * astensor(start)  # type: ignore[method-assign]
    criterion = Misclassification(batch.labels)
    return attack.run(_wrapped(batch), batch.images, criterion, epsilon=eps)


def run_fmn(
    batch: Batch,
    target: Tensor | None,
    *,
    norm: Norm,
    steps: int,
    step_size: float,
    start: Tensor | None = None,
) -> Tensor:
    """Return FMN's closest images, the clean ones where it found none.

    It goes toward a class for each image or, with None, away from the label. It starts
    from images `start` that are in the class already, or from the clean ones.
    """
    kind = _LinfFMN if norm == "linf" else _L2FMN
    attack = kind(steps=steps, max_stepsize=step_size, gamma=_GAMMA)
    criterion: Any = Misclassification(batch.labels)
    if target is not None:
        criterion = TargetedMisclassification(target)
    model = _wrapped(batch)
    try:
        return attack.run(model, batch.images, criterion, starting_points=start)
    except AssertionError:
        if start is None:
            raise
        # foolbox asks the model again whether the start is in the class. Where
        # arithmetic is not deterministic, the answer may differ by rounding.
        return batch.images


def _wrapped(batch: Batch) -> Any:
    return PyTorchModel(batch.model, bounds=(0, 1), device=batch.images.device)
