"""CIFAR-10: the public archive, or the same pixels as PNG files."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from robustbook._checks.extras import extra
from robustbook._store import DataUnavailableError
from robustbook._store.downloads import check_sum, data_folder
from robustbook.datasets._types import Arrays, DatasetSpec

__all__ = ["ARCHIVE", "read_cifar10"]

ARCHIVE: Final = "cifar-10-python.tar.gz"


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays and plain containers, and runs no other code.

    The archive's batches are pickles. Their sha256 is checked before; this keeps
    the reader harmless even so.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("._core", ".core"), name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(
                f"cifar10: expected arrays in the archive, got {module}.{name}"
            )
        return super().find_class(module, name)


_ARRAY_PARTS: Final = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_cifar10(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of CIFAR-10 from the archive, or from pictures."""
    folder = data_folder()
    if (
        folder is not None
        and not (folder / spec.name / ARCHIVE).is_file()
        and (folder / spec.name / "labels.npy").is_file()
        and split != "test"
    ):
        return _read_pictures(folder / spec.name, split)
    names = (
        [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    )
    batches = {}
    with tarfile.open(spec.obtain(ARCHIVE), "r:gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in names:
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file of a verified archive
                batches[name] = _ArraysOnly(stream, encoding="bytes").load()
    images = np.concatenate([batches[name][b"data"] for name in names])
    labels = np.concatenate([batches[name][b"labels"] for name in names])
    size = spec.split_sizes[split]
    return images.reshape(-1, 3, 32, 32)[:size], labels[:size]


def _read_pictures(folder: Path, split: str) -> Arrays:
    """Read the PNG layout: 1000 images a file, the pixels of the archive."""
    with extra("data"):
        from PIL import Image

    numbers = range(50) if split == "train" else range(50, 51)
    labels = np.load(check_sum(folder / "labels.npy", _PICTURES["labels.npy"]))
    batches = []
    for number in numbers:
        file = f"cifar10_batch_{number}.png"
        if not (folder / file).is_file():
            raise DataUnavailableError(
                f"cifar10: {file} is missing in {folder}; add it, or fetch the "
                "archive with `robustbook data fetch cifar10`"
            )
        with Image.open(check_sum(folder / file, _PICTURES[file])) as picture:
            batches.append(np.asarray(picture).reshape(-1, 32, 32, 3))
    images = np.concatenate(batches).transpose(0, 3, 1, 2)
    return images, labels[1000 * numbers.start : 1000 * numbers.stop]


# As sha256sum prints them.
_PICTURES: Final = {
    file: sha256
    for sha256, file in map(
        str.split,
        """\
db37917cbb5d0a9fe9f7e0e358fe1ecb2282744c2f8a01f83d892ad5e2b39232  labels.npy
0614720d69293a033786d5fe2924c4e9a9b48874f19ca4627c4662a864ee9f2d  cifar10_batch_0.png
2927e26ea68602e34a7424826b76b7336ce36b8f6bcc2e9fce0c05568ff6b4c1  cifar10_batch_1.png
0b2759e307bb405bb1a6531f8a0f557eaec46d7546050612fdb836f0fa60eae0  cifar10_batch_2.png
a4530ff15c83886058a97c352f53f38be07d191de8f410e998e91786b5900a26  cifar10_batch_3.png
6368e6cf9ded682f69919f391510b73ac16058592013789501caea14cd6f15e2  cifar10_batch_4.png
b8d480bb9e1fceddf958efbe7fa0613e42b36d77f2dd839040b6bb5c3fb4fd1c  cifar10_batch_5.png
fcc06b274a20361573764fa885fa6e40cd50b2e6eb95656690d4f5125f295e14  cifar10_batch_6.png
e7b8d6e916b2d5c9e6b9a3b6fc3161ccecb5142ce1d3d5a05e465f090daeb417  cifar10_batch_7.png
4c582a8c638f2333a544526d3f24d0d85d108b3587d4b44cabc0cbc66dd269ac  cifar10_batch_8.png
218b20c7526f88c0d79b485167147ebc3ace9ef3d3b8561358bd9f667164a0a8  cifar10_batch_9.png
2b31fb8431f2b9a7870e5ff41cee102fdba5ccced08e651f7f6b456770014476  cifar10_batch_10.png
140e4b9b97ecf75761490f3ee32d75bfc5e8bd9253afd4cbd5e4f60bbe9ff34e  cifar10_batch_11.png
1a3e5536a73667845110320ba8ec58c566a0fe99953aa38e16dabb14f9af4e22  cifar10_batch_12.png
29b3899e14ce5951fbb919261e6db35eaafbc583cff76ba6860fa8abd996f8bd  cifar10_batch_13.png
55588e636c37daa059a0b578460f8cbdbd8c68155f998612f2fff9dd243c85f2  cifar10_batch_14.png
6ba30e658a5b844d90831c9dd815fe3edee95ae0e819f7927cd8fe893e82c2b1  cifar10_batch_15.png
0f7933aa56882614d7b43655b8cd44e521fd654edf3a0b50ac96b18b1a780bd9  cifar10_batch_16.png
00cf8579a5cd7e100e1a864819bc89a8d9b6753e4c32f9b42a348a6b102bdde2  cifar10_batch_17.png
601a291981f71e5107168ea50b5a7f236d299355c8adfb31bcd56b13632390bc  cifar10_batch_18.png
4a6a93b0917bacee8b8b365cc3a0f1c39e21d7384a9419d5d1bedf2713863806  cifar10_batch_19.png
92bc52eb05655923e8fb8129080d5e03df7a46d7da6204b50c9816e259a0676a  cifar10_batch_20.png
a730969e1f84933e229f425188a0bfb5b3de18797a957796d3984557f9309d4f  cifar10_batch_21.png
15ed3eda1cee18c1af480be95d689b51e3432618df778d090a3dff7d3e8d779a  cifar10_batch_22.png
3ba69f0d363769250ef72c47cafa54f58e065278177357f901899c2fba1042af  cifar10_batch_23.png
7bce4e5642aeafcef3081d7131bd75a7cd6472e9caec165aac08439395132560  cifar10_batch_24.png
44fa9d4c84b3b7ead48fa92f3532eb6d498359d50cd000fc587d2e2592da83c1  cifar10_batch_25.png
ef7ad1e7611a6d39a5acc84ae3b54bcb1f7f65ee832bb801b35bdf5b26cd9e42  cifar10_batch_26.png
46bd31e937571fb914c005718d0ff3341fb68fd3972ac3416028d7e9c320a985  cifar10_batch_27.png
6648cfec1dc6d779ed9ac63be4edc9fd4fb112a8d89ae68bcead8a610335a5b1  cifar10_batch_28.png
e7c12162c9838553386d793c1cf586d28fa3401b6587e449396a1b37d9d9642f  cifar10_batch_29.png
5c45e810054f8144c6e3ebe6411961f8fd29b43c63d8e562f2bd12a80a3c0795  cifar10_batch_30.png
06b3b2a58823353396829cdb0b440531ad3cc471d60ba9a2462d558e0b3cb0ad  cifar10_batch_31.png
c3a0fc60d267ada752d5662a3445704e73b28de23803e5f0e609bc19de9e05b8  cifar10_batch_32.png
388087fc603a85244fbab20de596fcbf9d21fcbc76de8eac9b58bdfcb5848b98  cifar10_batch_33.png
ef2f6a3992af2aa9640d168c740d6dd55eb7b00aabd5aa8362ebece726b77c8a  cifar10_batch_34.png
030f3ff9b55a4036e00db83fb902cca4efb0047391c9edbbad0a1e611bbe6c6b  cifar10_batch_35.png
efb2d7a90d2c69b5ac4f3ad570fc55bea1539125c664193b5ee2ea75f2bf0839  cifar10_batch_36.png
d5dbb81db1ddd126b1181097a2836070db90555996978d8112f462f60ddbc86f  cifar10_batch_37.png
1bdba9a63cff4f0bdd67e3baa6ffbf258c73162aafa2029b0105a68fe8d90723  cifar10_batch_38.png
5c3f58e2e7069d5ec7594fd6daab326526c0721a5fe46fd758336d9eec93d57e  cifar10_batch_39.png
2d8938dbe5bbfe219e36b9a9771faf67a439b277f612747c5d86e8e6c280d7b8  cifar10_batch_40.png
fc5e0d70d3406436149c67fb65678da9ec51c44b6e01f44542b5307fd44f4ad2  cifar10_batch_41.png
31bd0ad52693e936875038435aa98b39fc98631b0da32f8139970babdf1a6b7b  cifar10_batch_42.png
8a31bce1aed0fbac719f82a7489671abce6625b5b78c24511aa8ed5a94ca4124  cifar10_batch_43.png
70b6aece6cbe4c7d93f9b74ff5c1cdf4d56bd21ac579623481fa3f215b6775d0  cifar10_batch_44.png
dee0cecbb1722ade96827dafa27c068ee14387ff5954707445b12d34acfd1207  cifar10_batch_45.png
319e939ee664287c9e1a29261c182721ac302fe6c61743f9886cae58baccebe6  cifar10_batch_46.png
eb05822e3f5332bafbf08604f28a36b32a59405a3117b1d0120c7a764d0b761d  cifar10_batch_47.png
e03204977cbf03a94a618c4e4d4e820f207d2055d968d3a05f7abe550976c4b9  cifar10_batch_48.png
b90a69f7b97caf83e62a50e4ac1329598e6bb0aae8c9d7df65a5fe540ddd11eb  cifar10_batch_49.png
5cea9e8fb7933540a2236a4bb25c1ed3a8447f345c55ae659143a95a5d8dac5e  cifar10_batch_50.png
""".splitlines(),
    )
}
