"""Public checkpoints: their sources, architectures and loader.

Each file is looked for in ``ROBUSTBOOK_DATA/models/NAME``, then in the user's cache,
and is downloaded from its authors' repository last; its sha256 is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from robustbook._checks.arguments import check_choice
from robustbook._store import user_cache
from robustbook._store.downloads import obtain
from robustbook.models._architectures import Normalized, build_model

#: The name of an architecture for build_model, and its options.
_Arch = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Source:
    """A public repository with checkpoints.

    Attributes
    ----------
    repository, commit, folder : str
        "owner/name" on GitHub, and the folder (with a slash at its end) at a commit.
    licence : str
        Its SPDX identifier.
    """

    repository: str
    commit: str
    folder: str
    licence: str


@dataclass(frozen=True)
class PublicModel:
    """The registry's entry of a public checkpoint.

    Attributes
    ----------
    name, dataset, arch, options : str, str, str, dict
        Arguments of :func:`load_model`, :func:`robustbook.datasets.load_dataset` and
        :func:`build_model`.
    mean, std : tuple of float
        Its normalization, one number a channel; a layer of the loaded model.
    accuracy : float
        Share of the first 1000 test images that it classifies correctly.
    source, path, file, sha256 : Source, str, str, str
        The repository that it comes from, the file's path below its folder, its name
        on this machine in a folder of the model's name, and its sum.
    """

    name: str
    dataset: str
    arch: str
    options: dict[str, Any] = field(hash=False)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    accuracy: float
    source: Source
    path: str
    file: str
    sha256: str

    @property
    def url(self) -> str:
        """The public address of the file."""
        source = self.source
        return (
            f"https://raw.githubusercontent.com/{source.repository}/{source.commit}/"
            f"{source.folder}{self.path}"
        )


def list_public_models() -> list[str]:
    """Return the names of the public checkpoints that :func:`load_model` knows.

    Examples
    --------
    >>> len(list_public_models())
    24
    """
    return list(_REGISTRY)


def public_model(name: str) -> PublicModel:
    """Return the entry of one of :func:`list_public_models`; ValueError of another.

    Examples
    --------
    >>> entry = public_model("cifar10-resnet20")
    >>> entry.accuracy, entry.source.licence
    (0.915, 'BSD-2-Clause')
    """
    return _REGISTRY[check_choice("name", name, _REGISTRY)]


def load_public(name: str, *, directory: Path | str | None = None) -> nn.Module:
    """Load a public checkpoint; see :func:`load_model`."""
    entry = public_model(name)
    place = f"{entry.name}/{entry.file}"
    path = obtain(
        entry.name,
        f"models/{place}",
        url=entry.url,
        sha256=entry.sha256,
        cache=user_cache("models") / entry.name,
        preferred=None if directory is None else Path(directory, place),
    )
    # A list or a dict around the weights, and DataParallel's prefix, are undone.
    state = torch.load(path, map_location="cpu", weights_only=True)
    while not isinstance(state, dict) or "state_dict" in state:
        state = state["state_dict"] if isinstance(state, dict) else state[0]
    model = build_model(entry.arch, seed=0, options=entry.options)
    model.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    return Normalized(model, mean=entry.mean, std=entry.std)


def _convolutions(*layers: tuple[int, int, int, int], linear: list[int]) -> _Arch:
    return "conv-net", {"convolutions": list(layers), "linear": linear}


def _lenet(*layers: tuple[int, int, int], **options: Any) -> _Arch:
    return "pooled-conv-net", {"convolutions": list(layers), **options}


def _gray(arch: _Arch) -> _Arch:
    return arch[0], {**arch[1], "channels": 1, "size": 28}


def _two(width: int, padding: int, linear: list[int]) -> _Arch:
    layers = (width, 4, 2, padding), (2 * width, 4, 2, padding)
    return _convolutions(*layers, linear=linear)


_WIDE: Final = _two(16, 1, [100, 10])
_SMALL: Final = _two(16, 0, [100, 10])

_ARCHITECTURES: Final[dict[str, _Arch]] = {
    **{f"resnet-{n}": ("cifar-resnet", {"blocks": n}) for n in (3, 5, 7, 9)},
    **{f"marabou-{width}": _two(width, 0, [128, 64, 10]) for width in (8, 16, 32)},
    "resnet-2b": ("plain-resnet", {"width": 8, "planes": 16, "stages": 1}),
    "resnet-4b": ("plain-resnet", {"width": 16, "planes": 32, "stages": 2}),
    "wide": _WIDE,
    "wide-gray": _gray(_WIDE),
    "small": _SMALL,
    "small-gray": _gray(_SMALL),
    "madry-tiny": _gray(_convolutions((4, 5, 2, 2), (8, 5, 2, 2), linear=[128, 10])),
    "lenet-rgb": _lenet((6, 5, 0), (16, 5, 0), linear=[120, 84, 10], linear_name="fc"),
    "lenet-gray": _gray(_lenet((32, 3, 1), (64, 3, 1), linear=[200, 10])),
}


def _bytes(*values: float) -> tuple[float, ...]:
    return tuple(value / 255 for value in values)


# Means and standard deviations, as each model was trained with.
_NORMALIZATIONS: Final[dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "raw": ((0.0,), (1.0,)),
    "rgb": ((0.0,) * 3, (1.0,) * 3),
    "gray": ((0.1307,), (0.3081,)),
    "half": ((0.5,) * 3, (0.5,) * 3),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "eran": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "oval": ((0.485, 0.456, 0.406), (0.225,) * 3),
    "adv": (_bytes(125.3, 123.0, 113.9), _bytes(63.0, 62.1, 66.7)),
}

# Each with the suffix of its files on this machine.
_SOURCES: Final[dict[str, tuple[Source, str]]] = {
    name: (Source(repository, commit, f"{folder}/", licence), suffix)
    for name, suffix, repository, commit, folder, licence in map(
        str.split,
        """\
abc pt Verified-Intelligence/alpha-beta-CROWN 8250d5fbd530 \
complete_verifier/models BSD-3-Clause
akamaster th akamaster/pytorch_resnet_cifar10 d5489e8995e8 \
pretrained_models BSD-2-Clause
captum pt pytorch/captum faac08773131 captum/insights/attr_vis/models BSD-3-Clause
convex pth locuslab/convex_adversarial 2cd8149249b9 models MIT
advertorch pt BorealisAI/advertorch e063e341c87d \
advertorch_examples/trained_models LGPL-3.0
""".splitlines(),
    )
}

# Name, accuracy, architecture, normalization, source and path; below, the sha256.
_TABLE: Final = """\
cifar10-resnet20 0.915 resnet-3 imagenet akamaster resnet20-12fca82f.th
12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8
cifar10-resnet32 0.928 resnet-5 imagenet akamaster resnet32-d509ac18.th
d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850
cifar10-resnet44 0.933 resnet-7 imagenet akamaster resnet44-014dd654.th
014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4
cifar10-resnet56 0.926 resnet-9 imagenet akamaster resnet56-4bfd9763.th
4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367
cifar10-captum_lenet 0.590 lenet-rgb half captum cifar_torchvision.pt
228d8332085282b6d2626d1b1b1b17944c760507d9b0cabe318dc6b108acf6e9
cifar10-cnn_a_adv 0.664 wide adv abc sdp/cifar_cnn_a_adv.model
e45d79e68342395f4ada6f89852ae41feba14b430a3b2462a04d7f5e02c65657
cifar10-cnn_a_adv4 0.574 wide adv abc sdp/cifar_cnn_a_adv4.model
f872a69536be3f0ab98397094bb7c3952d747b08321b81eafd00d9fab5eca0e7
cifar10-cnn_a_adv_alt 0.697 wide cifar abc sdp/cifar_cnn_a_adv_alt.model
6540c5a9d9d0856a2870e5be19d7f2322a966cb30b5141f4116beb70dda59e46
cifar10-cnn_a_mix 0.760 wide adv abc sdp/cifar_cnn_a_mix.model
5a1370f41961766db169ad9f945e9cc3157c9afd7986eac73bf2786c35dc3773
cifar10-cnn_a_mix4 0.693 wide adv abc sdp/cifar_cnn_a_mix4.model
91d5ade259939afecdccbeb9f818f55f9c560466d9b5b0b01ecc86dc8eaa8d13
cifar10-conv_small_pgd 0.630 small eran abc eran/cifar_conv_small_pgd.pth
01adb410a8f561aa19e53a2168ca5c71a795a72a2be18c80eb400cf2e54cdd50
cifar10-marabou_large 0.755 marabou-32 rgb abc marabou_cifar10/cifar_marabou_large.pth
ebc062429d071e7199c4cff81df158cd99c910ec3475347cf5007ceb0a9d593f
cifar10-marabou_medium 0.706 marabou-16 rgb abc marabou_cifar10/cifar_marabou_medium.pth
a86f85b6d0204fc4b0fba49fbccbcddeb2cda79d8feec6e714d08c6a882b938d
cifar10-marabou_small 0.630 marabou-8 rgb abc marabou_cifar10/cifar_marabou_small.pth
29771132fd93c72d39d6a07f7d9a24933334fc9448dc23dc0dce38682050902f
cifar10-oval_wide_kw 0.636 wide oval abc oval/cifar_wide.pth
1980beb15e180902fd48b50cd0ac24ac80d48f3ec166753d5773a7dc24d60a07
cifar10-resnet2b_adv 0.703 resnet-2b cifar abc cifar10_resnet/resnet2b.pth
ef824b47175668e924d7fd409b5ef7e239012b8f0c31fefa66c643efda1eb05b
cifar10-resnet4b_adv 0.771 resnet-4b cifar abc cifar10_resnet/resnet4b.pth
6158f9668935890e832d4e0fdc3b6cece2386ec826319eac36f329490b7729e7
fashion-kw 0.793 wide-gray raw convex fashion_mnist.pth
b90cca41cc42b427d5ba1d1c10d90a5a8b6b5219538a3a4d1c6f825d3f612bc5
mnist-advertorch_lenet5_adv 0.982 lenet-gray raw advertorch mnist_lenet5_advtrained.pt
b89abfcfe8b33235fe8f8e964188d82a97c56a12ffe25132eaba197e40ac7658
mnist-advertorch_lenet5_clean 0.984 lenet-gray raw advertorch mnist_lenet5_clntrained.pt
551a11267982991fb0c9f74e9094de19e54b51455eff9bd1c19c77a69d85156a
mnist-cnn_a_adv 0.956 wide-gray raw abc sdp/mnist_cnn_a_adv.model
3a1dbfc656e45be2cf6e8ae709c43da0fa0f3b71762c8a0842df72868f2b3459
mnist-conv_small_nat 0.980 small-gray gray abc eran/mnist_conv_small_nat.pth
7d0bf96c4b4c5cd2bc15aca1c14b2d7d9c93a2ca88662439364f6635cd450adc
mnist-kw 0.982 wide-gray raw convex mnist.pth
95014ab0c04c73f48b3be0cb7acc42aff60ce4420c6c43bec25e9a1447279e08
mnist-madry_tiny_adv 0.972 madry-tiny raw abc bab_attack/MadryCNN_no_maxpool_tiny.pt
171ffe80d82dcc80f28d22d5bafccf570e8d456836a6c02c2c8eaaee51547779
"""


def _entry(line: str, sha256: str) -> PublicModel:
    name, accuracy, arch, normalization, source, path = line.split()
    dataset = name.partition("-")[0].replace("fashion", "fashion-mnist")
    repository, suffix = _SOURCES[source]
    return PublicModel(
        name, dataset, *_ARCHITECTURES[arch], *_NORMALIZATIONS[normalization],
        float(accuracy), repository, path, f"weights.{suffix}", sha256,
    )  # fmt: skip


_LINES: Final = _TABLE.splitlines()
_REGISTRY: Final = {
    entry.name: entry for entry in map(_entry, _LINES[::2], _LINES[1::2])
}
