"""Architectures by name: the project's own, and those of the public checkpoints.

The latter follow descriptions of their layers, not anybody's code; the names of their
parameters are those in the public files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_choice, check_count
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision


class Normalized(nn.Module):
    """A model with the normalization of its inputs as its first layer.

    Mean and standard deviation have one number per channel, of pixels in [0, 1].

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


def build_model(
    arch: str, *, seed: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build an untrained model whose initial weights depend on the seed only.

    Parameters
    ----------
    arch : str
        One of these; all have the option `num_classes` (10) or end in its width:

        - "linear": logistic regression on the pixels; `channels` (1) and `size` (8) of
          the images;
        - "small-cnn": two 3x3 convolutions of `width` (16) and twice as many channels,
          a 2x2 maximum, a linear layer; `channels` (1), an even `size` (8);
        - "conv-net": `convolutions` (channels, kernel, stride, padding), then `linear`
          layers of these widths; `channels` (3), `size` (32);
        - "pooled-conv-net": `convolutions` (channels, kernel, padding), each with a 2x2
          maximum, then `linear` layers, whose parameters are called `linear_name`;
        - "plain-resnet": without batch normalization, for 32x32 images; `width`,
          `planes`, `stages` of two blocks;
        - "cifar-resnet": that of He et al. (CVPR 2016, section 4.2) for CIFAR-10,
          shortcuts of option A; `blocks` a stage;
        - "preact-resnet": normalizes before it convolves (He et al., ECCV 2016), quick
          on a processor; `widths` and `blocks` of the stages, `channels` (3);
        - "block-cnn": as that of K. Jordan ("94% on CIFAR-10 in 3.29 seconds", 2024),
          for 32x32 images: a 2x2 convolution, then blocks of two 3x3 convolutions of
          these `widths`, normalized and followed by GELU, with a 2x2 maximum after the
          first; `channels` (3);
        - "strided-cnn": four 3x3 convolutions, three of stride 2, for images of any
          size from 16 on; `channels` (3), `width` (16, a multiple of 4), and `norm`:
          "batch", or "group", which is the same in training and evaluation;
        - "resnet18", "resnet50": torchvision's, untrained, for photographs.
    seed : int
        Seed of the initial weights. The global generator is left as it was.
    options : mapping, optional
        Keyword options of the architecture.

    Raises
    ------
    TypeError, ValueError
        If there is no such architecture or option, or `seed` is no integer of 64 bits.

    Examples
    --------
    >>> model = build_model("small-cnn", seed=0, options={"width": 4})
    >>> model(torch.zeros(2, 1, 8, 8)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 10]), 1626)
    >>> resnet20 = build_model("cifar-resnet", seed=0, options={"blocks": 3})
    >>> sum(p.numel() for p in resnet20.parameters())
    269722
    """
    check_choice("arch", arch, _ARCHITECTURES)
    if check_count("seed", seed, minimum=-(2**63)) >= 2**63:
        raise ValueError(f"seed: expected a number of 64 bits, got {seed}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return _ARCHITECTURES[arch](**(options or {}))


# ------------------------------------------------------------------------- the parts


def _chain(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


class _Centered(nn.Module):
    """Pixels in [-2, 2], so that a gray background is zero."""

    def forward(self, images: Tensor) -> Tensor:
        return 4.0 * (images - 0.5)


class _Mean(nn.Module):
    """The mean over the image."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.mean((2, 3))


def _conv3(
    channels: int, out: int, stride: int = 1, *, bias: bool = False
) -> nn.Conv2d:
    return nn.Conv2d(channels, out, 3, stride, padding=1, bias=bias)


class _PreactBlock(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = _conv3(channels, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = _conv3(planes, planes)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != planes:
            self.shortcut = nn.Conv2d(channels, planes, 1, stride, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(hidden))
        if self.shortcut is not None:
            hidden = self.shortcut(inner)
        return hidden + self.conv2(torch.relu(self.bn2(self.conv1(inner))))


class _PlainBlock(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(channels, planes, stride, bias=True)
        self.conv2 = _conv3(planes, planes, bias=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != planes:
            self.shortcut.append(nn.Conv2d(channels, planes, 1, stride))

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.conv2(torch.relu(self.conv1(hidden)))
        return torch.relu(inner + self.shortcut(hidden))


class _CifarBlock(nn.Module):
    """The shortcut takes every second pixel and pads the channels with zeros."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(channels, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.stride = stride
        self.padding = (planes - channels) // 2

    def forward(self, hidden: Tensor) -> Tensor:
        inner = torch.relu(self.bn1(self.conv1(hidden)))
        shortcut = hidden[:, :, :: self.stride, :: self.stride]
        if self.padding:
            shortcut = F.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding))
        return torch.relu(self.bn2(self.conv2(inner)) + shortcut)


_Sizes = Sequence[Sequence[int]]
_Block = type[_PreactBlock] | type[_PlainBlock] | type[_CifarBlock]


def _stage(
    block: _Block, channels: int, planes: int, stride: int, number: int
) -> nn.Sequential:
    """Blocks of which the first changes the shape."""
    rest = range(check_count("blocks", number) - 1)
    first = block(channels, planes, stride)
    return nn.Sequential(first, *(block(planes, planes, 1) for _ in rest))


# ----------------------------------------------------------------- the architectures


def _linear(*, channels: int = 1, size: int = 8, num_classes: int = 10) -> nn.Module:
    linear = nn.Linear(channels * size * size, num_classes)
    return _chain(flatten=nn.Flatten(), linear=linear)


def _small_cnn(
    *, channels: int = 1, size: int = 8, width: int = 16, num_classes: int = 10
) -> nn.Sequential:
    if size % 2:
        raise ValueError(f"size: expected an even number, got {size}")
    return _chain(
        conv1=_conv3(channels, width, bias=True),
        relu1=nn.ReLU(),
        conv2=_conv3(width, 2 * width, bias=True),
        relu2=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        linear=nn.Linear(2 * width * (size // 2) ** 2, num_classes),
    )


def _conv_net(
    *, channels: int = 3, size: int = 32, convolutions: _Sizes, linear: Sequence[int]
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out, kernel, stride, padding in convolutions:
        layers += [nn.Conv2d(channels, out, kernel, stride, padding), nn.ReLU()]
        channels, size = out, (size + 2 * padding - kernel) // stride + 1
    layers.append(nn.Flatten())
    width = channels * size**2
    for out in linear:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers[:-1])


def _pooled_conv_net(
    *,
    channels: int = 3,
    size: int = 32,
    convolutions: _Sizes,
    linear: Sequence[int],
    linear_name: str = "linear",
) -> nn.Sequential:
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
    return _chain(**layers)


def _plain_resnet(
    *, width: int, planes: int, stages: int, num_classes: int = 10
) -> nn.Sequential:
    layers: dict[str, nn.Module] = {"conv1": _conv3(3, width, 2, bias=True)}
    layers["relu"] = nn.ReLU()
    for stage in range(1, check_count("stages", stages) + 1):
        layers[f"layer{stage}"] = _stage(_PlainBlock, width, planes, 2, 2)
        width = planes
    side = 16 // 2**stages
    return _chain(
        **layers,
        flatten=nn.Flatten(),
        linear1=nn.Linear(planes * side**2, 100),
        relu1=nn.ReLU(),
        linear2=nn.Linear(100, num_classes),
    )


def _cifar_resnet(*, blocks: int, num_classes: int = 10) -> nn.Sequential:
    return _chain(
        conv1=_conv3(3, 16),
        bn1=nn.BatchNorm2d(16),
        relu=nn.ReLU(),
        layer1=_stage(_CifarBlock, 16, 16, 1, blocks),
        layer2=_stage(_CifarBlock, 16, 32, 2, blocks),
        layer3=_stage(_CifarBlock, 32, 64, 2, blocks),
        mean=_Mean(),
        linear=nn.Linear(64, num_classes),
    )


def _preact_resnet(
    *,
    widths: Sequence[int],
    blocks: Sequence[int],
    channels: int = 3,
    num_classes: int = 10,
) -> nn.Sequential:
    if not widths or len(widths) != len(blocks):
        raise ValueError(
            "widths and blocks: expected one number each for every stage, got "
            f"{list(widths)} and {list(blocks)}"
        )
    conv1 = nn.Conv2d(channels, widths[0], 4, stride=2, padding=1)
    layers: list[nn.Module] = []
    for stage, (planes, number) in enumerate(zip(widths, blocks, strict=True)):
        before, stride = (widths[stage - 1], 2) if stage else (planes, 1)
        layers += _stage(_PreactBlock, before, planes, stride, number)
    return _chain(
        center=_Centered(),
        conv1=conv1,
        blocks=nn.Sequential(*layers),
        bn=nn.BatchNorm2d(widths[-1]),
        relu=nn.ReLU(),
        mean=_Mean(),
        linear=nn.Linear(widths[-1], num_classes),
    )


def _block_cnn(
    *, widths: Sequence[int], channels: int = 3, num_classes: int = 10
) -> nn.Sequential:
    # Twice the numbers of a patch, so that whitening filters fit with both signs.
    width = 8 * channels
    layers: dict[str, nn.Module] = {"whiten": nn.Conv2d(channels, width, 2)}
    layers["gelu"] = nn.GELU()
    for number, out in enumerate(widths, start=1):
        layers[f"block{number}"] = nn.Sequential(
            _conv3(width, out),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(out),
            nn.GELU(),
            _conv3(out, out),
            nn.BatchNorm2d(out),
            nn.GELU(),
        )
        width = out
    return _chain(
        **layers,
        maximum=nn.AdaptiveMaxPool2d(1),
        flatten=nn.Flatten(),
        linear=nn.Linear(width, num_classes),
    )


def _strided_cnn(
    *, channels: int = 3, width: int = 16, num_classes: int = 10, norm: str = "batch"
) -> nn.Sequential:
    check_choice("norm", norm, ("batch", "group"))
    check_count("channels", channels)
    check_count("num_classes", num_classes)
    if check_count("width", width) % 4:
        raise ValueError(f"width: expected a multiple of 4, got {width}")
    layers: list[nn.Module] = []
    for out, stride in ((width, 2), (2 * width, 2), (4 * width, 2), (4 * width, 1)):
        normalize = nn.BatchNorm2d(out) if norm == "batch" else nn.GroupNorm(4, out)
        layers += [_conv3(channels, out, stride), normalize, nn.ReLU()]
        channels = out
    body, linear = nn.Sequential(*layers), nn.Linear(channels, num_classes)
    return _chain(center=_Centered(), body=body, mean=_Mean(), linear=linear)


def _torchvision(name: str, *, num_classes: int = 10) -> nn.Module:
    mend_torchvision()
    with extra("robustbench"):
        from torchvision import models

    network = models.get_model(name, weights=None, num_classes=num_classes)
    return Normalized(network, mean=[0.5] * 3, std=[0.25] * 3)


_ARCHITECTURES: Final[dict[str, Callable[..., nn.Module]]] = {
    "linear": _linear,
    "small-cnn": _small_cnn,
    "conv-net": _conv_net,
    "pooled-conv-net": _pooled_conv_net,
    "plain-resnet": _plain_resnet,
    "cifar-resnet": _cifar_resnet,
    "preact-resnet": _preact_resnet,
    "block-cnn": _block_cnn,
    "strided-cnn": _strided_cnn,
    "resnet18": partial(_torchvision, "resnet18"),
    "resnet50": partial(_torchvision, "resnet50"),
}
