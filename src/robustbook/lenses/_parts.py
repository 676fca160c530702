"""Measuring part by part: each part is shown, and kept if there is where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from robustbook._checks.models import model_answers
from robustbook._store.cache import cached_arrays
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.lenses._passes import Passes
from robustbook.lenses._subject import Subject, Tensors

__all__ = ["Parts"]

_PASSES = "passes"


class Parts:
    """Measures a subject in so many steps, each part by part; counts, keeps, shows."""

    def __init__(
        self,
        subject: Subject,
        count: int,
        *,
        checkpoint: Path | str | None,
        progress: bool,
    ) -> None:
        self._subject, self._count, self._done = subject, count, 0
        self._checkpoint = checkpoint
        # None: only on a terminal.
        self._hidden = None if progress else True
        self._key = {} if checkpoint is None else _key(subject)

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
            for part in torch.split(rows, self._subject.batch_size):
                parts.append(self._part(name, part, compute))
                bar.update(len(part))
        joined = {key: torch.cat([one[key] for one in parts]) for key in parts[0]}
        forward, backward = (joined.pop(_PASSES).sum(dim=0) / len(rows)).tolist()
        return joined, Passes(forward, backward)

    def _part(
        self, name: str, rows: Tensor, compute: Callable[[Tensor], Tensors]
    ) -> Tensors:
        def measured() -> dict[str, Any]:
            tensors, passes = self._subject.model.count(lambda: compute(rows), per=1)
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


def _key(subject: Subject) -> dict[str, Any]:
    """All that the numbers depend on, beside the images of a part and the code."""
    images = subject.images
    # Of the model itself: that with the same logits another has other gradients.
    _, gradients = model_answers(subject.model, images[:2].to(subject.device))
    return {
        "settings": vars(subject.settings),
        "model": model_sum(subject.model.model),
        "images": tensor_sum(images),
        "logits": tensor_sum(subject.logits),
        "gradients": tensor_sum(gradients),
        "device": subject.device.type,
    }
