"""The project's own checkpoints: ``data/checkpoints`` and their registry."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from robustbook import _store
from robustbook._checks.arguments import check_choice
from robustbook._store import DataUnavailableError, sha256_of
from robustbook.models._architectures import build_model

_REGISTRY: Final = "registry.json"


def _checkpoints(folder: Path, *, note: bool = False) -> dict[str, dict[str, Any]]:
    """The entries of a registry; `note` if the caller depends on their names."""
    path = folder / _REGISTRY
    if note:
        _store.note_read(path, "checkpoints")
    return _read_checkpoints(path, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=8)  # callers must not change the result
def _read_checkpoints(path: Path, modified: int) -> dict[str, dict[str, Any]]:
    remedy = (
        "restore it from the repository, or retrain with "
        "`python -m robustbook.training digits`"
    )
    entries = _store.read_json(path, remedy=remedy, note=False).get("checkpoints")
    if not isinstance(entries, dict):
        raise DataUnavailableError(f"{path}: expected a table of checkpoints; {remedy}")
    return entries


def _folder(directory: Path | str | None) -> Path:
    if directory is None:
        return _store.data_directory() / "checkpoints"
    return Path(directory)


def list_models(*, directory: Path | str | None = None) -> list[str]:
    """Return the names of the project's own checkpoints, such as "digits-cnn-s0".

    Or those of a `directory` with its registry.json.

    Examples
    --------
    >>> [name for name in list_models() if name.startswith("digits-cnn-adv")][:2]
    ['digits-cnn-adv-s0', 'digits-cnn-adv-s1']
    """
    return sorted(_checkpoints(_folder(directory), note=True))


def training_runs(name: str, *, directory: Path | str | None = None) -> list[str]:
    """Return the checkpoints of one model, which differ in the training seed only.

    `name` is a model without a seed, such as "digits-cnn"; another is a ValueError.

    Examples
    --------
    >>> training_runs("digits-cnn")[:3]
    ['digits-cnn-s0', 'digits-cnn-s1', 'digits-cnn-s2']
    """
    runs = _runs(_checkpoints(_folder(directory), note=True))
    return runs[check_choice("name", name, runs)]


def _runs(checkpoints: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The checkpoints of each model, by seed."""
    runs: dict[str, list[str]] = {}
    for name in sorted(checkpoints, key=lambda name: int(checkpoints[name]["seed"])):
        runs.setdefault(checkpoints[name]["model"], []).append(name)
    return dict(sorted(runs.items()))


def checkpoint_entry(
    name: str, *, directory: Path | str | None = None
) -> dict[str, Any]:
    """Return the registry's entry of a checkpoint.

    `name` is a checkpoint ("digits-cnn-s3"), or a model ("digits-cnn"), which stands
    for its first training seed; another is a ValueError.

    Returns
    -------
    dict
        Keys name, model, file, sha256, bytes, arch, options, dataset, seed,
        recipe, command, test_accuracy, versions.

    Examples
    --------
    >>> checkpoint_entry("digits-cnn")["name"]
    'digits-cnn-s0'
    """
    folder = _folder(directory)
    checkpoints = _checkpoints(folder)
    runs = _runs(checkpoints)
    if name not in checkpoints and name not in runs:
        raise ValueError(
            f"name: expected a model ({', '.join(runs)}) or one of its training "
            f"seeds, such as {min(runs)}-s1; got {name!r}"
        )
    run = name if name in checkpoints else runs[name][0]
    _store.note_read(folder / _REGISTRY, "checkpoints", run)
    return {"name": run, **copy.deepcopy(checkpoints[run])}


def load_checkpoint(name: str, *, directory: Path | str | None = None) -> nn.Module:
    """Load one of the project's own checkpoints; see :func:`load_model`."""
    from safetensors.torch import load_file

    entry = checkpoint_entry(name, directory=directory)
    path = _folder(directory) / entry["file"]
    if not path.is_file():
        raise _store.missing_file(
            path,
            remedy="restore it from the repository, "
            f"or retrain with `{entry['command']}`",
        )
    actual = sha256_of(path)
    if actual != entry["sha256"]:
        raise DataUnavailableError(
            f"{entry['name']}: {path}: expected sha256 {entry['sha256'][:12]}..., "
            f"got {actual[:12]}...; restore the file from the repository"
        )
    model = build_model(entry["arch"], seed=0, options=entry["options"])
    model.load_state_dict(load_file(path))
    return model


def save_checkpoint(
    model: nn.Module,
    path: Path,
    *,
    description: Mapping[str, Any],
    dtype: str = "float32",
) -> str:
    """Write a model to a safetensors file, and return the sha256 of that.

    The same model gives the same bytes. The description is stored beside the weights,
    as JSON under the key "robustbook".
    """
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    state = {}
    for name, value in model.state_dict().items():
        stored = value.to(kind) if value.is_floating_point() else value
        state[name] = stored.detach().cpu().contiguous()
    # One metadata key: safetensors writes several in no fixed order.
    metadata = {"robustbook": json.dumps(dict(description), sort_keys=True)}
    save_file(state, path, metadata=metadata)
    return sha256_of(path)
