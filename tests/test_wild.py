"""Photographs in the folders of the WILDS package, which the tests write themselves."""

import csv
import math
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from robustbook.agreement import pair_nearest
from robustbook.datasets import Dataset, DataUnavailableError
from robustbook.datasets.wild import SPLITS, list_wild, load_wild
from robustbook.models import build_model, features_of
from robustbook.selection import (
    pair_by_features,
    pair_scores,
)
from robustbook.training import ERM, train_domains


def write_table(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns.split(","), *rows])


def write_picture(path, label, domain, *, size=(40, 30), seed=0):
    """The class is a shade of red in the middle, the domain the rest's green."""
    random = np.random.default_rng(seed)
    width, height = size
    pixels = random.integers(0, 60, (height, width, 3), dtype=np.uint8)
    pixels[..., 1] = 40 + 150 * (domain % 2)
    pixels[height // 4 : -height // 4, width // 4 : -width // 4, 0] = 60 + 150 * label
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


#: Class and domain of the photographs in each part, more or less as in the real sets.
SHORTCUT = [(0, 0)] * 8 + [(0, 1)] * 2 + [(1, 0)] * 2 + [(1, 1)] * 8
EVEN = [(label, domain) for label in (0, 1) for domain in (0, 1)] * 4


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wilds")
    _write_waterbirds(folder / "waterbirds_v1.0")
    _write_celeba(folder / "celebA_v1.0")
    _write_camelyon17(folder / "camelyon17_v1.0")
    return folder


def _write_waterbirds(folder):
    rows = []
    for split, members in enumerate((SHORTCUT, EVEN, EVEN)):
        for label, domain in members:
            number = len(rows) + 1
            name = f"{number:03}.Some_Bird/Some_Bird_{number:04}_{7 * number}.jpg"
            write_picture(folder / name, label, domain, seed=number)
            where = f"/o/ocean/{number:08}.jpg"
            rows.append((number, name, label, split, domain, where))
    columns = "img_id,img_filename,y,split,place,place_filename"
    write_table(folder / "metadata.csv", columns, rows)


def _write_celeba(folder):
    attributes, partition = [], []
    for split, members in enumerate((SHORTCUT, EVEN, EVEN)):
        for label, domain in members:
            name = f"{len(attributes) + 1:06}.jpg"
            path = folder / "img_align_celeba" / name
            write_picture(path, label, domain, size=(30, 36), seed=len(attributes))
            attributes.append((name, -1, 2 * label - 1, 2 * domain - 1, 1))
            partition.append((name, split))
    columns = "image_id,Bald,Blond_Hair,Male,Young"
    write_table(folder / "list_attr_celeba.csv", columns, attributes)
    # The two tables need not be in the same order.
    path = folder / "list_eval_partition.csv"
    write_table(path, "image_id,partition", partition[::-1])


def _write_camelyon17(folder):
    rows = []
    for hospital, splits in {0: 2, 3: 2, 4: 2, 1: 1, 2: 1}.items():
        for split in range(splits):
            for tumor in (0, 1) * 4:
                patient, node = f"{20 * hospital + 4:03}", 1
                x, y = 96 * len(rows), 32 * len(rows)
                slide = f"patient_{patient}_node_{node}"
                name = f"patches/{slide}/patch_{slide}_x_{x}_y_{y}.png"
                options = {"size": (96, 96), "seed": len(rows)}
                write_picture(folder / name, tumor, hospital, **options)
                place = (len(rows), patient, node, x, y)
                rows.append((*place, tumor, hospital, hospital, split))
    columns = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
    write_table(folder / "metadata.csv", columns, rows)


# --------------------------------------------------------------------- the tables


@pytest.mark.parametrize("name", ["waterbirds", "celebA"])
def test_classes_domains_and_splits_are_those_of_the_tables(root, name):
    for split, members in (("train", SHORTCUT), ("validation", EVEN), ("test", EVEN)):
        data = load_wild(name, split, root=root)
        labels, domains = zip(*members, strict=True)
        assert data.labels.tolist() == list(labels)
        assert data.domains.tolist() == list(domains)
        assert data.groups.tolist() == [2 * d + y for y, d in members]
        assert all(file.is_file() for file in data.files)
    parts = [set(load_wild(name, split, root=root).files) for split in SPLITS[:3]]
    assert sum(map(len, parts)) == len(set.union(*parts))
    with pytest.raises(ValueError, match=f"split: expected one of .* for {name}; got"):
        load_wild(name, "ood", root=root)


def test_hospitals_are_apart(root):
    domains = {
        split: set(load_wild("camelyon17", split, root=root).domains.tolist())
        for split in SPLITS
    }
    inside = {0, 3, 4}
    assert domains == {"train": inside, "validation": inside, "test": {2}, "ood": {1}}
    data = load_wild("camelyon17", "train", root=root)
    assert all(file.is_file() for file in data.files)
    parts = data.by_domain()
    assert list(parts) == ["hospital 0", "hospital 3", "hospital 4"]
    assert sum(map(len, parts.values())) == len(data) == 24
    assert "hospital 0, hospital 3, hospital 4" in repr(data)


def test_photographs_are_squares_from_the_middle(root):
    data = load_wild("waterbirds", "train", root=root).subset([0, 19])
    dataset = data.dataset(size=16)
    assert dataset.images.shape == (2, 3, 16, 16)
    assert dataset.images.dtype == torch.uint8
    middle = dataset.images[:, :, 6:10, 6:10].float().mean((2, 3))
    assert abs(float(middle[0, 0]) - 60) < 12
    assert abs(float(middle[1, 0]) - 210) < 12
    edge = dataset.images[:, 1, 0].float().mean(1)
    assert abs(float(edge[0]) - 40) < 12
    assert abs(float(edge[1]) - 190) < 12


def test_samples_are_drawn_without_repetition(root):
    data = load_wild("celebA", "train", root=root)
    some = data.sample(6, seed=1)
    assert len(set(some.files)) == 6
    assert some.files == data.sample(6, seed=1).files
    assert some.files != data.sample(6, seed=2).files
    assert len(data.sample(1000)) == len(data)


def test_what_is_missing_is_named_with_its_remedy(root, tmp_path):
    assert list_wild() == ["waterbirds", "celebA", "camelyon17"]
    with pytest.raises(ValueError, match="name: expected one of waterbirds"):
        load_wild("iwildcam", "train", root=root)
    with pytest.raises(DataUnavailableError, match=r"get_dataset\(NAME, root_dir"):
        load_wild("waterbirds", "train", root=tmp_path)
    folder = tmp_path / "waterbirds_v1.0"
    table = partial(write_table, folder / "metadata.csv")
    table("img_filename,y,split", [("a.jpg", 0, 0)])
    with pytest.raises(DataUnavailableError, match="there is no place"):
        load_wild("waterbirds", "train", root=tmp_path)
    table("img_filename,y,place,split", [("a.jpg", 0, 1, 7)])
    with pytest.raises(DataUnavailableError, match="tables are not those of the WILDS"):
        load_wild("waterbirds", "train", root=tmp_path)
    table("img_filename,y,place,split", [("a.jpg", 0, 1, 0)])
    data = load_wild("waterbirds", "train", root=tmp_path)
    with pytest.raises(DataUnavailableError, match="expected a picture"):
        data.dataset(size=8)
    (folder / "a.jpg").write_text("no picture")
    with pytest.raises(DataUnavailableError, match="expected a picture"):
        data.dataset(size=8)


# ------------------------------------------------------------ pairs, and selection


def test_pairs_are_nearest_within_the_class(root):
    parts = load_wild("waterbirds", "validation", root=root).by_domain()
    first, second = (part.dataset(size=16) for part in parts.values())
    model = build_model("strided-cnn", seed=0, options={"num_classes": 2})
    one, other = pair_by_features(model, first, second)
    assert len(one) == len(first)
    assert torch.equal(one.labels, other.labels)
    features = [features_of(model, part.images / 255) for part in (one, second)]
    chosen = features_of(model, other.images / 255)
    distances = torch.cdist(*features)
    distances[one.labels[:, None] != second.labels] = math.inf
    own = (features[0] - chosen).norm(dim=1)
    torch.testing.assert_close(own, distances.amin(1), rtol=1e-3, atol=1e-5)


def test_a_class_that_only_one_domain_has_is_left_out():
    images = torch.rand(6, 3, 16, 16)
    labels = torch.tensor([0, 1, 0, 1, 0, 0])
    data = Dataset(images, labels, "made", "validation", 2)
    model = build_model("strided-cnn", seed=0, options={"num_classes": 2})
    one, other = pair_by_features(model, data.subset([0, 1, 2, 3]), data.subset([4, 5]))
    assert one.labels.tolist() == other.labels.tolist() == [0, 0]
    with pytest.raises(ValueError, match="at least one class"):
        pair_nearest(
            torch.zeros(1, 2), torch.zeros(1, 2), labels=[0], shifted_labels=[1]
        )


@pytest.mark.parametrize("name", ["waterbirds", "celebA", "camelyon17"])
def test_from_folder_to_selected_epoch(root, name):
    parts = load_wild(name, "train", root=root).by_domain()
    domains = [part.dataset(size=16) for part in parts.values()]
    held_out = load_wild(name, "validation", root=root).by_domain()
    first, second = (part.dataset(size=16) for part in list(held_out.values())[:2])
    test = load_wild(name, "test", root=root)

    def network():
        options = {"width": 4, "num_classes": 2}
        return build_model("strided-cnn", seed=0, options=options)

    options = {"lr": 0.01, "seed": 0, "batch_size": 8, "progress": False}
    model = network()
    train_domains(model, ERM(), domains, epochs=1, **options)
    pair = pair_by_features(model, first, second)
    options |= {"epochs": 6, "pairs": {"ID": pair}, "measure": pair_scores}
    options |= {"tests": {"test": test.dataset(size=16)}, "keep": ["ID/pa"]}
    history = train_domains(network(), ERM(), domains, **options)
    best = history.best("ID/pa")
    assert 0.0 <= best["test/test"] <= 1.0
    assert history.rows[-1]["risk"] < history.rows[0]["risk"]


@pytest.mark.parametrize(
    "row",
    ["a.jpg,0,0,-1", "a.jpg,7,0,0", "a.jpg,0,-1,0", "a.jpg,0,0,2", "a.jpg,1,0"],
    ids=["split from the end", "no class", "no domain", "part is empty", "cut off"],
)
def test_rows_that_mean_nothing_are_refused(tmp_path, row):
    folder = tmp_path / "waterbirds_v1.0"
    folder.mkdir()
    (folder / "metadata.csv").write_text(f"img_filename,y,place,split\n{row}\n")
    with pytest.raises(DataUnavailableError, match="WILDS"):
        load_wild("waterbirds", "train", root=tmp_path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_pairing_refuses_images_of_another_scale(dtype):
    model = build_model("linear", seed=0)
    data = Dataset(torch.zeros(2, 1, 8, 8, dtype=dtype), torch.arange(2), "d", "s", 2)
    with pytest.raises(TypeError, match="first: expected images in floating point or"):
        pair_by_features(model, data, data)
