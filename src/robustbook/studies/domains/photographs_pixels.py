"""Leave one domain of PACS out: a small network, trained from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model
from robustbook.studies.domains.photographs import (
    Samples,
    WorldSetting,
    left_out,
    targets,
    world_domains,
)
from robustbook.studies.run import Row, Run


@dataclass(frozen=True, kw_only=True)
class PixelSetting(WorldSetting):
    """The side of the pictures, in pixels, and the width of the network."""

    size: int
    width: int
    #: Whether each picture is trained on as it is and mirrored.
    mirrored: bool = True

    def source(self, samples: Samples) -> Dataset:
        """Return the training set of a domain."""
        images, labels = samples
        if self.mirrored:
            images, labels = torch.cat([images, images.flip(3)]), labels.repeat(2)
        return Dataset(images, labels, "pictures", "train", 1 + int(labels.max()))

    def network(self, head: str, source: Dataset, seed: int) -> nn.Module:
        """Return the network to train, with its initial weights."""
        channels, classes = source.images.shape[1], source.num_classes
        options = {"width": self.width, "channels": channels, "num_classes": classes}
        return build_model(head, seed=seed, options=options)


SETTINGS: Final[dict[str, tuple[PixelSetting, ...]]] = {
    "full": (
        PixelSetting(
            world="PACS", dataset="pacs", trained=1200, validated=300, tested=1000,
            epochs=6, seeds=5, precision="bfloat16",
            learners=("ERM", "IRM-1", "LISA", "CutMix"),
            heads=(("strided-cnn", 3e-3), ("strided-cnn", 1e-2)), size=32, width=16,
        ),
    ),
    "quick": (
        PixelSetting(
            world="rehearsal", dataset="digits", trained=600, validated=60, tested=200,
            epochs=3, seeds=2, learners=("ERM", "CutMix"),
            heads=(("strided-cnn", 3e-2), ("strided-cnn", 1e-2)), size=16, width=8,
            mirrored=False,
        ),
    ),
}  # fmt: skip

#: Each domain as target, with each seed.
parts: Final = targets


def measure(run: Run[PixelSetting], target: str, seed: int) -> Iterator[Row]:
    """Train a small network from scratch on all domains but one, and test on that one.

    The samples of each target and seed, their pairs and the rows "pairs", "epoch" and
    "shift" are those of the study ``photographs``: pairs are found in the features of
    EfficientNet-Lite0 (in the quick profile in the pixels), before any training, so
    that nothing but the network is another. It sees the pictures, reduced to ``size``
    pixels a side; ``head`` is its architecture. Learner "CutMix" is LISA that pastes.

    PA thesis, sections 3.5, 3.6.3 and 5.3. The book's audit of domain shift.
    """
    setting = run.setting
    domains = world_domains(setting.world)
    pictures = {
        name: Samples(_reduced(setting, name, samples.features), samples.labels)
        for name, samples in domains.items()
    }
    return left_out(setting, domains, pictures, target, seed)


def _reduced(setting: PixelSetting, domain: str, features: Tensor) -> Tensor:
    if setting.dataset == "pacs":
        images = load_dataset("pacs", domain).images
    else:  # their features are their pixels
        images = features.reshape(-1, 1, 8, 8)
    options: Any = {"mode": "bilinear", "antialias": True}
    return F.interpolate(images, size=setting.size, **options)
