"""Public checkpoints: their entries in public.toml, and their loader.

Each file is looked for in ``ROBUSTBOOK_DATA/models/NAME``, then in the user's cache,
and is downloaded from its authors' repository last; its sha256 is checked.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from robustbook._checks.arguments import check_choice
from robustbook._store import user_cache
from robustbook._store.downloads import obtain
from robustbook.models._architectures import Normalized, build_model


@dataclass(frozen=True)
class Source:
    """A public repository with checkpoints.

    Attributes
    ----------
    repository, commit, folder : str
        "owner/name" on GitHub, and the folder (with a slash at its end) at a commit.
    license : str
        Its SPDX identifier.
    """

    repository: str
    commit: str
    folder: str
    license: str


@dataclass(frozen=True)
class PublicModel:
    """The registry's entry of a public checkpoint.

    Attributes
    ----------
    name, dataset, arch, options : str, str, str, dict
        Arguments of :func:`load_model`, :func:`robustbook.datasets.load_dataset` and
        :func:`build_model`.
    mean, std : tuple of float
        Its normalization, one number a channel; a layer of the loaded model.
    accuracy : float
        Share of the first 1000 test images that it classifies correctly.
    source, path, file, sha256 : Source, str, str, str
        The repository that it comes from, the file's path below its folder, its name
        on this machine in a folder of the model's name, and its sum.
    """

    name: str
    dataset: str
    arch: str
    options: dict[str, Any] = field(hash=False)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    accuracy: float
    source: Source
    path: str
    file: str
    sha256: str

    @property
    def url(self) -> str:
        """The public address of the file."""
        source = self.source
        return (
            f"https://raw.githubusercontent.com/{source.repository}/{source.commit}/"
            f"{source.folder}{self.path}"
        )


def list_public_models() -> list[str]:
    """Return the names of the public checkpoints that :func:`load_model` knows.

    Examples
    --------
    >>> len(list_public_models())
    24
    """
    return list(_REGISTRY)


def public_model(name: str) -> PublicModel:
    """Return the entry of one of ``list_public_models``; ValueError of another.

    Examples
    --------
    >>> entry = public_model("cifar10-resnet20")
    >>> entry.accuracy, entry.source.license
    (0.915, 'BSD-2-Clause')
    """
    return _REGISTRY[check_choice("name", name, _REGISTRY)]


def load_public(name: str, *, directory: Path | str | None = None) -> nn.Module:
    """Load a public checkpoint; see :func:`load_model`."""
    entry = public_model(name)
    place = f"{entry.name}/{entry.file}"
    path = obtain(
        entry.name,
        f"models/{place}",
        url=entry.url,
        sha256=entry.sha256,
        cache=user_cache("models") / entry.name,
        preferred=None if directory is None else Path(directory, place),
    )
    # Some files hold a list or a dict around the weights, or DataParallel's prefix.
    state = torch.load(path, map_location="cpu", weights_only=True)
    while not isinstance(state, dict) or "state_dict" in state:
        state = state["state_dict"] if isinstance(state, dict) else state[0]
    model = build_model(entry.arch, seed=0, options=entry.options)
    model.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    return Normalized(model, mean=entry.mean, std=entry.std)


def _registry() -> dict[str, PublicModel]:
    """Read public.toml."""
    content = Path(__file__).with_name("public.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(content)
    entries = {}
    for name, network in tables["networks"].items():
        options = dict(tables["architectures"][network["architecture"]])
        mean, std = map(tuple, tables["normalizations"][network["normalization"]])
        source = dict(tables["sources"][network["source"]])
        file = f"weights.{source.pop('suffix')}"
        entries[name] = PublicModel(
            name=name,
            dataset=name.partition("-")[0].replace("fashion", "fashion-mnist"),
            arch=options.pop("arch"),
            options=options,
            mean=mean,
            std=std,
            accuracy=network["accuracy"],
            source=Source(**source),
            path=network["path"],
            file=file,
            sha256=network["sha256"],
        )
    return entries


_REGISTRY: Final = _registry()
