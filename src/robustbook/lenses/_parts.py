"""Measuring part by part: each part is shown, and kept if there is where."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from robustbook._store.cache import cached_arrays
from robustbook._store.sums import tensor_sum
from robustbook.lenses._passes import CountedModel, Passes

__all__ = ["Parts", "gradients"]

Tensors = dict[str, Tensor]

_PASSES = "passes"


class Parts:
    """What goes over images part by part, counts, keeps and shows.

    Parameters
    ----------
    model : CountedModel
        Its passes are counted.
    size : int
        Images in a part.
    count : int
        Measures, for the bar.
    key : mapping
        All that the numbers depend on, beside the images of a part and the code.
    checkpoint : path or None
        Where parts are kept.
    progress : bool
        Show a bar on a terminal.
    """

    def __init__(
        self,
        model: CountedModel,
        size: int,
        *,
        count: int,
        key: Mapping[str, Any],
        checkpoint: Path | str | None,
        progress: bool,
    ) -> None:
        self._model, self._size, self._count = model, size, count
        self._key, self._checkpoint = key, checkpoint
        # None: only on a terminal.
        self._hidden = None if progress else True
        self._done = 0

    def measure(
        self, name: str, rows: Tensor, compute: Callable[[Tensor], Tensors]
    ) -> tuple[Tensors, Passes]:
        """Measure the images `rows`; return what all parts give, and its cost."""
        self._done += 1
        parts: list[Tensors] = []
        with tqdm(
            total=len(rows),
            desc=f"{name} ({self._done} of {self._count})",
            unit="image",
            leave=False,
            disable=self._hidden,
        ) as bar:
            for part in torch.split(rows, self._size):
                parts.append(self._part(name, part, compute))
                bar.update(len(part))
        joined = {key: torch.cat([one[key] for one in parts]) for key in parts[0]}
        forward, backward = (joined.pop(_PASSES).sum(dim=0) / len(rows)).tolist()
        return joined, Passes(forward, backward)

    def _part(
        self, name: str, rows: Tensor, compute: Callable[[Tensor], Tensors]
    ) -> Tensors:
        def measured() -> dict[str, Any]:
            tensors, passes = self._model.count(lambda: compute(rows), per=1)
            tensors[_PASSES] = torch.tensor([[passes.forward, passes.backward]])
            return {key: value.detach().cpu().numpy() for key, value in tensors.items()}

        if self._checkpoint is None:
            arrays = measured()
        else:
            key = {**self._key, "measure": name, "rows": tensor_sum(rows)}
            arrays = cached_arrays(
                {"lenses": json.dumps(key, sort_keys=True)},
                measured,
                code="robustbook.lenses",
                directory=self._checkpoint,
            )
        return {key: torch.from_numpy(np.asarray(one)) for key, one in arrays.items()}


def gradients(model: torch.nn.Module, images: Tensor) -> Tensor:
    """Gradients of one mixture of the logits: those of another model are others."""
    inputs = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(inputs)
        if not logits.requires_grad:
            return torch.zeros(0)
        mixture = torch.cos(torch.arange(logits.shape[1], device=logits.device) + 1.0)
        total = (logits @ mixture.to(logits)).sum()
    (gradient,) = torch.autograd.grad(total, inputs)
    return gradient.cpu()
