"""Keep each finished measure in the cache, so that an interrupted call goes on."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbook._store.cache import Configuration, cached_arrays
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.average_case import Robustness
from robustbook.lenses._evaluator import Evaluator
from robustbook.lenses._result import AVERAGE_CASE, INPUT_MARGIN, Passes
from robustbook.margins import InputMargins


def cache_key(evaluator: Evaluator, drawn: Tensor) -> Configuration:
    """Return what every measure depends on; `drawn` are the images with margins.

    The sum of a function is only that of its source. Hence the clean logits, which its
    weights determine, are a part of the key.
    """
    tensors = evaluator.images, evaluator.logits, drawn
    return {
        "model": model_sum(evaluator.model.model),
        "tensors": " ".join(map(tensor_sum, tensors)),
        "settings": json.dumps(vars(evaluator.settings)),
        "device": str(evaluator.device),
    }


def resumed(
    key: Configuration, name: str, measure: Callable[[], tuple[Any, Passes]]
) -> tuple[Any, Passes]:
    """Return a measure and its passes from the cache, or compute and keep them."""

    def compute() -> dict[str, Any]:
        result, passes = measure()
        fields = {"logits": result} if isinstance(result, Tensor) else vars(result)
        arrays = {
            field: np.asarray(value.cpu() if isinstance(value, Tensor) else value)
            for field, value in fields.items()
            if value is not None
        }
        return arrays | {"passes": np.array([passes.forward, passes.backward])}

    arrays = cached_arrays({**key, "measure": name}, compute, code=__name__)
    passes = Passes(*arrays.pop("passes").tolist())
    fields: dict[str, Any] = {
        field: str(array) if array.dtype.kind == "U" else torch.from_numpy(array)
        for field, array in arrays.items()
    }
    if name == AVERAGE_CASE:
        return Robustness(**fields), passes
    if name == INPUT_MARGIN:
        return InputMargins(**fields), passes
    return fields["logits"], passes
