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
from robustbook.lenses._result import AVERAGE_CASE, Passes, Settings


def cache_key(
    model: object, settings: Settings, device: object, *tensors: Tensor
) -> Configuration:
    """Return what a measure depends on: the model, the settings, and tensors.

    The sum of a function is only that of its source. Hence the clean logits, which its
    weights determine, have to be among the tensors.
    """
    return {
        "model": model_sum(model),
        "settings": json.dumps(vars(settings)),
        "device": str(device),
        "tensors": " ".join(map(tensor_sum, tensors)),
    }


def resumed(
    key: Configuration, name: str, measure: Callable[[], tuple[Any, Passes]]
) -> tuple[Any, Passes]:
    """Return a measure and its passes from the cache, or compute and keep them."""

    def compute() -> dict[str, Any]:
        result, passes = measure()
        fields = {"values": result} if isinstance(result, Tensor) else vars(result)
        arrays = {
            field: np.asarray(value.cpu() if isinstance(value, Tensor) else value)
            for field, value in fields.items()
            if value is not None
        }
        return arrays | {"passes": np.array([passes.forward, passes.backward])}

    arrays = cached_arrays({**key, "measure": name}, compute, code="robustbook.lenses")
    passes = Passes(*arrays.pop("passes").tolist())
    fields: dict[str, Any] = {
        field: str(array) if array.dtype.kind == "U" else torch.from_numpy(array)
        for field, array in arrays.items()
    }
    result = Robustness(**fields) if name == AVERAGE_CASE else fields["values"]
    return result, passes
