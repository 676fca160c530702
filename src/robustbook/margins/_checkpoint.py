"""Batches that are already measured: one file each, never half of one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from robustbook._checks.models import model_answers
from robustbook._store.files import atomic_write, check_writable
from robustbook._store.sums import model_sum, tensor_sum, tensors_sum
from robustbook.attacks.engine import Batch

_KEY: Final = "configuration"
_SUM: Final = "sum"

#: Logits and gradients of one model, on one machine or another, agree this well.
_TOLERANCE: Final = {"logits": 1e-3, "gradients": 1e-2}


class Checkpoint:
    """A folder with one file for each batch and configuration.

    The name of a file is the sum of all that the result depends on: options, images,
    labels, code and parameters. What the model makes of the images is kept in the
    file and compared: logits and gradients, on the clean images and on those that
    were found, so that a model that only answers alike is another one.
    """

    def __init__(
        self, folder: Path | str, configuration: Mapping[str, Any], model: object
    ) -> None:
        self._folder = Path(folder)
        self._configuration = {**configuration, "model": model_sum(model)}
        check_writable(folder, what="checkpoint", remedy="name another folder")

    def read(self, batch: Batch) -> dict[str, Tensor] | None:
        """Return the tensors that were kept for a batch, or None."""
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
        """Keep the tensors of a batch."""
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
