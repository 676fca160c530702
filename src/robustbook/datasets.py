"""Image data sets: one that is embedded, and public ones that are fetched.

"digits" ships inside scikit-learn and needs nothing. The others are looked for
in the folder that the environment variable ``ROBUSTBOOK_DATA`` names, then in
the cache of pooch, and are downloaded from their public address last; wherever a
file comes from, its sha256 is checked.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "DataUnavailableError",
    "Dataset",
    "DatasetSpec",
    "data_directory",
    "dataset_spec",
    "fetch",
    "list_datasets",
    "load_dataset",
]

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_DATA"

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class DataUnavailableError(RuntimeError):
    """A file is neither on this machine nor to be had; says what would help."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels.

    Attributes
    ----------
    images : Tensor, shape (n, C, H, W)
        float32 pixels in [0, 1].
    labels : Tensor, shape (n,)
        int64 classes from 0 to `num_classes` - 1.
    name, split : str
        Where they come from.
    num_classes : int
        The number of classes K.

    Examples
    --------
    >>> test = load_dataset("digits", "test")
    >>> len(test), test.subset(range(10)).images.shape
    (596, torch.Size([10, 1, 8, 8]))
    """

    images: Tensor
    labels: Tensor
    name: str
    split: str
    num_classes: int

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                "images and labels: expected shapes (n, C, H, W) and (n,), got "
                f"{tuple(self.images.shape)} and {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {self.split!r}, {len(self)} images of "
            f"{'x'.join(map(str, self.images.shape[1:]))}, "
            f"{self.num_classes} classes)"
        )

    def subset(self, index: Sequence[int] | range | slice | Tensor) -> Dataset:
        """Return the samples of an index, in its order.

        Parameters
        ----------
        index : sequence of int, slice or Tensor
            Positions in this data set.

        Returns
        -------
        Dataset
            The chosen samples.

        Examples
        --------
        >>> load_dataset("digits", "test").subset([4, 2]).labels.shape
        torch.Size([2])
        """
        if not isinstance(index, slice | Tensor):
            index = torch.as_tensor(list(index), dtype=torch.int64)
        return Dataset(
            images=self.images[index],
            labels=self.labels[index],
            name=self.name,
            split=self.split,
            num_classes=self.num_classes,
        )


@dataclass(frozen=True)
class DatasetSpec:
    """What the registry knows of a data set.

    Attributes
    ----------
    name : str
        The name that :func:`load_dataset` takes.
    num_classes : int
        The number of classes.
    image_shape : (int, int, int)
        Channels, height, width.
    split_sizes : dict of str to int
        The splits and their numbers of images.
    licence, source : str
        For the data card.
    files : dict of str to str
        Downloadable files and their sha256; empty where nothing is downloaded.
    urls : dict of str to str
        The public address of each file.
    read : callable
        Reads a split into arrays of images and labels.
    """

    name: str
    num_classes: int
    image_shape: tuple[int, int, int]
    split_sizes: dict[str, int]
    licence: str
    source: str
    files: dict[str, str]
    urls: dict[str, str]
    read: Callable[[DatasetSpec, str], Arrays]


# --------------------------------------------------------------------- finding


def data_directory() -> Path:
    """Return the project's own ``data`` folder: checkpoints and stored results.

    In a checkout (also one that is installed with ``pip install -e``) it is the
    folder ``data`` of the repository; in a plain installation it is the copy
    that the wheel carries.

    Returns
    -------
    Path
        An existing folder.

    Raises
    ------
    DataUnavailableError
        If neither is there.

    Examples
    --------
    >>> (data_directory() / "checkpoints" / "registry.json").is_file()
    True
    """
    package = Path(__file__).resolve().parent
    for folder in (package.parents[1] / "data", package / "_data"):
        if (folder / "checkpoints").is_dir():
            return folder
    raise DataUnavailableError(
        "the project's data folder (checkpoints, reported and stored results) was "
        f"looked for in {package.parents[1] / 'data'} and {package / '_data'}; "
        "install robustbook from a checkout of its repository (pip install -e .)"
    )


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@lru_cache(maxsize=256)
def _verified(path: str, size: int, modified: int, expected: str) -> None:
    """Check a sum once for each state of a file in this process."""
    actual = sha256_of(Path(path))
    if actual != expected:
        raise DataUnavailableError(
            f"{path}: expected sha256 {expected[:12]}..., got {actual[:12]}... "
            f"({size} bytes); delete the file and fetch it again"
        )


def _verify(path: Path, expected: str) -> Path:
    state = path.stat()
    _verified(str(path), state.st_size, state.st_mtime_ns, expected)
    return path


def _data_folder() -> Path | None:
    """The folder that ROBUSTBOOK_DATA names, if it names one."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return Path(value).expanduser() if value else None


def _in_data_folder(dataset: str, file: str) -> Path | None:
    folder = _data_folder()
    if folder is None:
        return None
    path = folder / dataset / file
    return path if path.is_file() else None


def _obtain(spec: DatasetSpec, file: str, *, progress: bool = False) -> Path:
    """Find a file of a data set, or download it; its sum is checked either way."""
    local = _in_data_folder(spec.name, file)
    if local is not None:
        return _verify(local, spec.files[file])
    import pooch

    cache = Path(pooch.os_cache("robustbook")) / spec.name
    cached = cache / file
    if cached.is_file():
        return _verify(cached, spec.files[file])
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # one line on stderr would fail a chapter
    try:
        return Path(
            pooch.retrieve(
                url=spec.urls[file],
                known_hash=f"sha256:{spec.files[file]}",
                fname=file,
                path=cache,
                progressbar=progress,
            )
        )
    except Exception as error:  # pooch passes on whatever requests raises
        folder = _data_folder()
        looked = f"{ENVIRONMENT_VARIABLE} ({folder or 'not set'})"
        raise DataUnavailableError(
            f"{spec.name}: {file} is neither in {looked} nor in {cache}, and the "
            f"download from {spec.urls[file]} failed ({type(error).__name__}); "
            f"set {ENVIRONMENT_VARIABLE} to a folder that holds {spec.name}/{file}, "
            f"or run `robustbook data fetch {spec.name}` with a network"
        ) from error
    finally:
        logger.setLevel(level)


# --------------------------------------------------------------------- reading

_DIGITS_SEED: Final = 20240601


def _digits_order() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the train and the test split of digits.

    One third of every class (rounded down) is for testing. ``RandomState`` is
    frozen by numpy's compatibility policy, so the split never changes.
    """
    from sklearn.datasets import load_digits

    target = load_digits().target
    random = np.random.RandomState(_DIGITS_SEED)
    train: list[int] = []
    test: list[int] = []
    for label in range(10):
        members = random.permutation(np.flatnonzero(target == label))
        third = len(members) // 3
        test.extend(members[:third])
        train.extend(members[third:])
    return (
        random.permutation(np.asarray(train, dtype=np.int64)),
        random.permutation(np.asarray(test, dtype=np.int64)),
    )


def _read_digits(spec: DatasetSpec, split: str) -> Arrays:
    from sklearn.datasets import load_digits

    digits = load_digits()
    train, test = _digits_order()
    index = train if split == "train" else test
    images = (digits.images[index, None] / 16.0).astype(np.float32)
    return images, digits.target[index].astype(np.int64)


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes."""
    with gzip.open(path, "rb") as stream:
        content = stream.read()
    zeros, kind, rank = struct.unpack(">HBB", content[:4])
    if zeros != 0 or kind != 0x08:
        raise DataUnavailableError(f"{path}: not an IDX file of unsigned bytes")
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    pixels = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank)
    return pixels.reshape(shape)


def _read_mnist(spec: DatasetSpec, split: str) -> Arrays:
    stem = "train" if split == "train" else "t10k"
    images = _read_idx(_obtain(spec, f"{stem}-images-idx3-ubyte.gz"))
    labels = _read_idx(_obtain(spec, f"{stem}-labels-idx1-ubyte.gz"))
    return images[:, None], labels


_CIFAR_ARCHIVE: Final = "cifar-10-python.tar.gz"


def _read_cifar10(spec: DatasetSpec, split: str) -> Arrays:
    folder = _data_folder()
    if (
        folder is not None
        and not (folder / spec.name / _CIFAR_ARCHIVE).is_file()
        and (folder / spec.name / "labels.npy").is_file()
        and split != "test"
    ):
        return _read_cifar10_png(folder / spec.name, split)
    names = (
        [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    )
    batches = {}
    with tarfile.open(_obtain(spec, _CIFAR_ARCHIVE), "r:gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in names:
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file of a verified archive
                batches[name] = pickle.load(io.BytesIO(stream.read()), encoding="bytes")
    images = np.concatenate([batches[name][b"data"] for name in names])
    labels = np.concatenate([batches[name][b"labels"] for name in names])
    size = spec.split_sizes[split]
    return images.reshape(-1, 3, 32, 32)[:size], labels[:size]


def _read_cifar10_png(folder: Path, split: str) -> Arrays:
    """Read the PNG layout: 1000 images a file, the pixels of the archive."""
    from PIL import Image

    numbers = range(50) if split == "train" else range(50, 51)
    labels = np.load(_verify(folder / "labels.npy", _CIFAR_PNG["labels.npy"]))
    batches = []
    for number in numbers:
        file = f"cifar10_batch_{number}.png"
        if not (folder / file).is_file():
            raise DataUnavailableError(
                f"cifar10: {file} is missing in {folder}; add it, or fetch the "
                "archive with `robustbook data fetch cifar10`"
            )
        with Image.open(_verify(folder / file, _CIFAR_PNG[file])) as picture:
            batches.append(np.asarray(picture).reshape(-1, 32, 32, 3))
    images = np.concatenate(batches).transpose(0, 3, 1, 2)
    return images, labels[1000 * numbers.start : 1000 * numbers.stop]


# -------------------------------------------------------------------- registry

_MNIST_URL: Final = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR_URL: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"

_MNIST_FILES: Final = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}

_FASHION_FILES: Final = {
    "train-images-idx3-ubyte.gz": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
    ),
    "train-labels-idx1-ubyte.gz": (
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
    ),
}

_CIFAR_PNG: Final = {
    "labels.npy": ("db37917cbb5d0a9fe9f7e0e358fe1ecb2282744c2f8a01f83d892ad5e2b39232"),
    "cifar10_batch_0.png": (
        "0614720d69293a033786d5fe2924c4e9a9b48874f19ca4627c4662a864ee9f2d"
    ),
    "cifar10_batch_1.png": (
        "2927e26ea68602e34a7424826b76b7336ce36b8f6bcc2e9fce0c05568ff6b4c1"
    ),
    "cifar10_batch_2.png": (
        "0b2759e307bb405bb1a6531f8a0f557eaec46d7546050612fdb836f0fa60eae0"
    ),
    "cifar10_batch_3.png": (
        "a4530ff15c83886058a97c352f53f38be07d191de8f410e998e91786b5900a26"
    ),
    "cifar10_batch_4.png": (
        "6368e6cf9ded682f69919f391510b73ac16058592013789501caea14cd6f15e2"
    ),
    "cifar10_batch_5.png": (
        "b8d480bb9e1fceddf958efbe7fa0613e42b36d77f2dd839040b6bb5c3fb4fd1c"
    ),
    "cifar10_batch_6.png": (
        "fcc06b274a20361573764fa885fa6e40cd50b2e6eb95656690d4f5125f295e14"
    ),
    "cifar10_batch_7.png": (
        "e7b8d6e916b2d5c9e6b9a3b6fc3161ccecb5142ce1d3d5a05e465f090daeb417"
    ),
    "cifar10_batch_8.png": (
        "4c582a8c638f2333a544526d3f24d0d85d108b3587d4b44cabc0cbc66dd269ac"
    ),
    "cifar10_batch_9.png": (
        "218b20c7526f88c0d79b485167147ebc3ace9ef3d3b8561358bd9f667164a0a8"
    ),
    "cifar10_batch_10.png": (
        "2b31fb8431f2b9a7870e5ff41cee102fdba5ccced08e651f7f6b456770014476"
    ),
    "cifar10_batch_11.png": (
        "140e4b9b97ecf75761490f3ee32d75bfc5e8bd9253afd4cbd5e4f60bbe9ff34e"
    ),
    "cifar10_batch_12.png": (
        "1a3e5536a73667845110320ba8ec58c566a0fe99953aa38e16dabb14f9af4e22"
    ),
    "cifar10_batch_13.png": (
        "29b3899e14ce5951fbb919261e6db35eaafbc583cff76ba6860fa8abd996f8bd"
    ),
    "cifar10_batch_14.png": (
        "55588e636c37daa059a0b578460f8cbdbd8c68155f998612f2fff9dd243c85f2"
    ),
    "cifar10_batch_15.png": (
        "6ba30e658a5b844d90831c9dd815fe3edee95ae0e819f7927cd8fe893e82c2b1"
    ),
    "cifar10_batch_16.png": (
        "0f7933aa56882614d7b43655b8cd44e521fd654edf3a0b50ac96b18b1a780bd9"
    ),
    "cifar10_batch_17.png": (
        "00cf8579a5cd7e100e1a864819bc89a8d9b6753e4c32f9b42a348a6b102bdde2"
    ),
    "cifar10_batch_18.png": (
        "601a291981f71e5107168ea50b5a7f236d299355c8adfb31bcd56b13632390bc"
    ),
    "cifar10_batch_19.png": (
        "4a6a93b0917bacee8b8b365cc3a0f1c39e21d7384a9419d5d1bedf2713863806"
    ),
    "cifar10_batch_20.png": (
        "92bc52eb05655923e8fb8129080d5e03df7a46d7da6204b50c9816e259a0676a"
    ),
    "cifar10_batch_21.png": (
        "a730969e1f84933e229f425188a0bfb5b3de18797a957796d3984557f9309d4f"
    ),
    "cifar10_batch_22.png": (
        "15ed3eda1cee18c1af480be95d689b51e3432618df778d090a3dff7d3e8d779a"
    ),
    "cifar10_batch_23.png": (
        "3ba69f0d363769250ef72c47cafa54f58e065278177357f901899c2fba1042af"
    ),
    "cifar10_batch_24.png": (
        "7bce4e5642aeafcef3081d7131bd75a7cd6472e9caec165aac08439395132560"
    ),
    "cifar10_batch_25.png": (
        "44fa9d4c84b3b7ead48fa92f3532eb6d498359d50cd000fc587d2e2592da83c1"
    ),
    "cifar10_batch_26.png": (
        "ef7ad1e7611a6d39a5acc84ae3b54bcb1f7f65ee832bb801b35bdf5b26cd9e42"
    ),
    "cifar10_batch_27.png": (
        "46bd31e937571fb914c005718d0ff3341fb68fd3972ac3416028d7e9c320a985"
    ),
    "cifar10_batch_28.png": (
        "6648cfec1dc6d779ed9ac63be4edc9fd4fb112a8d89ae68bcead8a610335a5b1"
    ),
    "cifar10_batch_29.png": (
        "e7c12162c9838553386d793c1cf586d28fa3401b6587e449396a1b37d9d9642f"
    ),
    "cifar10_batch_30.png": (
        "5c45e810054f8144c6e3ebe6411961f8fd29b43c63d8e562f2bd12a80a3c0795"
    ),
    "cifar10_batch_31.png": (
        "06b3b2a58823353396829cdb0b440531ad3cc471d60ba9a2462d558e0b3cb0ad"
    ),
    "cifar10_batch_32.png": (
        "c3a0fc60d267ada752d5662a3445704e73b28de23803e5f0e609bc19de9e05b8"
    ),
    "cifar10_batch_33.png": (
        "388087fc603a85244fbab20de596fcbf9d21fcbc76de8eac9b58bdfcb5848b98"
    ),
    "cifar10_batch_34.png": (
        "ef2f6a3992af2aa9640d168c740d6dd55eb7b00aabd5aa8362ebece726b77c8a"
    ),
    "cifar10_batch_35.png": (
        "030f3ff9b55a4036e00db83fb902cca4efb0047391c9edbbad0a1e611bbe6c6b"
    ),
    "cifar10_batch_36.png": (
        "efb2d7a90d2c69b5ac4f3ad570fc55bea1539125c664193b5ee2ea75f2bf0839"
    ),
    "cifar10_batch_37.png": (
        "d5dbb81db1ddd126b1181097a2836070db90555996978d8112f462f60ddbc86f"
    ),
    "cifar10_batch_38.png": (
        "1bdba9a63cff4f0bdd67e3baa6ffbf258c73162aafa2029b0105a68fe8d90723"
    ),
    "cifar10_batch_39.png": (
        "5c3f58e2e7069d5ec7594fd6daab326526c0721a5fe46fd758336d9eec93d57e"
    ),
    "cifar10_batch_40.png": (
        "2d8938dbe5bbfe219e36b9a9771faf67a439b277f612747c5d86e8e6c280d7b8"
    ),
    "cifar10_batch_41.png": (
        "fc5e0d70d3406436149c67fb65678da9ec51c44b6e01f44542b5307fd44f4ad2"
    ),
    "cifar10_batch_42.png": (
        "31bd0ad52693e936875038435aa98b39fc98631b0da32f8139970babdf1a6b7b"
    ),
    "cifar10_batch_43.png": (
        "8a31bce1aed0fbac719f82a7489671abce6625b5b78c24511aa8ed5a94ca4124"
    ),
    "cifar10_batch_44.png": (
        "70b6aece6cbe4c7d93f9b74ff5c1cdf4d56bd21ac579623481fa3f215b6775d0"
    ),
    "cifar10_batch_45.png": (
        "dee0cecbb1722ade96827dafa27c068ee14387ff5954707445b12d34acfd1207"
    ),
    "cifar10_batch_46.png": (
        "319e939ee664287c9e1a29261c182721ac302fe6c61743f9886cae58baccebe6"
    ),
    "cifar10_batch_47.png": (
        "eb05822e3f5332bafbf08604f28a36b32a59405a3117b1d0120c7a764d0b761d"
    ),
    "cifar10_batch_48.png": (
        "e03204977cbf03a94a618c4e4d4e820f207d2055d968d3a05f7abe550976c4b9"
    ),
    "cifar10_batch_49.png": (
        "b90a69f7b97caf83e62a50e4ac1329598e6bb0aae8c9d7df65a5fe540ddd11eb"
    ),
    "cifar10_batch_50.png": (
        "5cea9e8fb7933540a2236a4bb25c1ed3a8447f345c55ae659143a95a5d8dac5e"
    ),
}

_REGISTRY: Final[dict[str, DatasetSpec]] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            name="digits",
            num_classes=10,
            image_shape=(1, 8, 8),
            split_sizes={"train": 1201, "test": 596},
            licence="CC BY 4.0 (UCI); the copy in scikit-learn: BSD-3-Clause",
            source="scikit-learn, sklearn.datasets.load_digits",
            files={},
            urls={},
            read=_read_digits,
        ),
        DatasetSpec(
            name="mnist",
            num_classes=10,
            image_shape=(1, 28, 28),
            split_sizes={"train": 60000, "test": 10000},
            licence="CC BY-SA 3.0",
            source="LeCun, Cortes, Burges",
            files=_MNIST_FILES,
            urls={file: _MNIST_URL + file for file in _MNIST_FILES},
            read=_read_mnist,
        ),
        DatasetSpec(
            name="fashion-mnist",
            num_classes=10,
            image_shape=(1, 28, 28),
            split_sizes={"train": 60000, "test": 10000},
            licence="MIT",
            source="Zalando Research",
            files=_FASHION_FILES,
            urls={file: _FASHION_URL + file for file in _FASHION_FILES},
            read=_read_mnist,
        ),
        DatasetSpec(
            name="cifar10",
            num_classes=10,
            image_shape=(3, 32, 32),
            split_sizes={"train": 50000, "test": 10000, "test1000": 1000},
            licence="none stated; published for research",
            source="Krizhevsky, University of Toronto",
            files={
                _CIFAR_ARCHIVE: (
                    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
                )
            },
            urls={_CIFAR_ARCHIVE: _CIFAR_URL},
            read=_read_cifar10,
        ),
    )
}


def list_datasets() -> list[str]:
    """Return the names that :func:`load_dataset` knows.

    Returns
    -------
    list of str
        Names.

    Examples
    --------
    >>> list_datasets()
    ['digits', 'mnist', 'fashion-mnist', 'cifar10']
    """
    return list(_REGISTRY)


def dataset_spec(name: str) -> DatasetSpec:
    """Return what the registry knows of a data set.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.

    Returns
    -------
    DatasetSpec
        Its entry.

    Raises
    ------
    ValueError
        If there is no such data set.

    Examples
    --------
    >>> dataset_spec("digits").split_sizes
    {'train': 1201, 'test': 596}
    """
    if name not in _REGISTRY:
        raise ValueError(f"name: expected one of {', '.join(_REGISTRY)}; got {name!r}")
    return _REGISTRY[name]


def load_dataset(name: str, split: str) -> Dataset:
    """Load a split of a data set.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`. "digits" needs no file and no network.
    split : str
        "train" or "test". CIFAR-10 has "test1000" too, the first 1000 test
        images, which need not the whole archive.

    Returns
    -------
    Dataset
        float32 images in [0, 1] and int64 labels.

    Raises
    ------
    ValueError
        If there is no such data set or split.
    DataUnavailableError
        If a file is neither found nor downloaded, or its sha256 is wrong.

    Notes
    -----
    The split of "digits" is fixed: one third of every class, drawn once with a
    frozen generator, is "test" (596 images), the rest "train" (1201), and both
    are shuffled. The same 13 writers are in both parts, so the test part holds
    new images, not new hands.

    Examples
    --------
    >>> load_dataset("digits", "train")
    Dataset('digits', 'train', 1201 images of 1x8x8, 10 classes)
    """
    spec = dataset_spec(name)
    if split not in spec.split_sizes:
        raise ValueError(
            f"split: expected one of {', '.join(spec.split_sizes)} for {name}; "
            f"got {split!r}"
        )
    images, labels = spec.read(spec, split)
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / np.float32(255.0)
    expected = (spec.split_sizes[split], *spec.image_shape)
    if images.shape != expected:
        raise DataUnavailableError(
            f"{name}, {split}: expected images of shape {expected}, "
            f"got {images.shape}; the files are not those of the registry"
        )
    return Dataset(
        images=torch.from_numpy(np.ascontiguousarray(images)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        name=name,
        split=split,
        num_classes=spec.num_classes,
    )


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Make sure that the files of a data set are on this machine.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.
    progress : bool, default True
        Show a progress bar while downloading, where tqdm is installed.

    Returns
    -------
    list of Path
        The verified files; empty for "digits", which ships with scikit-learn.

    Raises
    ------
    ValueError
        If there is no such data set.
    DataUnavailableError
        If a file can be neither found nor downloaded.

    Examples
    --------
    >>> fetch("digits")
    []
    """
    from importlib.util import find_spec

    spec = dataset_spec(name)
    bar = progress and find_spec("tqdm") is not None
    return [_obtain(spec, file, progress=bar) for file in spec.files]
