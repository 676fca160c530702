"""Architectures by name: the project's own, and those of the public checkpoints.

The latter follow descriptions of their layers, not anybody's code; the names of their
parameters are those in the public files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_choice, check_count
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision


class LinearClassifier(nn.Module):
    """Logistic regression on the pixels of square images.

    Examples
    --------
    >>> LinearClassifier()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, *, channels: int = 1, size: int = 8, num_classes: int = 10
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(channels * size * size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        return self.linear(images.flatten(1))


class SmallCNN(nn.Module):
    """Two 3x3 convolutions with ReLU, a 2x2 maximum, one linear layer.

    The side of the images, `size`, must be even; `width` channels leave the first
    convolution, twice as many the second.

    Examples
    --------
    >>> SmallCNN()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int = 1,
        size: int = 8,
        width: int = 16,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"size: expected an even number, got {size}")
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.linear = nn.Linear(2 * width * (size // 2) ** 2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        hidden = torch.relu(self.conv1(images))
        hidden = self.pool(torch.relu(self.conv2(hidden)))
        return self.linear(hidden.flatten(1))


class _PreactBlock(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != planes:
            self.shortcut = nn.Conv2d(channels, planes, 1, stride, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(hidden))
        if self.shortcut is not None:
            hidden = self.shortcut(inner)
        inner = self.conv2(torch.relu(self.bn2(self.conv1(inner))))
        return hidden + inner


class PreactResNet(nn.Module):
    """A residual network that normalizes before it convolves, quick on a processor.

    The first convolution halves the sides (4x4, stride 2), and so does the first
    block of each stage but the first one. Pixels are moved to [-2, 2] first. Source:
    K. He et al., *Identity mappings in deep residual networks*, ECCV 2016.

    Parameters
    ----------
    widths, blocks : sequence of int
        Channels of each stage, and its blocks of two convolutions each.
    channels : int
        Channels of the images.
    num_classes : int
        The number of classes K.

    Examples
    --------
    >>> net = PreactResNet(widths=[8, 16], blocks=[1, 1])
    >>> net(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        widths: Sequence[int],
        blocks: Sequence[int],
        channels: int = 3,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        if not widths or len(widths) != len(blocks):
            raise ValueError(
                "widths and blocks: expected one number each for every stage, got "
                f"{list(widths)} and {list(blocks)}"
            )
        width = widths[0]
        self.conv1 = nn.Conv2d(channels, width, 4, stride=2, padding=1)
        layers: list[nn.Module] = []
        for stage, (planes, number) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(check_count("blocks", number)):
                stride = 2 if stage and not block else 1
                layers.append(_PreactBlock(width, planes, stride))
                width = planes
        self.blocks = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(width)
        self.linear = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        hidden = self.blocks(self.conv1(4 * images - 2))
        return self.linear(torch.relu(self.bn(hidden)).mean((2, 3)))


class StridedCNN(nn.Module):
    """Four 3x3 convolutions, each normalized, and the mean over the image.

    The first three have stride 2, so the network takes images of any size from 16 on.
    Small enough to train on a processor in minutes.

    Parameters
    ----------
    channels, num_classes : int
        Channels of the images, and the number of classes K.
    width : int
        Channels after the first convolution, a multiple of 4; 2, 4 and 4 times as many
        after the next.
    norm : {"batch", "group"}
        "group": four groups of channels, each normalized within its own image, so that
        training and evaluation compute the same.

    Examples
    --------
    >>> StridedCNN(num_classes=2)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        width: int = 16,
        num_classes: int = 10,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("batch", "group"))
        for name, value in (("channels", channels), ("num_classes", num_classes)):
            check_count(name, value)
        if check_count("width", width) % 4:
            raise ValueError(f"width: expected a multiple of 4, got {width}")
        layers: list[nn.Module] = []
        for out, stride in ((width, 2), (2 * width, 2), (4 * width, 2), (4 * width, 1)):
            layers += [
                nn.Conv2d(channels, out, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(out) if norm == "batch" else nn.GroupNorm(4, out),
                nn.ReLU(),
            ]
            channels = out
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, C, H, W) in [0, 1]."""
        # Around the gray of the middle, so that a gray background is zero.
        hidden = self.body(4.0 * (images - 0.5))
        return self.linear(hidden.mean((2, 3)))


class Normalized(nn.Module):
    """A model with the normalization of its inputs as its first layer.

    Parameters
    ----------
    model : torch.nn.Module
        Takes normalized images.
    mean, std : sequence of float
        One number each for every channel, in units of [0, 1] pixels.

    Examples
    --------
    >>> model = Normalized(torch.nn.Identity(), mean=[0.5], std=[0.25])
    >>> model(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: nn.Module, *, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std, default=0) <= 0:
            raise ValueError(
                "mean and std: expected as many means as positive standard "
                f"deviations, got {tuple(mean)} and {tuple(std)}"
            )
        self.model = model
        for name, values in (("mean", mean), ("std", std)):
            tensor = torch.tensor(list(values)).reshape(-1, 1, 1)
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits (n, K) of images (n, C, H, W) in [0, 1]."""
        return self.model((images - self.mean) / self.std)


class ConvNet(nn.Sequential):
    """Convolutions, then linear layers, with a ReLU after all but the last.

    Parameters
    ----------
    channels, size : int
        Channels and side of the images.
    convolutions : sequence of (int, int, int, int)
        Output channels, kernel, stride and padding of each convolution.
    linear : sequence of int
        Widths of the linear layers; the last one is the number of classes.

    Examples
    --------
    >>> net = ConvNet(convolutions=[(16, 4, 2, 1), (32, 4, 2, 1)], linear=[100, 10])
    >>> net(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        size: int = 32,
        convolutions: Sequence[Sequence[int]],
        linear: Sequence[int],
    ) -> None:
        layers: list[nn.Module] = []
        for out, kernel, stride, padding in convolutions:
            layers += [nn.Conv2d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels, size = out, (size + 2 * padding - kernel) // stride + 1
        layers.append(nn.Flatten())
        width = channels * size**2
        for out in linear:
            layers += [nn.Linear(width, out), nn.ReLU()]
            width = out
        super().__init__(*layers[:-1])


class PooledConvNet(nn.Sequential):
    """Convolutions, each with ReLU and a 2x2 maximum, then linear layers.

    Parameters
    ----------
    channels, size : int
        Channels and side of the images.
    convolutions : sequence of (int, int, int)
        Output channels, kernel and padding of each convolution (stride 1).
    linear : sequence of int
        Widths of the linear layers; the last one is the number of classes.
    linear_name : str
        Their parameters are called by this and a number from 1.

    Examples
    --------
    >>> lenet = PooledConvNet(
    ...     convolutions=[(6, 5, 0), (16, 5, 0)], linear=[120, 84, 10]
    ... )
    >>> lenet(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        size: int = 32,
        convolutions: Sequence[Sequence[int]],
        linear: Sequence[int],
        linear_name: str = "linear",
    ) -> None:
        layers: dict[str, nn.Module] = {}
        for number, (out, kernel, padding) in enumerate(convolutions, start=1):
            layers[f"conv{number}"] = nn.Conv2d(channels, out, kernel, padding=padding)
            layers[f"relu{number}"] = nn.ReLU()
            layers[f"pool{number}"] = nn.MaxPool2d(2)
            channels, size = out, (size + 2 * padding - kernel + 1) // 2
        layers["flatten"] = nn.Flatten()
        width = channels * size**2
        for number, out in enumerate(linear, start=1):
            layers[f"{linear_name}{number}"] = nn.Linear(width, out)
            layers[f"{linear_name}_relu{number}"] = nn.ReLU()
            width = out
        layers.popitem()  # no ReLU after the last
        super().__init__(OrderedDict(layers))


class _PlainBlock(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, padding=1)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != planes:
            self.shortcut.append(nn.Conv2d(channels, planes, 1, stride))

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.conv2(torch.relu(self.conv1(hidden)))
        return torch.relu(inner + self.shortcut(hidden))


class PlainResNet(nn.Module):
    """A small residual network without batch normalization, for 32x32 images.

    Parameters
    ----------
    width, planes : int
        Channels after the first convolution (3x3, stride 2), and of all blocks.
    stages : int
        Stages of two blocks each; the first block of each has stride 2.
    num_classes : int
        The number of classes K.

    Examples
    --------
    >>> PlainResNet(width=8, planes=16, stages=1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, *, width: int, planes: int, stages: int, num_classes: int = 10
    ) -> None:
        super().__init__()
        self.stages = check_count("stages", stages)
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1)
        for stage in range(1, stages + 1):
            blocks = nn.Sequential(
                _PlainBlock(width, planes, 2), _PlainBlock(planes, planes, 1)
            )
            self.add_module(f"layer{stage}", blocks)
            width = planes
        side = 16 // 2**stages
        self.linear1 = nn.Linear(planes * side**2, 100)
        self.linear2 = nn.Linear(100, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, 3, 32, 32)."""
        hidden = torch.relu(self.conv1(images))
        for stage in range(1, self.stages + 1):
            hidden = self.get_submodule(f"layer{stage}")(hidden)
        return self.linear2(torch.relu(self.linear1(hidden.flatten(1))))


class _CifarBlock(nn.Module):
    """Where the shape changes, the shortcut takes every second pixel and pads the
    channels with zeros, evenly on both sides.
    """

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.stride = stride
        self.padding = (planes - channels) // 2

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(hidden)))
        inner = self.bn2(self.conv2(inner))
        shortcut = hidden[:, :, :: self.stride, :: self.stride]
        if self.padding:
            shortcut = F.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding))
        return torch.relu(inner + shortcut)


class CifarResNet(nn.Module):
    """The residual network of He et al. for CIFAR-10, shortcuts of option A.

    Parameters
    ----------
    blocks : int
        Blocks a stage; the depth is 6 `blocks` + 2.
    num_classes : int
        The number of classes K.

    References
    ----------
    K. He et al., *Deep residual learning for image recognition*, CVPR 2016, section
    4.2.

    Examples
    --------
    >>> sum(p.numel() for p in CifarResNet(blocks=3).parameters())
    269722
    """

    def __init__(self, *, blocks: int, num_classes: int = 10) -> None:
        super().__init__()
        check_count("blocks", blocks)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, 1, blocks)
        self.layer2 = self._stage(16, 32, 2, blocks)
        self.layer3 = self._stage(32, 64, 2, blocks)
        self.linear = nn.Linear(64, num_classes)

    @staticmethod
    def _stage(channels: int, planes: int, stride: int, blocks: int) -> nn.Sequential:
        return nn.Sequential(
            _CifarBlock(channels, planes, stride),
            *(_CifarBlock(planes, planes, 1) for _ in range(blocks - 1)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, 3, H, W)."""
        hidden = torch.relu(self.bn1(self.conv1(images)))
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        return self.linear(hidden.mean((2, 3)))


def _torchvision_resnet(depth: int) -> Callable[..., nn.Module]:
    """A residual network for photographs, as torchvision has it, untrained."""

    def make(*, num_classes: int = 10) -> nn.Module:
        mend_torchvision()
        with extra("robustbench"):
            from torchvision import models

        factory = getattr(models, f"resnet{depth}")
        network: nn.Module = factory(weights=None, num_classes=num_classes)
        return Normalized(network, mean=[0.5] * 3, std=[0.25] * 3)

    return make


_ARCHITECTURES: Final[dict[str, Callable[..., nn.Module]]] = {
    "linear": LinearClassifier,
    "small-cnn": SmallCNN,
    "conv-net": ConvNet,
    "pooled-conv-net": PooledConvNet,
    "plain-resnet": PlainResNet,
    "cifar-resnet": CifarResNet,
    "preact-resnet": PreactResNet,
    "strided-cnn": StridedCNN,
    "resnet18": _torchvision_resnet(18),
    "resnet50": _torchvision_resnet(50),
}


def register_architecture(name: str, factory: Callable[..., nn.Module]) -> None:
    """Make an architecture known to :func:`build_model` and to checkpoints.

    Parameters
    ----------
    name : str
        A new name.
    factory : callable
        Returns the module; takes its options as keywords.

    Raises
    ------
    ValueError
        If the name is taken by another factory.

    Examples
    --------
    >>> register_architecture("linear", LinearClassifier)
    """
    if _ARCHITECTURES.get(name, factory) is not factory:
        raise ValueError(f"name: an architecture {name!r} is registered already")
    _ARCHITECTURES[name] = factory


def build_model(
    arch: str, *, seed: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build an untrained model whose initial weights depend on the seed only.

    Parameters
    ----------
    arch : str
        "linear", "small-cnn", "conv-net", "pooled-conv-net", "plain-resnet",
        "cifar-resnet", "preact-resnet", "strided-cnn"; "resnet18" and "resnet50", which
        need torchvision; or another that is registered.
    seed : int
        Seed of the initial weights. The global generator is left as it was.
    options : mapping, optional
        Keyword options of the architecture.

    Raises
    ------
    TypeError, ValueError
        If there is no such architecture, or `seed` is no integer of 64 bits.

    Examples
    --------
    >>> model = build_model("small-cnn", seed=0, options={"width": 4})
    >>> sum(p.numel() for p in model.parameters())
    1626
    """
    check_choice("arch", arch, _ARCHITECTURES)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed: expected an integer, got {seed!r}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed: expected a number of 64 bits, got {seed}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return _ARCHITECTURES[arch](**(options or {}))
