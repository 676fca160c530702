"""What a measure costs: passes through the model, counted as they happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from robustbook._checks.models import Model

__all__ = ["CountedModel", "Passes"]

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Passes:
    """Passes through a model, per image that is measured.

    Attributes
    ----------
    forward : float
        Evaluations of the model.
    backward : float
        Gradients of a number that its logits give.
    """

    forward: float
    backward: float

    @property
    def total(self) -> float:
        """Both together: a backward pass costs one to two forward ones."""
        return self.forward + self.backward


class CountedModel(nn.Module):
    """A model that counts the passes through it.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...).

    Examples
    --------
    >>> import torch
    >>> counted = CountedModel(nn.Linear(3, 2))
    >>> image = torch.zeros(5, 3, requires_grad=True)
    >>> result, passes = counted.count(lambda: counted(image).sum().backward(), per=5)
    >>> passes
    Passes(forward=1.0, backward=1.0)
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        # A module as a child: its device and its mode are found from outside.
        self.model = model
        self.training = isinstance(model, nn.Module) and model.training
        self._forward = 0
        self._backward = 0

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits, shape (n, K)."""
        self._forward += len(images)
        logits = self.model(images)
        if isinstance(logits, Tensor) and logits.requires_grad:
            logits.register_hook(  # type: ignore[no-untyped-call]
                self._count_backward
            )
        return logits

    def _count_backward(self, gradient: Tensor) -> None:
        self._backward += len(gradient)

    def count(
        self, measure: Callable[[], Measured], *, per: int
    ) -> tuple[Measured, Passes]:
        """Run a measurement, and say what it took.

        Parameters
        ----------
        measure : callable
            Takes nothing, and calls this model.
        per : int
            How many images are measured.

        Returns
        -------
        object
            What `measure` returns.
        Passes
            Those that it made.
        """
        forward, backward = self._forward, self._backward
        result = measure()
        return result, Passes(
            (self._forward - forward) / per, (self._backward - backward) / per
        )
