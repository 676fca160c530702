"""Data sets: fixed splits, checked files, clear words where a file is missing."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from robustbook import datasets
from robustbook._store import files, sha256_of
from robustbook.datasets import (
    DataUnavailableError,
    _images,
    load_dataset,
    load_sentences,
    load_votes,
)

from .conftest import needs_folder


def fingerprint(dataset):
    content = dataset.images.numpy().tobytes() + dataset.labels.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


# ---------------------------------------------------------------------- digits


@pytest.mark.parametrize(
    ("split", "size", "sha256"),
    [
        ("train", 1201, "db57e507eb4350c8ceb4dd0760cc0315ce74d035"),
        ("test", 596, "a0badf9bc21873d5c1553b8daf0397d758d6ef59"),
    ],
)
def test_digits_never_change(split, size, sha256):
    data = load_dataset("digits", split)
    assert data.images.shape == (size, 1, 8, 8)
    assert (data.images.dtype, data.labels.dtype) == (torch.float32, torch.int64)
    assert (data.name, data.split, data.num_classes) == ("digits", split, 10)
    assert data.images.aminmax() == (0, 1)
    assert fingerprint(data).startswith(sha256)


@pytest.mark.parametrize(
    ("load", "name"), [(load_dataset, "digits"), (load_sentences, "template-reviews")]
)
def test_the_global_generator_is_not_touched(load, name):
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    load(name, "train")
    assert np.random.random() == expected


def test_loading_twice_gives_separate_memory():
    first = load_dataset("digits", "test")
    first.images.zero_()
    assert float(load_dataset("digits", "test").images.max()) == 1.0


def test_subset_takes_every_kind_of_index_and_mask():
    data = load_dataset("digits", "test")
    mask = torch.zeros(596, dtype=torch.bool)
    mask[[1, 3]] = True
    for index in (
        *([1, 3], range(1, 4, 2), slice(1, 4, 2), torch.tensor([1, 3])),
        *(np.array([1, 3], np.uint8), mask, mask.numpy(), mask.tolist()),
    ):
        assert torch.equal(data.subset(index).images, data.images[[1, 3]])
    assert len(data.subset([])) == 0


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0.0, 1.7], TypeError, "index: expected positions .* float64"),
        (torch.tensor([1.0]), TypeError, "index: expected positions"),
        (["a"], TypeError, "index: expected positions"),
        ([True, False], ValueError, "a mask of 596 bools, .* got 2"),
        (3, ValueError, "one dimension"),
        ([[1, 2]], ValueError, "one dimension"),
        ([596], IndexError, "596"),
    ],
)
def test_subset_refuses_what_is_no_index(index, error, message):
    with pytest.raises(error, match=message):
        load_dataset("digits", "test").subset(index)
    with pytest.raises(ValueError, match="images and labels"):
        datasets.Dataset(torch.zeros(2, 1, 8, 8), torch.zeros(3), "x", "test", 10)


@pytest.mark.parametrize(
    ("load", "words", "message"),
    [
        (load_dataset, ("oak", "test"), r"expected one of digits, mnist.*'oak'"),
        (load_dataset, ("digits", "valid"), r"expected one of train, test.*'valid'"),
        (load_sentences, ("oak", "test"), r"one of template-reviews, .*'oak'"),
        (load_sentences, ("template-reviews", "dev"), "train, validation, test.*'dev'"),
        (load_votes, ("cifar10h", "train"), "expected one of test, test1000"),
        (datasets.fetch, ("oak",), r"digits, .*sentence-polarity.*'oak'"),
    ],
)
def test_unknown_names_and_splits(load, words, message):
    with pytest.raises(ValueError, match=message):
        load(*words)


# ------------------------------------------------------- files and their sources


FOLDERS = {"sentence-polarity": "text/rt-polarity", "cifar10h": "cifar10"}
LOADERS = {"sentence-polarity": load_sentences, "cifar10h": load_votes}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", *FOLDERS])
def test_missing_files_say_what_helps(no_network, name):
    load = LOADERS.get(name, load_dataset)
    holds = f"set ROBUSTBOOK_DATA to a folder that holds {FOLDERS.get(name, name)}/"
    for action in (partial(load, name, "test"), partial(datasets.fetch, name)):
        with pytest.raises(DataUnavailableError) as caught:
            action()
        message = str(caught.value)
        assert "\n" not in message
        fetch = f"`robustbook data fetch {name}`"
        assert all(x in message for x in (name, "not set", holds, fetch, "ConnectionE"))


def write_idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", ["mnist", *FOLDERS])
def test_a_wrong_file_is_refused(no_network, monkeypatch, tmp_path, name, cached):
    if not cached:
        monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    folder = tmp_path / (f"cache/{name}" if cached else FOLDERS.get(name, name))
    folder.mkdir(parents=True)
    for file in ("t10k-images-idx3-ubyte.gz", "rt-polarity.neg", "cifar10h-counts.npy"):
        (folder / file).write_text("dull .\n", encoding="utf-8")
    with pytest.raises(DataUnavailableError, match=r"expected sha256 .* fetch it"):
        LOADERS.get(name, load_dataset)(name, "test")


def test_a_download_is_checked_and_quiet(monkeypatch, tmp_path, capfd):
    """A download goes through pooch with the sum of the registry."""
    import pooch

    served, target = tmp_path / "served", tmp_path / "cache"
    white, ones = np.full((10000, 28, 28), 255, np.uint8), np.ones(10000, np.uint8)
    write_idx(served / "t10k-images-idx3-ubyte.gz", white)
    write_idx(served / "t10k-labels-idx1-ubyte.gz", ones)
    sums = {path.name: sha256_of(path) for path in served.iterdir()}

    def copy(url, output_file, _):
        name = url.rpartition("/")[2]
        Path(output_file).write_bytes((served / name).read_bytes())

    spec = datasets.dataset_spec("mnist")
    monkeypatch.setitem(_images._REGISTRY, "mnist", replace(spec, files=sums))
    monkeypatch.delenv("ROBUSTBOOK_DATA", raising=False)
    monkeypatch.setattr(files, "cache_root", lambda: target)
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda *_, **__: copy)
    data = load_dataset("mnist", "test")
    assert float(data.images.min()) == 1.0
    assert data.labels.tolist() == [1] * 10000
    paths = datasets.fetch("mnist", progress=False)
    assert {path.name for path in paths} == sums.keys()
    assert all(path.parent == target / "mnist" for path in paths)
    assert capfd.readouterr().err == ""
    for path in paths:
        path.unlink()
        (served / path.name).write_bytes(b"another file")
    with pytest.raises(DataUnavailableError, match=r"failed \(ValueError\)"):
        datasets.fetch("mnist", progress=False)


def use_archive(monkeypatch, folder, batches, **changes):
    """Put an archive like the public one into a data folder and the registry."""
    path = folder / "cifar10" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, (images, labels) in batches.items():
            content = pickle.dumps(
                {b"data": images.reshape(len(images), -1), b"labels": labels.tolist()}
            )
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    spec = datasets.dataset_spec("cifar10")
    changes["files"] = {path.name: sha256_of(path)}
    monkeypatch.setitem(_images._REGISTRY, "cifar10", replace(spec, **changes))
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(folder))


def test_cifar10_archive_is_read_in_order(monkeypatch, tmp_path):
    random = np.random.default_rng(0)
    names = ["test_batch", *(f"data_batch_{i}" for i in (2, 1, 3, 5, 4))]
    pixels = random.integers(0, 256, (6, 4, 3, 32, 32), np.uint8)
    labels = random.integers(0, 10, (6, 4))
    batches = dict(zip(names, zip(pixels, labels, strict=True), strict=True))
    sizes = {"train": 20, "test": 4, "test1000": 3, "held_out": 6}
    use_archive(monkeypatch, tmp_path, batches, split_sizes=sizes)
    data = load_dataset("cifar10", "train")
    ordered = [batches[f"data_batch_{i}"] for i in range(1, 6)]
    pixels = (data.images * 255).round().to(torch.uint8).numpy()
    np.testing.assert_array_equal(pixels, np.concatenate([b[0] for b in ordered]))
    np.testing.assert_array_equal(data.labels, np.concatenate([b[1] for b in ordered]))
    whole, first = load_dataset("cifar10", "test"), load_dataset("cifar10", "test1000")
    assert torch.equal(whole.images[:3], first.images)
    held_out = load_dataset("cifar10", "held_out")
    assert torch.equal(held_out.images, data.images[14:])
    assert torch.equal(held_out.labels, data.labels[14:])


def test_cifar10_archive_with_code_is_refused_before_it_runs(monkeypatch, tmp_path):
    class Code:
        def __len__(self):
            return 1

        def reshape(self, *shape):
            return self

        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    batch = Code(), np.zeros(1, int)
    use_archive(monkeypatch, tmp_path, {"test_batch": batch})
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir"):
        load_dataset("cifar10", "test")
    assert not (tmp_path / "ran").exists()


def test_cifar10_pictures_of_other_pixels_are_refused(monkeypatch, tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    np.save(folder / "labels.npy", np.zeros(51000, np.uint8))
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    with pytest.raises(DataUnavailableError, match=r"batch_50\.png.*; put the files b"):
        load_dataset("cifar10", "test1000")
    Image.new("RGB", (32, 32000)).save(folder / "cifar10_batch_50.png")
    with pytest.raises(DataUnavailableError, match="expected the pixels and labels"):
        load_dataset("cifar10", "test1000")
    (folder / "labels.npy").write_bytes(b"")
    with pytest.raises(DataUnavailableError, match="put the files back"):
        load_dataset("cifar10", "test1000")


# --------------------------------------------------------------- the real files


@needs_folder("mnist")
@needs_folder("fashion-mnist")
@pytest.mark.parametrize(
    ("name", "mean"), [("mnist", 0.1307), ("fashion-mnist", 0.2860)]
)
def test_mnist_files(name, mean):
    train, test = load_dataset(name, "train"), load_dataset(name, "test")
    assert (len(train), len(test)) == (60000, 10000)
    assert train.images.shape[1:] == (1, 28, 28)
    assert float(train.images.mean()) == pytest.approx(mean, abs=5e-5)
    assert torch.bincount(test.labels).min() >= 892
    if name == "mnist":
        assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


@needs_folder("cifar10")
def test_cifar10_files():
    train = load_dataset("cifar10", "train")
    assert train.images.shape == (50000, 3, 32, 32)
    assert torch.bincount(train.labels).tolist() == [5000] * 10
    means = train.images.double().mean((0, 2, 3)).tolist()
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    test = load_dataset("cifar10", "test1000")
    assert test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


@needs_folder("cifar10")
def test_votes_belong_to_the_images_of_their_split():
    votes = load_votes("cifar10h", "test")
    assert votes.shape == (10000, 10)
    assert votes.dtype == torch.int64
    totals = votes.sum(dim=1)
    assert (int(totals.min()), int(totals.max())) == (47, 63)
    first = load_votes("cifar10h", "test1000")
    assert torch.equal(first, votes[:1000])
    # Were the order another one, the majority would be right on a tenth.
    labels = load_dataset("cifar10", "test1000").labels
    assert (first.argmax(dim=1) == labels).double().mean() > 0.98


def test_data_card_lists_every_file():
    card = (datasets.data_directory() / "README.md").read_text(encoding="utf-8")
    listed = datasets.list_datasets, datasets.list_sentences, datasets.list_votes
    for name in (name for names in listed for name in names()):
        spec = datasets.dataset_spec(name)
        assert f"| `{name}` |" in card
        assert spec.license
        assert spec.source
        assert all(len(sha256) == 64 for sha256 in spec.files.values())
        for file, sha256 in spec.files.items():
            link = f"[{file}]({spec.address}{file})" if spec.address else f"`{file}`"
            assert f"{link} | `{sha256}` |" in card
