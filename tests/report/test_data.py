"""Images from data sets and from files, and what is refused."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from robustbook.datasets import load_dataset
from robustbook.report import read_images

RNG = np.random.default_rng(0)
PIXELS = RNG.random((12, 3, 6, 5))
BYTES = RNG.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3


def write(path, **arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({k: np.ascontiguousarray(a) for k, a in arrays.items()}, path)
    return path


@pytest.fixture(params=["mine.npz", "mine.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


@pytest.mark.parametrize("name", ["digits", "digits:test"])
def test_a_data_set_has_a_split(name):
    found, expected = read_images(name), load_dataset("digits", "test")
    assert found.name == "digits:test"
    assert torch.equal(found.images, expected.images)
    assert found.num_classes == 10


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("oak", r"expected one of digits:\{train,test\}, .*,held_out\}.*, or a file"),
        ("digits:oak", "'digits:oak': split: expected one of train, test"),
        ("mine.csv", "or a file that ends in .npz or .safetensors; got 'mine.csv'"),
        ("", "expected one of digits"),
    ],
)
def test_the_error_for_unknown_data_lists_the_known(name, words):
    with pytest.raises(ValueError, match=words):
        read_images(name)


def test_pixels_and_labels(path):
    found = read_images(write(path, images=PIXELS, labels=LABELS))
    assert found.images.dtype == torch.float32
    assert torch.allclose(found.images, torch.from_numpy(PIXELS).float())
    assert found.labels.tolist() == LABELS.tolist()
    assert found.name == path.name
    assert found.num_classes is None


@pytest.mark.parametrize("last", [True, False])
def test_bytes_with_the_channels_last_or_first(path, last):
    stored = BYTES if last else BYTES.transpose(0, 3, 1, 2)
    found = read_images(write(path, images=stored))
    assert found.labels is None
    assert found.images.shape == (12, 3, 6, 5)
    expected = torch.from_numpy(BYTES.transpose(0, 3, 1, 2) / 255).float()
    assert torch.allclose(found.images, expected)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (PIXELS * 255, None, r"images: .*\[0, 1\]"),
        (BYTES[..., 0], None, r"add the channel with images\[:, None\]"),
        (PIXELS[:0], None, "images: expected "),
        (PIXELS.transpose(0, 2, 3, 1), None, r"channels with transpose\(0, 3, 1, 2\)"),
        (BYTES.astype(np.int64), None, "images: .*int64.* convert bytes with"),
        (BYTES[:, :3], None, "not clear which axis is the channels"),
        (BYTES[..., :2], None, "not clear which axis is the channels"),
        (PIXELS, LABELS[:3], r"labels: expected shape \(12,\)"),
        (PIXELS, LABELS - 1, "labels: expected classes from 0 on, got -1"),
    ],
)
def test_invalid_images_are_refused(path, images, labels, words):
    arrays = {"images": images} | ({} if labels is None else {"labels": labels})
    with pytest.raises(ValueError, match=words) as caught:
        read_images(write(path, **arrays))
    assert str(caught.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read(path):
    with pytest.raises(ValueError, match="no such file"):
        read_images(path)
    path.write_bytes(b"not what it says")
    with pytest.raises(ValueError, match=str(path)):
        read_images(path)
    write(path, images=PIXELS)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=str(path)) as caught:
        read_images(path)
    assert "logits" not in str(caught.value)
    with pytest.raises(ValueError, match="named 'images'"):
        read_images(write(path, pictures=PIXELS, labels=LABELS))


def test_text_labels_and_pickles_are_refused(tmp_path):
    path, letters = tmp_path / "mine.npz", np.array(list("abcabcabcabc"))
    with pytest.raises(ValueError, match=r"mine.npz: expected numbers, got dtype <U1"):
        read_images(write(path, images=PIXELS, labels=letters))
    with pytest.raises(ValueError, match="expected a numeric array"):
        read_images(write(path, images=np.array([{"a": 1}], dtype=object)))


def test_a_draw_keeps_positions_and_order(path):
    whole = read_images(write(path, images=PIXELS, labels=LABELS))
    some = whole.draw(5, seed=3)
    assert len(some) == 5
    assert some.positions.tolist() == sorted(set(some.positions.tolist()))
    assert torch.equal(some.images, whole.images[some.positions])
    assert some.labels.tolist() == LABELS[some.positions].tolist()
    assert torch.equal(some.positions, whole.draw(5, seed=3).positions)
    assert whole.draw(100) is whole
