"""Workarounds for faults of other libraries, each with its reason."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys

import torch

MISSING_OPERATOR = re.compile(r"torchvision::(q?nms) does not exist")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

#: A definition ends with the object that made it.
_kept: list[torch.library.Library] = []


def mend_torchvision() -> None:
    """Let a torchvision without compiled operators import beside a CPU torch.

    A torchvision from PyPI is a CUDA build. Beside a CPU build of torch its library of
    operators does not load, and its import fails because ``torchvision::nms`` is
    unknown, and with it that of torchmetrics. Declaring the operators mends this,
    except that ``torchvision.ops.nms`` does not work.
    """
    if "torchvision" in sys.modules or not importlib.util.find_spec("torchvision"):
        return
    declared: set[str] = set()
    while True:
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = MISSING_OPERATOR.search(str(error))
            if missing is None or missing[1] in declared:
                raise
            declared.add(missing[1])
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(missing[1] + SCHEMA)  # type: ignore[no-untyped-call]
            _kept.append(library)
        else:
            return
