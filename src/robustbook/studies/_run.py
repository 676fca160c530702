"""What a study is given: its settings, and the run that it is part of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from tqdm import tqdm

from robustbook._store.sums import tensors_sum
from robustbook.datasets import Dataset, load_dataset
from robustbook.studies._rows import Row

__all__ = ["Run", "Setting", "data_sum", "under"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Images and the networks that meet on them; parts of the book add to it.

    What a study reads, and so what its stamp covers, follows from this.

    Attributes
    ----------
    dataset, split : str
        The images.
    models : collection of str
        Names of the networks; a dictionary where each has options of its own.
    samples : int or None
        How many images, from the first; None is all.
    step : int
        Every how many-th image is taken.
    """

    dataset: str
    split: str = "test"
    models: Collection[str] = ()
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
    """One run of a study.

    Attributes
    ----------
    name : str
        Of the study.
    profile : {"quick", "full"}
        How large it is.
    seed : int
        Of everything random in it.
    device : str
        Where to run.
    settings : tuple of Setting
        Those of the profile.
    units : int
        How many parts are done: what is not in the cache then is lost when stopped.
    """

    name: str
    profile: str
    seed: int
    device: str
    settings: tuple[S, ...]
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

    def each(self, parts: Iterable[T]) -> Iterator[T]:
        """Take the parts one by one, under a progress bar."""
        for part in tqdm(list(parts), desc=self.name, disable=None):
            yield part
            self.units += 1

    def each_model(self) -> Iterator[tuple[S, str]]:
        """Take the networks of all settings one by one."""
        yield from self.each(
            (one, model) for one in self.settings for model in one.models
        )


def data_sum(data: Dataset) -> str:
    """The sha256 of images and labels, for keys of the cache."""
    return tensors_sum({"images": data.images, "labels": data.labels})


def under(keys: Row, rows: Iterable[Row]) -> Iterator[Row]:
    """Put what rows share in front of them, behind ``what`` if they have that."""
    for row in rows:
        what = {"what": row["what"]} if "what" in row else {}
        yield {**what, **keys, **row}
