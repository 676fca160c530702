"""Public checkpoints: where each comes from, what it is, and how to load it.

Each file is looked for in ``ROBUSTBOOK_DATA/models/NAME``, then in the cache of
pooch, and is downloaded from the public repository of its authors last. Its
sha256 is checked in every case, and only tensors are read from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store import DataUnavailableError, user_cache
from robustbook.datasets._obtain import data_folder, verify

from ._architectures import Normalized, build_model

__all__ = ["PublicModel", "Source", "list_public_models", "load_public", "public_model"]


@dataclass(frozen=True)
class Source:
    """A public repository with checkpoints, at one commit.

    Attributes
    ----------
    repository, commit : str
        "owner/name" on GitHub, and the commit.
    folder : str
        Where the checkpoints are, with a slash at its end.
    licence : str
        SPDX identifier of the repository's licence.
    """

    repository: str
    commit: str
    folder: str
    licence: str


@dataclass(frozen=True)
class PublicModel:
    """What the registry knows of a public checkpoint.

    Attributes
    ----------
    name : str
        The name that :func:`load_model` takes.
    dataset : str
        The data set it classifies, a name for
        :func:`robustbook.datasets.load_dataset`.
    arch : str
        Its architecture, a name for :func:`build_model`.
    options : dict
        Options of the architecture.
    mean, std : tuple of float
        Its normalization, one number a channel; a layer of the loaded model.
    accuracy : float
        Share of the first 1000 test images that it classifies correctly.
    source : Source
        The repository that it comes from.
    path : str
        The file's path below the source's folder.
    file : str
        The file's name on this machine, in a folder of the model's name.
    sha256 : str
        Of the file.
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

    Returns
    -------
    list of str
        Names that begin with the data set: "cifar10-resnet20".

    Examples
    --------
    >>> len(list_public_models())
    24
    """
    return list(_REGISTRY)


def public_model(name: str) -> PublicModel:
    """Return what the registry knows of a public checkpoint.

    Parameters
    ----------
    name : str
        One of :func:`list_public_models`.

    Returns
    -------
    PublicModel
        Its entry.

    Raises
    ------
    ValueError
        If there is no such checkpoint.

    Examples
    --------
    >>> entry = public_model("cifar10-resnet20")
    >>> entry.accuracy, entry.source.licence
    (0.915, 'BSD-2-Clause')
    """
    if name not in _REGISTRY:
        raise ValueError(f"name: expected one of {', '.join(_REGISTRY)}; got {name!r}")
    return _REGISTRY[name]


def load_public(name: str, *, directory: Path | str | None = None) -> nn.Module:
    """Load a public checkpoint; see :func:`load_model`."""
    entry = public_model(name)
    path = _obtain(entry, directory)
    # A list or a dict around the weights, and DataParallel's prefix, are undone.
    state = torch.load(path, map_location="cpu", weights_only=True)
    while not (isinstance(state, dict) and _all_tensors(state)):
        state = state["state_dict"] if isinstance(state, dict) else state[0]
    model = build_model(entry.arch, seed=0, options=entry.options)
    model.load_state_dict(
        {key.removeprefix("module."): value for key, value in state.items()}
    )
    return Normalized(model, mean=entry.mean, std=entry.std)


def _all_tensors(state: dict[str, Any]) -> bool:
    return all(isinstance(value, Tensor) for value in state.values())


def _obtain(entry: PublicModel, directory: Path | str | None) -> Path:
    """Find the file of a checkpoint, or download it; its sum is checked."""
    place = Path(entry.name) / entry.file
    given = None if directory is None else Path(directory) / place
    folder = data_folder()
    shared = None if folder is None else folder / "models" / place
    cache = user_cache("models") / entry.name
    for path in (given, shared, cache / entry.file):
        if path is not None and path.is_file():
            return verify(path, entry.sha256)
    import pooch  # after user_cache, which silences its import

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # one line on stderr would fail a chapter
    try:
        return Path(
            pooch.retrieve(
                url=entry.url,
                known_hash=f"sha256:{entry.sha256}",
                fname=entry.file,
                path=cache,
                progressbar=False,
            )
        )
    except Exception as error:  # pooch passes on whatever requests raises
        looked = [path.parent for path in (given, shared) if path is not None]
        places = ", ".join(map(str, [*looked, cache]))
        raise DataUnavailableError(
            f"{entry.name}: {entry.file} was looked for in {places}, and the download "
            f"from {entry.url} failed ({type(error).__name__}); put the file there, "
            f"set ROBUSTBOOK_DATA to a folder that holds models/{place.as_posix()}, "
            "or try again with a network"
        ) from error
    finally:
        logger.setLevel(level)


# -------------------------------------------------------------------- the registry


_Arch = tuple[str, dict[str, Any]]
_Norm = tuple[tuple[float, ...], tuple[float, ...]]


def _marabou(width: int) -> _Arch:
    convolutions = [(width, 4, 2, 0), (2 * width, 4, 2, 0)]
    return "conv-net", {"convolutions": convolutions, "linear": [128, 64, 10]}


_WIDE: Final[_Arch] = (
    "conv-net",
    {"convolutions": [(16, 4, 2, 1), (32, 4, 2, 1)], "linear": [100, 10]},
)
_SMALL: Final[_Arch] = (
    "conv-net",
    {"convolutions": [(16, 4, 2, 0), (32, 4, 2, 0)], "linear": [100, 10]},
)
_MNIST: Final[_Arch] = ("conv-net", {**_WIDE[1], "channels": 1, "size": 28})
_MNIST_SMALL: Final[_Arch] = ("conv-net", {**_SMALL[1], "channels": 1, "size": 28})
_MADRY_TINY: Final[_Arch] = (
    "conv-net",
    {
        "channels": 1,
        "size": 28,
        "convolutions": [(4, 5, 2, 2), (8, 5, 2, 2)],
        "linear": [128, 10],
    },
)
_LENET_CAPTUM: Final[_Arch] = (
    "pooled-conv-net",
    {
        "convolutions": [(6, 5, 0), (16, 5, 0)],
        "linear": [120, 84, 10],
        "linear_name": "fc",
    },
)
_LENET_ADVERTORCH: Final[_Arch] = (
    "pooled-conv-net",
    {
        "channels": 1,
        "size": 28,
        "convolutions": [(32, 3, 1), (64, 3, 1)],
        "linear": [200, 10],
    },
)

# Means and standard deviations, as each model was trained with.
_NONE: Final[_Norm] = (0.0,), (1.0,)
_NONE_RGB: Final[_Norm] = (0.0,) * 3, (1.0,) * 3
_GRAY: Final[_Norm] = (0.1307,), (0.3081,)
_HALF: Final[_Norm] = (0.5,) * 3, (0.5,) * 3
_IMAGENET: Final[_Norm] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CIFAR: Final[_Norm] = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
_ERAN: Final[_Norm] = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_OVAL: Final[_Norm] = (0.485, 0.456, 0.406), (0.225,) * 3
_ADV: Final[_Norm] = (
    (125.3 / 255, 123.0 / 255, 113.9 / 255),
    (63.0 / 255, 62.1 / 255, 66.7 / 255),
)

_ABC: Final = Source(
    "Verified-Intelligence/alpha-beta-CROWN",
    "8250d5fbd530",
    "complete_verifier/models/",
    "BSD-3-Clause",
)
_AKAMASTER: Final = Source(
    "akamaster/pytorch_resnet_cifar10",
    "d5489e8995e8",
    "pretrained_models/",
    "BSD-2-Clause",
)
_CAPTUM: Final = Source(
    "pytorch/captum", "faac08773131", "captum/insights/attr_vis/models/", "BSD-3-Clause"
)
_CONVEX: Final = Source("locuslab/convex_adversarial", "2cd8149249b9", "models/", "MIT")
_ADVERTORCH: Final = Source(
    "BorealisAI/advertorch",
    "e063e341c87d",
    "advertorch_examples/trained_models/",
    "LGPL-3.0",
)

_REGISTRY: Final = {
    entry.name: entry
    for entry in (
        PublicModel(
            "cifar10-resnet20",
            "cifar10",
            *("cifar-resnet", {"blocks": 3}),
            *_IMAGENET,
            0.915,
            _AKAMASTER,
            "resnet20-12fca82f.th",
            "weights.th",
            "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        ),
        PublicModel(
            "cifar10-resnet32",
            "cifar10",
            *("cifar-resnet", {"blocks": 5}),
            *_IMAGENET,
            0.928,
            _AKAMASTER,
            "resnet32-d509ac18.th",
            "weights.th",
            "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850",
        ),
        PublicModel(
            "cifar10-resnet44",
            "cifar10",
            *("cifar-resnet", {"blocks": 7}),
            *_IMAGENET,
            0.933,
            _AKAMASTER,
            "resnet44-014dd654.th",
            "weights.th",
            "014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4",
        ),
        PublicModel(
            "cifar10-resnet56",
            "cifar10",
            *("cifar-resnet", {"blocks": 9}),
            *_IMAGENET,
            0.926,
            _AKAMASTER,
            "resnet56-4bfd9763.th",
            "weights.th",
            "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
        ),
        PublicModel(
            "cifar10-captum_lenet",
            "cifar10",
            *_LENET_CAPTUM,
            *_HALF,
            0.590,
            _CAPTUM,
            "cifar_torchvision.pt",
            "weights.pt",
            "228d8332085282b6d2626d1b1b1b17944c760507d9b0cabe318dc6b108acf6e9",
        ),
        PublicModel(
            "cifar10-cnn_a_adv",
            "cifar10",
            *_WIDE,
            *_ADV,
            0.664,
            _ABC,
            "sdp/cifar_cnn_a_adv.model",
            "weights.pt",
            "e45d79e68342395f4ada6f89852ae41feba14b430a3b2462a04d7f5e02c65657",
        ),
        PublicModel(
            "cifar10-cnn_a_adv4",
            "cifar10",
            *_WIDE,
            *_ADV,
            0.574,
            _ABC,
            "sdp/cifar_cnn_a_adv4.model",
            "weights.pt",
            "f872a69536be3f0ab98397094bb7c3952d747b08321b81eafd00d9fab5eca0e7",
        ),
        PublicModel(
            "cifar10-cnn_a_adv_alt",
            "cifar10",
            *_WIDE,
            *_CIFAR,
            0.697,
            _ABC,
            "sdp/cifar_cnn_a_adv_alt.model",
            "weights.pt",
            "6540c5a9d9d0856a2870e5be19d7f2322a966cb30b5141f4116beb70dda59e46",
        ),
        PublicModel(
            "cifar10-cnn_a_mix",
            "cifar10",
            *_WIDE,
            *_ADV,
            0.760,
            _ABC,
            "sdp/cifar_cnn_a_mix.model",
            "weights.pt",
            "5a1370f41961766db169ad9f945e9cc3157c9afd7986eac73bf2786c35dc3773",
        ),
        PublicModel(
            "cifar10-cnn_a_mix4",
            "cifar10",
            *_WIDE,
            *_ADV,
            0.693,
            _ABC,
            "sdp/cifar_cnn_a_mix4.model",
            "weights.pt",
            "91d5ade259939afecdccbeb9f818f55f9c560466d9b5b0b01ecc86dc8eaa8d13",
        ),
        PublicModel(
            "cifar10-conv_small_pgd",
            "cifar10",
            *_SMALL,
            *_ERAN,
            0.630,
            _ABC,
            "eran/cifar_conv_small_pgd.pth",
            "weights.pt",
            "01adb410a8f561aa19e53a2168ca5c71a795a72a2be18c80eb400cf2e54cdd50",
        ),
        PublicModel(
            "cifar10-marabou_large",
            "cifar10",
            *_marabou(32),
            *_NONE_RGB,
            0.755,
            _ABC,
            "marabou_cifar10/cifar_marabou_large.pth",
            "weights.pt",
            "ebc062429d071e7199c4cff81df158cd99c910ec3475347cf5007ceb0a9d593f",
        ),
        PublicModel(
            "cifar10-marabou_medium",
            "cifar10",
            *_marabou(16),
            *_NONE_RGB,
            0.706,
            _ABC,
            "marabou_cifar10/cifar_marabou_medium.pth",
            "weights.pt",
            "a86f85b6d0204fc4b0fba49fbccbcddeb2cda79d8feec6e714d08c6a882b938d",
        ),
        PublicModel(
            "cifar10-marabou_small",
            "cifar10",
            *_marabou(8),
            *_NONE_RGB,
            0.630,
            _ABC,
            "marabou_cifar10/cifar_marabou_small.pth",
            "weights.pt",
            "29771132fd93c72d39d6a07f7d9a24933334fc9448dc23dc0dce38682050902f",
        ),
        PublicModel(
            "cifar10-oval_wide_kw",
            "cifar10",
            *_WIDE,
            *_OVAL,
            0.636,
            _ABC,
            "oval/cifar_wide.pth",
            "weights.pt",
            "1980beb15e180902fd48b50cd0ac24ac80d48f3ec166753d5773a7dc24d60a07",
        ),
        PublicModel(
            "cifar10-resnet2b_adv",
            "cifar10",
            *("plain-resnet", {"width": 8, "planes": 16, "stages": 1}),
            *_CIFAR,
            0.703,
            _ABC,
            "cifar10_resnet/resnet2b.pth",
            "weights.pt",
            "ef824b47175668e924d7fd409b5ef7e239012b8f0c31fefa66c643efda1eb05b",
        ),
        PublicModel(
            "cifar10-resnet4b_adv",
            "cifar10",
            *("plain-resnet", {"width": 16, "planes": 32, "stages": 2}),
            *_CIFAR,
            0.771,
            _ABC,
            "cifar10_resnet/resnet4b.pth",
            "weights.pt",
            "6158f9668935890e832d4e0fdc3b6cece2386ec826319eac36f329490b7729e7",
        ),
        PublicModel(
            "fashion-kw",
            "fashion-mnist",
            *_MNIST,
            *_NONE,
            0.793,
            _CONVEX,
            "fashion_mnist.pth",
            "weights.pth",
            "b90cca41cc42b427d5ba1d1c10d90a5a8b6b5219538a3a4d1c6f825d3f612bc5",
        ),
        PublicModel(
            "mnist-advertorch_lenet5_adv",
            "mnist",
            *_LENET_ADVERTORCH,
            *_NONE,
            0.982,
            _ADVERTORCH,
            "mnist_lenet5_advtrained.pt",
            "weights.pt",
            "b89abfcfe8b33235fe8f8e964188d82a97c56a12ffe25132eaba197e40ac7658",
        ),
        PublicModel(
            "mnist-advertorch_lenet5_clean",
            "mnist",
            *_LENET_ADVERTORCH,
            *_NONE,
            0.984,
            _ADVERTORCH,
            "mnist_lenet5_clntrained.pt",
            "weights.pt",
            "551a11267982991fb0c9f74e9094de19e54b51455eff9bd1c19c77a69d85156a",
        ),
        PublicModel(
            "mnist-cnn_a_adv",
            "mnist",
            *_MNIST,
            *_NONE,
            0.956,
            _ABC,
            "sdp/mnist_cnn_a_adv.model",
            "weights.pt",
            "3a1dbfc656e45be2cf6e8ae709c43da0fa0f3b71762c8a0842df72868f2b3459",
        ),
        PublicModel(
            "mnist-conv_small_nat",
            "mnist",
            *_MNIST_SMALL,
            *_GRAY,
            0.980,
            _ABC,
            "eran/mnist_conv_small_nat.pth",
            "weights.pt",
            "7d0bf96c4b4c5cd2bc15aca1c14b2d7d9c93a2ca88662439364f6635cd450adc",
        ),
        PublicModel(
            "mnist-kw",
            "mnist",
            *_MNIST,
            *_NONE,
            0.982,
            _CONVEX,
            "mnist.pth",
            "weights.pth",
            "95014ab0c04c73f48b3be0cb7acc42aff60ce4420c6c43bec25e9a1447279e08",
        ),
        PublicModel(
            "mnist-madry_tiny_adv",
            "mnist",
            *_MADRY_TINY,
            *_NONE,
            0.972,
            _ABC,
            "bab_attack/MadryCNN_no_maxpool_tiny.pt",
            "weights.pt",
            "171ffe80d82dcc80f28d22d5bafccf570e8d456836a6c02c2c8eaaee51547779",
        ),
    )
}
