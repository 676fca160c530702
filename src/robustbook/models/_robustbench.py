"""Models of RobustBench, through its loader."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from torch import nn

from robustbook._checks.arguments import check_choice
from robustbook._checks.extras import extra
from robustbook._compat import mend_torchvision
from robustbook._store import DataUnavailableError, sha256_of, user_cache
from robustbook._store.downloads import data_folder
from robustbook.models._evaluate import resolve_device

#: Prefix of names of models of RobustBench.
PREFIX: Final = "robustbench:"
#: Where RobustBench keeps weights, but for those that timm or torchvision bring.
_DRIVE: Final = "https://drive.google.com/file/d/"
#: Has torch.load read tensors only; before torch 2.6 it runs any code.
_TENSORS_ONLY: Final = patch.dict(os.environ, {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"})


def load_robustbench(
    name: str,
    *,
    dataset: str = "cifar10",
    threat_model: str = "Linf",
    directory: Path | str | None = None,
    sha256: str | None = None,
    device: str = "cpu",
) -> nn.Module:
    """Load a model of RobustBench with RobustBench's ``load_model``.

    `name` is one in RobustBench's zoo, as "Wang2023Better_WRN-28-10", `dataset` one of
    "cifar10", "cifar100" and "imagenet", `threat_model` one of "Linf", "L2",
    "corruptions" and "corruptions_3d". The weights are read from
    ``DIRECTORY/DATASET/THREAT_MODEL/NAME.pt``, where the folder is ``robustbench`` in
    ROBUSTBOOK_DATA by default, or else in the user's cache; RobustBench downloads them
    from Google Drive where that file is not there, and a download that cannot be loaded
    is deleted. RobustBench publishes no sums: `sha256` is that of a trusted file.
    Source: F. Croce et al., NeurIPS 2021.
    """
    robustbench = import_robustbench()
    folder = _model_directory(directory)
    sources, place = _zoo_entry(name, dataset, threat_model)
    files = {folder / dataset / place / file: url for file, url in sources.items()}
    if sha256 is not None and len(files) > 1:
        raise ValueError(
            f"sha256: expected None, as {name} is an ensemble of {len(files)} files; "
            f"got {sha256!r}"
        )
    present = [path for path in files if path.is_file()]
    try:
        _check_sums(present, sha256 or "")
        with _TENSORS_ONLY, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model: nn.Module = robustbench.load_model(
                name, model_dir=folder, dataset=dataset, threat_model=threat_model
            )
        _check_sums(files, sha256 or "")
    except Exception as error:  # whatever gdown, requests, torch or the model raise
        state = ", ".join(f"{path} ({_size(path)})" for path in files)
        for path in set(files).difference(present):
            path.unlink(missing_ok=True)  # or it would be loaded the next time
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataUnavailableError(
            f"{name}: expected weights of this model in {state}, got {reason}; put "
            f"there what a browser downloads from {', '.join(files.values())}, or try "
            "again with a network"
        ) from error
    return model.requires_grad_(False).eval().to(resolve_device(device))


def _zoo_entry(
    name: str, dataset: str, threat_model: str
) -> tuple[dict[str, str], str]:
    """The files of a model and where they come from; and the name of their folder."""
    from robustbench.model_zoo import model_dicts

    timm = importlib.import_module("timm")  # it has no type hints
    zoos = {key.value: zoo for key, zoo in model_dicts.items()}
    check_choice("dataset", dataset, zoos)
    threats = {key.value: entries for key, entries in zoos[dataset].items()}
    # RobustBench keeps the models for both kinds of corruptions in one place.
    folder = threat_model.replace("_3d", "")
    check_choice("threat_model", folder, threats, of=f" for {dataset}")
    entries = threats[folder]
    timm_name = f"{name.lower().replace('-', '_')}_{dataset}_{folder.lower()}"
    if name not in entries and not timm.is_model(timm_name):
        close = difflib.get_close_matches(name, entries, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "see robustbench.org"
        raise ValueError(
            f"name: expected a model of RobustBench for {dataset}, {threat_model} "
            f"({len(entries)} are known); got {name!r}; {hint}"
        )
    ids = None if timm.is_model(timm_name) else entries[name]["gdrive_id"]
    if not isinstance(ids, list):
        return {f"{name}.pt": f"{_DRIVE}{ids}" if ids else "its source"}, folder
    parts = enumerate(ids)
    return {f"{name}.pt_m{i}.pt": f"{_DRIVE}{part}" for i, part in parts}, folder


def _model_directory(directory: Path | str | None) -> Path:
    if directory is not None:
        return Path(directory)
    folder = data_folder()
    if folder is not None and (folder / "robustbench").is_dir():
        return folder / "robustbench"
    return user_cache("robustbench")


def _check_sums(paths: Iterable[Path], sha256: str) -> None:
    for path in paths if sha256 else ():
        actual = sha256_of(path)
        if actual != sha256.lower():
            raise ValueError(f"sha256: expected {sha256[:12]}..., got {actual[:12]}...")


def _size(path: Path) -> str:
    return f"{path.stat().st_size} bytes" if path.is_file() else "missing"


# Let robustbench 1.1.1 import, with what is installed beside it. It imports autoattack,
# but depends on pyautoattack; and pkg_resources, which setuptools 81 dropped. Both can
# go when robustbench imports what it depends on.


def _resource_filename(package: str, name: str) -> str:
    return str(Path(sys.modules[package].__file__ or "").parent / name)


def _module(name: str, **content: Any) -> None:
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(content)


def _absent(name: str) -> bool:
    # A module that we made has no specification, and to ask for it would raise.
    return name not in sys.modules and importlib.util.find_spec(name) is None


def import_robustbench() -> Any:
    """Import robustbench, mended; raise ModuleNotFoundError where there is none."""
    if "robustbench" in sys.modules:
        return sys.modules["robustbench"]
    mend_torchvision()
    with extra("robustbench"):
        for name in ("robustbench", "pyautoattack", "torchvision"):
            if not importlib.util.find_spec(name):
                raise ModuleNotFoundError(name=name)
    if _absent("autoattack"):
        state = importlib.import_module("pyautoattack.state")
        attack = importlib.import_module("pyautoattack").AutoAttack
        _module("autoattack", AutoAttack=attack, __path__=[])
        _module("autoattack.state", EvaluationState=state.EvaluationState)
    if _absent("pkg_resources"):
        _module("pkg_resources", resource_filename=_resource_filename)
    with warnings.catch_warnings():
        # Of its dependencies, about names that robustbench uses.
        warnings.simplefilter("ignore")
        return importlib.import_module("robustbench")
