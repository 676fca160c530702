"""Mends for other libraries; each says what it mends and when it can go."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys

import torch

MISSING_OPERATOR = re.compile(r"torchvision::(q?nms) does not exist")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

#: Definitions live as long as the object that made them.
_kept: list[torch.library.Library] = []


def mend_torchvision() -> None:
    """Let a torchvision without compiled operators import beside a CPU torch.

    The package index offers torchvision only as a CUDA build. Beside a CPU build of
    torch its library of operators does not load, and the import fails because
    ``torchvision::nms`` is unknown; so does torchmetrics, which imports it. Declaring
    the operators is enough: only ``torchvision.ops.nms`` does not work then.
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
