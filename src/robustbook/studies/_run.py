"""What a study is given, its settings and its run; and rows, of plain values."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._checks.extras import extra
from robustbook._store.cache import Configuration, cached_arrays
from robustbook._store.sums import tensors_sum
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import load_model, resolve_device

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Images and the networks that meet on them; parts of the book add to it.

    What a study reads, and so what its stamp covers, follows from this.
    """

    dataset: str
    split: str = "test"
    #: Names of the networks; a dictionary where each has options of its own.
    models: Collection[str] = ()
    #: How many images, from the first, and every how many-th; None is all.
    samples: int | None = None
    step: int = 1
    #: What `dataset` names: images, sentences, or nothing where data are made up.
    kind: ClassVar[str] = "images"

    def data(self) -> Dataset:
        """Load the images."""
        data = load_dataset(self.dataset, self.split)
        if self.samples is None and self.step == 1:
            return data
        return data.subset(slice(None, self.samples, self.step))

    def checkpoints(self) -> list[str]:
        """Names of the networks that are loaded, not trained by the study."""
        return list(self.models)


S = TypeVar("S", bound=Setting)
T = TypeVar("T")


@dataclass
class Run(Generic[S]):
    """One run of a study in a profile, with the profile's settings."""

    name: str
    profile: str
    seed: int
    device: str
    settings: tuple[S, ...]
    #: How many parts are done: what is not in the cache then is lost when stopped.
    units: int = field(default=0)

    @property
    def setting(self) -> S:
        """The only one."""
        (setting,) = self.settings
        return setting

    @cached_property
    def data(self) -> Dataset:
        """Its images."""
        return self.setting.data()

    def model(self, name: str) -> nn.Module:
        """Load a network, where the run is."""
        return load_model(name).eval().to(resolve_device(self.device))

    def each(self, parts: Iterable[T]) -> Iterator[T]:
        """Take the parts one by one, under a progress bar."""
        for part in tqdm(list(parts), desc=self.name, disable=None):
            yield part
            self.units += 1

    def models(self) -> Iterator[tuple[S, str]]:
        """The networks of all settings."""
        return ((one, model) for one in self.settings for model in one.models)

    def each_model(self) -> Iterator[tuple[S, str]]:
        """Take them one by one."""
        return self.each(self.models())


def data_sum(data: Dataset) -> str:
    """The sha256 of images and labels, for keys of the cache."""
    return tensors_sum({"images": data.images, "labels": data.labels})


def cached_rows(
    configuration: Configuration, measure: Callable[[], Iterable[Row]], *, code: str
) -> list[Row]:
    """Rows from the cache, or what measures them; see :func:`cached_arrays`."""
    stored = cached_arrays(
        configuration,
        lambda: {"rows": np.array(json.dumps([*measure()]))},
        code=code,
    )
    rows: list[Row] = json.loads(str(stored["rows"]))
    return rows


def under(keys: Row, rows: Iterable[Row]) -> Iterator[Row]:
    """Put what rows share in front of them, behind ``what`` if they have that."""
    for row in rows:
        what = {"what": row["what"]} if "what" in row else {}
        yield {**what, **keys, **row}


def decimals(value: Any, digits: int = 6) -> float:
    """A plain number of so many decimals."""
    return round(float(value), digits)


def significant(value: Any) -> float:
    """A plain number of six significant digits."""
    return float(f"{float(value):.6g}")


def png(image: Tensor) -> str:
    """An image (C, H, W) with pixels in [0, 1] as a PNG file in base64."""
    with extra("data"):
        from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def small_network(features: int, classes: int, *, hidden: int, seed: int) -> nn.Module:
    """Features to logits, with or without a hidden layer; from a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
        last = nn.Linear(hidden or features, classes)
        return nn.Sequential(nn.Flatten(), *layers, last)


@contextmanager
def one_thread() -> Iterator[None]:
    """Time on a single thread: small steps gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
