"""Architectures of the public checkpoints.

They follow descriptions of their layers, not anybody's code; the names of their
parameters are those in the public files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_count


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
        logits: Tensor = self.model((images - self.mean) / self.std)
        return logits


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
        logits: Tensor = self.linear2(torch.relu(self.linear1(hidden.flatten(1))))
        return logits


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
        logits: Tensor = self.linear(hidden.mean((2, 3)))
        return logits
