"""Photographs in the folders of the WILDS package, which the tests write themselves."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from robustbook.datasets import Dataset, DataUnavailableError
from robustbook.datasets.stand_ins import write_stand_ins
from robustbook.datasets.wild import SPLITS, load_wild
from robustbook.models import build_model, features_of
from robustbook.selection import pair_by_features

#: Tables as the archives have them, with columns that are not read.
TABLES = {
    "waterbirds/metadata.csv": """\
img_id,img_filename,y,split,place,place_filename
1,001.Some_Bird/Some_Bird_0001_7.jpg,0,0,1,/o/ocean/00000001.jpg
2,001.Some_Bird/Some_Bird_0002_9.jpg,1,0,0,/b/bamboo_forest/00000002.jpg
3,002.Other_Bird/Other_Bird_0001.jpg,1,1,1,/o/ocean/00000003.jpg
4,002.Other_Bird/Other_Bird_0002.jpg,0,2,0,/o/ocean/00000004.jpg
""",
    "celebA/list_attr_celeba.csv": """\
image_id,Bald,Blond_Hair,Male,Young
000001.jpg,-1,-1,1,1
000002.jpg,-1,1,-1,1
000003.jpg,-1,1,1,1
000004.jpg,1,-1,-1,-1
""",
    # The two tables need not be in the same order.
    "celebA/list_eval_partition.csv": """\
image_id,partition
000004.jpg,2
000003.jpg,1
000002.jpg,0
000001.jpg,0
""",
    "camelyon17/metadata.csv": """\
,patient,node,x_coord,y_coord,tumor,slide,center,split
0,004,4,3328,21792,1,0,0,0
1,064,1,96,32,0,33,3,0
2,084,1,192,64,1,43,4,1
3,021,2,288,96,1,13,1,1
4,041,3,384,128,0,23,2,0
""",
}
PATCH = "patches/patient_{0}_node_{1}/patch_patient_{0}_node_{1}_x_{2}_y_{3}.png".format
#: Files, classes and domains of each part.
READ = {
    ("waterbirds", "train"): [
        ("001.Some_Bird/Some_Bird_0001_7.jpg", 0, 1),
        ("001.Some_Bird/Some_Bird_0002_9.jpg", 1, 0),
    ],
    ("waterbirds", "validation"): [("002.Other_Bird/Other_Bird_0001.jpg", 1, 1)],
    ("waterbirds", "test"): [("002.Other_Bird/Other_Bird_0002.jpg", 0, 0)],
    ("celebA", "train"): [
        ("img_align_celeba/000001.jpg", 0, 1),
        ("img_align_celeba/000002.jpg", 1, 0),
    ],
    ("celebA", "validation"): [("img_align_celeba/000003.jpg", 1, 1)],
    ("celebA", "test"): [("img_align_celeba/000004.jpg", 0, 0)],
    ("camelyon17", "train"): [
        (PATCH("004", 4, 3328, 21792), 1, 0),
        (PATCH("064", 1, 96, 32), 0, 3),
    ],
    ("camelyon17", "validation"): [(PATCH("084", 1, 192, 64), 1, 4)],
    ("camelyon17", "ood"): [(PATCH("021", 2, 288, 96), 1, 1)],
    ("camelyon17", "test"): [(PATCH("041", 3, 384, 128), 0, 2)],
}


def write(folder, table, text):
    path = folder / table.replace("/", "_v1.0/")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path.parent


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Stand-ins: digits in the files of photographs."""
    folder = tmp_path_factory.mktemp("wilds")
    write_stand_ins(folder)
    return folder


# --------------------------------------------------------------------- the tables


@pytest.mark.parametrize(("name", "split"), READ)
def test_files_classes_and_domains_are_those_of_the_tables(tmp_path, name, split):
    for table, text in TABLES.items():
        write(tmp_path, table, text)
    data = load_wild(name, split, root=tmp_path)
    files = [str(file.relative_to(tmp_path / f"{name}_v1.0")) for file in data.files]
    domains, labels = data.domains.tolist(), data.labels.tolist()
    assert list(zip(files, labels, domains, strict=True)) == READ[name, split]
    parts = data.by_domain()
    assert list(parts) == [data.domain_names[domain] for domain in sorted(set(domains))]
    assert sum(map(len, parts.values())) == len(data)
    assert ", ".join(parts) in repr(data)


def test_stand_ins_are_whole_and_in_one_part_each(root):
    parts = [load_wild("waterbirds", split, root=root).files for split in SPLITS[:3]]
    assert all(file.is_file() for part in parts for file in part)
    assert sum(map(len, parts)) == len(set().union(*parts)) == 1000
    with pytest.raises(ValueError, match="for waterbirds; got"):
        load_wild("waterbirds", "ood", root=root)


def test_photographs_are_squares_from_the_middle(tmp_path):
    folder = write(tmp_path, *next(iter(TABLES.items())))
    data = load_wild("waterbirds", "train", root=tmp_path)
    for file, width, height in zip(data.files, (40, 30), (30, 50), strict=True):
        pixels = np.zeros((height, width, 3), np.uint8)
        side = min(width, height)
        top, left = (height - side) // 2, (width - side) // 2
        pixels[top : top + side, left : left + side] = (210, 90, 30)
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(file, quality=95)
    dataset = data.dataset(size=16)
    assert folder in data.files[0].parents
    assert (dataset.images.dtype, dataset.images.shape) == (torch.uint8, (2, 3, 16, 16))
    middle = dataset.images.float()[:, :, 1:-1, 1:-1]  # JPEG blurs the edge
    expected = torch.tensor([210.0, 90, 30])[:, None, None]
    assert float((middle - expected).abs().max()) < 8


def test_samples_are_drawn_without_repetition(root):
    data = load_wild("waterbirds", "train", root=root)
    some = data.sample(6, seed=1)
    assert len(set(some.files)) == 6
    assert [*some.files] == [file for file in data.files if file in some.files]
    assert some.files == data.sample(6, seed=1).files
    assert some.files != data.sample(6, seed=2).files
    assert len(data.sample(1000)) == len(data)
    with pytest.raises(ValueError, match="count: expected"):
        data.sample(0)


HEAD = "img_filename,y,place,split\n"


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (None, "FileNotFoundError"),
        ("img_filename,y,split\na.jpg,0,0\n", "KeyError: 'place'"),
        (f"{HEAD}a.jpg,0,1,7\n", "KeyError: '7'"),
        (f"{HEAD}a.jpg,0,0,-1\n", "KeyError: '-1'"),
        (f"{HEAD}a.jpg,7,0,0\n", "class 7, domain 0"),
        (f"{HEAD}a.jpg,0,-1,0\n", "class 0, domain -1"),
        (f"{HEAD}a.jpg,0,0,2\n", "no photograph of the part 'train'"),
        (f"{HEAD}a.jpg,1,0\n", "KeyError: None"),
    ],
)
def test_wrong_tables_are_named_with_their_remedy(tmp_path, table, cause):
    if table is not None:
        write(tmp_path, "waterbirds/metadata.csv", table)
    with pytest.raises(DataUnavailableError, match=cause) as caught:
        load_wild("waterbirds", "train", root=tmp_path)
    assert "wilds.get_dataset(NAME, root_dir=FOLDER" in str(caught.value)


def test_unknown_names_and_missing_pictures_are_refused(root, tmp_path):
    with pytest.raises(ValueError, match="name: expected one of waterbirds"):
        load_wild("iwildcam", "train", root=root)
    folder = write(tmp_path, "waterbirds/metadata.csv", f"{HEAD}a.jpg,0,1,0\n")
    data = load_wild("waterbirds", "train", root=tmp_path)
    for content in (None, "no picture"):
        if content:
            (folder / "a.jpg").write_text(content)
        with pytest.raises(DataUnavailableError, match="expected a picture"):
            data.dataset(size=8)


# ------------------------------------------------------------ pairs, and selection


def test_pairs_are_nearest_within_the_class(root):
    data = load_wild("waterbirds", "validation", root=root).sample(60)
    first, second = (part.dataset(size=16) for part in data.by_domain().values())
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


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_pairing_refuses_images_of_another_scale(dtype):
    model = build_model("linear", seed=0)
    data = Dataset(torch.zeros(2, 1, 8, 8, dtype=dtype), torch.arange(2), "d", "s", 2)
    with pytest.raises(TypeError, match="first: expected images in floating point or"):
        pair_by_features(model, data, data)
