"""Settings and runs of studies, and helpers for their rows."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._checks.extras import extra
from robustbook._store.cache import Arrays, Configuration, cached_arrays
from robustbook._store.sums import model_sum, tensor_sum, tensors_sum
from robustbook.datasets import (
    Dataset,
    Sentences,
    dataset_spec,
    load_dataset,
    load_sentences,
)
from robustbook.models import load_model, resolve_device

Row = dict[str, Any]


#: Number of seeds reserved for a run, from ``Run.seed`` on, so that runs with seeds 0
#: and 1 share no random numbers.
SEEDS_A_RUN: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Images and the networks that are measured on them; subclasses add options.

    The files that a study reads, which its stamp covers, follow from its settings.
    """

    dataset: str
    split: str = "test"
    #: Names of the networks; a dictionary where each network has its own options.
    models: Collection[str] = ()
    #: Number of images from the first one on (None: all), and the step between them.
    samples: int | None = None
    step: int = 1
    #: The kind of `dataset`: "images", "sentences", or "made up".
    kind: ClassVar[str] = "images"

    def data(self) -> Dataset:
        """Load the images."""
        data = load_dataset(self.dataset, self.split)
        if self.samples is None and self.step == 1:
            return data
        return data.subset(slice(None, self.samples, self.step))

    def checkpoints(self) -> list[str]:
        """Names of the networks that this project or others publish.

        Those of packages, which have sums of their own, and those that a function
        trains, by its import path, are not among them.
        """
        return [name for name in self.models if ":" not in name]

    def datasets(self) -> list[str]:
        """Names of the data sets whose files are read."""
        return [] if self.kind == "made up" else [self.dataset]

    def only(self, *names: str) -> Self:
        """The same setting, restricted to those of its networks that are named."""
        if isinstance(self.models, Mapping):
            options = {n: self.models[n] for n in names if n in self.models}
            return replace(self, models=options)
        return replace(self, models=tuple(n for n in names if n in self.models))


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
    #: Number of finished parts.
    units: int = 0
    #: Checksums of the networks that keys name, each computed once.
    _sums: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def setting(self) -> S:
        """The only setting."""
        (setting,) = self.settings
        return setting

    @cached_property
    def data(self) -> Dataset:
        """The images of the only setting."""
        return self.setting.data()

    def seeds(self, count: int) -> range:
        """The first of the seeds that are reserved for this run."""
        return range(self.seed, self.seed + count)

    def model(self, network: str | nn.Module) -> nn.Module:
        """Load a network by its name, or take a given one, to the device of the run."""
        model = load_model(network) if isinstance(network, str) else network
        return model.eval().to(resolve_device(self.device))

    def key(
        self, part: str, *, networks: Any = (), data: Any = (), **settings: Any
    ) -> Configuration:
        """Return all that a part of a study depends on beside its code.

        Every key of the cache is made here, so that it holds the seed, and the type of
        the device; weights and images by their sums, never by a name.

        Parameters
        ----------
        part : str
            A name for the computation that no other part has.
        networks : Module, str, or sequence of these
            Networks, or names that :func:`robustbook.models.load_model` takes.
        data : Dataset, Sentences, Tensor, array, or several of these, or str
            The inputs of the networks; a name stands for all splits of a data set.
        **settings
            Plain values, and tuples, mappings and dataclasses of them.
        """
        alone = isinstance(networks, nn.Module | str)
        sums = [self._network_sum(n) for n in ([networks] if alone else networks)]
        return {
            "part": part,
            "networks": " ".join(sums),
            "data": _data_text(data),
            "settings": _text(settings),
            "seed": self.seed,
            "device": resolve_device(self.device).type,
        }

    def _network_sum(self, network: nn.Module | str) -> str:
        if isinstance(network, nn.Module):
            return model_sum(network)
        if network not in self._sums:
            self._sums[network] = model_sum(load_model(network))
        return self._sums[network]

    def arrays(
        self,
        part: str,
        compute: Callable[..., Arrays],
        *args: Any,
        network: str | nn.Module | None = None,
        code: str | tuple[str, ...] = "",
        **depends: Any,
    ) -> Arrays:
        """Read the arrays that a function returns from the cache, or keep them there.

        A `network` is the first of its arguments, loaded when it is needed. All
        arguments are in the key, as :meth:`key` takes settings, and so is the module of
        the function, with all that this imports. Whatever the function reads besides
        its arguments must be named: networks, data and settings as :meth:`key` takes
        them, other modules as `code`.
        """
        if network is not None:
            depends["networks"] = network
        key = self.key(part, arguments=args, **depends)

        def call() -> Arrays:
            first = [] if network is None else [self.model(network)]
            return compute(*first, *args)

        return cached_arrays(key, call, code=code or compute.__module__)

    def rows(
        self,
        part: str,
        measure: Callable[..., Iterable[Row]],
        *args: Any,
        code: str | tuple[str, ...] = "",
        **depends: Any,
    ) -> list[Row]:
        """Read the rows that a function yields from the cache, or keep them there."""

        def texts(*args: Any) -> Arrays:
            return {"rows": np.array(json.dumps([*measure(*args)], default=_refuse))}

        code = code or measure.__module__
        kept = self.arrays(part, texts, *args, code=code, **depends)
        rows: list[Row] = json.loads(str(kept["rows"]))
        return rows

    def measured(
        self, measure: Callable[..., Iterable[Row]], *part: Any, **options: Any
    ) -> list[Row]:
        """Rows of a part of the only setting, from the cache or kept there.

        Whatever they may depend on is in the key: the part, the setting with its data
        set, the weights of the networks that the part names, or else of all, the
        options of the study, the profile, seed, device, and code. `measure` is given no
        other networks.
        """
        named = [n for n in part if isinstance(n, str) and n in self.setting.models]
        setting = self.setting.only(*named) if named else self.setting
        data = [_data_text(name) for name in setting.datasets()]
        run = replace(self, settings=(setting,))
        return self.rows(
            "rows of a part",
            partial(measure, run, *part),
            networks=setting.models,
            data=data,
            setting=setting,
            arguments_of_part=part,
            options=options,
            profile=self.profile,
            code=measure.__module__,
        )

    def arrays_by_block(
        self,
        part: str,
        compute: Callable[..., Arrays],
        data: Dataset,
        *args: Any,
        size: int,
        **depends: Any,
    ) -> Arrays:
        """Keep :meth:`arrays` of so many images at a time, and join them."""
        parts = (data.subset(slice(k, k + size)) for k in range(0, len(data), size))
        kept = [self.arrays(part, compute, each, *args, **depends) for each in parts]
        return {
            name: np.concatenate([block[name] for block in kept]) for name in kept[0]
        }

    def trained(
        self,
        part: str,
        network: nn.Module,
        train: Callable[[], object],
        *,
        code: str | tuple[str, ...],
        **depends: Any,
    ) -> nn.Module:
        """Train a network in place, or give it the weights that the cache keeps."""

        def weights() -> Arrays:
            train()
            state = network.state_dict()
            return {name: value.cpu().numpy() for name, value in state.items()}

        kept = self.arrays(part, weights, code=code, networks=network, **depends)
        network.load_state_dict({k: torch.from_numpy(v) for k, v in kept.items()})
        return self.model(network.requires_grad_(False))

    def progress(self, parts: Iterable[T]) -> Iterator[T]:
        """Iterate over parts under a progress bar."""
        for part in tqdm(list(parts), desc=self.name, disable=None):
            yield part
            self.units += 1

    def by_setting(self) -> Iterator[Self]:
        """Runs with one of the settings each."""
        return (replace(self, settings=(setting,)) for setting in self.settings)

    def models(self) -> Iterator[tuple[S, str]]:
        """The networks of all settings."""
        return ((setting, m) for setting in self.settings for m in setting.models)

    def each_model(self) -> Iterator[tuple[S, str]]:
        """Iterate over these under a progress bar."""
        return self.progress(self.models())


def _refuse(value: Any) -> None:
    raise TypeError(
        "rows: expected plain bool, int, float, str or None, got "
        f"{type(value).__name__}; convert with float() or int()"
    )


def _data_text(data: Any) -> str:
    """Describe data for a key; a name by the checksums of its files."""
    if not isinstance(data, str):
        return _text(data)
    spec = dataset_spec(data)
    load = load_dataset if spec.image_shape else load_sentences
    return _text(spec.files or [load(data, split) for split in spec.split_sizes])


def _text(value: Any) -> str:
    """Describe plain values and data by a text that is the same in every process."""
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if isinstance(value, nn.Module):
        return model_sum(value)
    if isinstance(value, Dataset):
        return tensors_sum({"images": value.images, "labels": value.labels})
    if isinstance(value, Sentences):
        texts = hashlib.sha256(repr(value.texts).encode()).hexdigest()
        return f"{texts} {tensor_sum(value.labels)}"
    if isinstance(value, Tensor | np.ndarray):
        return tensor_sum(torch.as_tensor(value))
    if is_dataclass(value) and not isinstance(value, type):
        shown = {item.name: getattr(value, item.name) for item in fields(value)}
        return type(value).__name__ + _text(shown)
    if isinstance(value, Mapping):
        return _text([*value.items()])
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    raise TypeError(
        "key of a part: expected networks, data, or plain values, and tuples, mappings "
        f"and dataclasses of them; got {type(value).__name__}"
    )


def with_keys(keys: Row, rows: Iterable[Row]) -> Iterator[Row]:
    """Put shared columns in front of those of rows, but behind ``what``."""
    for row in rows:
        what = {"what": row["what"]} if "what" in row else {}
        yield {**what, **keys, **row}


def decimals(value: Any, digits: int = 6) -> float:
    """Round to a plain number with `digits` decimals."""
    return round(float(value), digits)


def significant(value: Any) -> float:
    """Round to a plain number with six significant digits."""
    return float(f"{float(value):.6g}")


def png(image: Tensor) -> str:
    """Encode an image (C, H, W) with pixels in [0, 1] as a PNG file in base64."""
    with extra("data"):
        from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def small_network(features: int, classes: int, *, hidden: int, seed: int) -> nn.Module:
    """Build a network with at most one hidden layer, initialized from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
        last = nn.Linear(hidden or features, classes)
        return nn.Sequential(nn.Flatten(), *layers, last)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use a single thread, as the timed steps are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
