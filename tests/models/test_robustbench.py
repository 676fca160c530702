"""RobustBench's models, through its own loader and with files in its format."""

import io
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from robustbook._store import files, sha256_of
from robustbook.datasets import DataUnavailableError
from robustbook.models import load_model
from robustbook.models._robustbench import (
    _resource_filename,
    import_robustbench,
    load_robustbench,
)

try:
    robustbench = import_robustbench()
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

NAME = "Wong2020Fast"


def linf_entries():
    from robustbench.model_zoo import model_dicts
    from robustbench.model_zoo.enums import BenchmarkDataset, ThreatModel

    return model_dicts[BenchmarkDataset.cifar_10][ThreatModel.Linf]


class Tiny(nn.Module):
    """A custom entry of the zoo."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 4 * 4, 10)

    def forward(self, images):
        return self.linear(images.flatten(1))


STATE = Tiny().state_dict()


@pytest.fixture
def path(monkeypatch, tmp_path, download):
    """Enter a tiny model in the zoo; return the path of its file."""
    for name, ids in (("Tiny2026", "drive-id"), ("Pair2026", ["drive-a", "drive-b"])):
        entry = {"model": Tiny, "gdrive_id": ids}
        monkeypatch.setitem(linf_entries(), name, entry)
    path = tmp_path / "cifar10" / "Linf" / "Tiny2026.pt"
    path.parent.mkdir(parents=True)
    return path


def load(path, **options):
    return load_robustbench(path.stem, directory=path.parents[2], **options)


@pytest.fixture
def download(monkeypatch):
    """Replace the download: nothing comes, or the bytes that are put here."""
    content = []

    def pretend(gdrive_id, path):
        if not content:
            raise ConnectionError("no network\nat all")
        path.write_bytes(content[0])

    monkeypatch.setattr("robustbench.utils.download_gdrive_new", pretend)
    return content


# --------------------------------------------------------------------- loading


def test_a_model_of_the_zoo_loads_from_a_file(tmp_path, download):
    zoo = linf_entries()
    original = zoo[NAME]["model"]().eval()
    path = tmp_path / "cifar10" / "Linf" / f"{NAME}.pt"
    path.parent.mkdir(parents=True)
    torch.save(original.state_dict(), path)
    model = load_model(f"robustbench:{NAME}", directory=tmp_path)
    images = torch.rand(2, 3, 32, 32)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    torch.testing.assert_close(model(images), original(images).detach())


def test_wrapped_weights_load(path):
    renamed = {f"module.{key}": value for key, value in STATE.items()}
    torch.save({"state_dict": renamed}, path)
    name = f"robustbench:cifar10/Linf/{path.stem}"
    model = load_model(name, directory=str(path.parents[2]))
    assert torch.equal(model.linear.weight, STATE["linear.weight"])
    assert load(path, sha256=sha256_of(path).upper()) is not None


def test_a_download_is_used(path, download):
    torch.save(STATE, path)
    download.append(path.read_bytes())
    path.unlink()
    assert torch.equal(load(path).linear.bias, STATE["linear.bias"])
    with pytest.raises(DataUnavailableError, match="expected abcabcabcabc"):
        load(path, sha256="abc" * 21 + "a")  # of a file that is there
    path.unlink()
    with pytest.raises(DataUnavailableError, match=r"sha256: expected 0{12}\.\.\."):
        load(path, sha256="0" * 64)  # of one that is downloaded


def test_the_default_folder_is_that_of_the_data(path, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path / "data"))
    with pytest.raises(DataUnavailableError, match="cache"):
        load_model("robustbench:Tiny2026")
    folder = tmp_path / "data" / "robustbench" / "cifar10" / "Linf"
    folder.mkdir(parents=True)
    torch.save(STATE, folder / path.name)
    assert load_model("robustbench:Tiny2026") is not None


# --------------------------------------------------------------- what goes wrong


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


def stored(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("downloaded", [False, True])
@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "missing"),
        (b"\n<!DOCTYPE html><html>quota</html>", "bytes"),
        (b"PK\x03\x04" + bytes(999), "bytes"),
        (stored({"other": torch.zeros(3)}), "expected weights of this"),
        (stored({"state_dict": Harmful()}), "UnpicklingError"),
    ],
)
def test_a_file_without_weights_is_refused_in_one_line(
    path, download, content, cause, downloaded, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    if content is not None and downloaded:
        download.append(content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataUnavailableError, match=cause) as caught:
        load(path)
    message = str(caught.value)
    assert "https://drive.google.com/file/d/drive-id" in message
    assert "\n" not in message
    # A bad download must not stand in the way; a file of the user's is left.
    assert path.exists() == (content is not None and not downloaded)
    assert not Path("touched").exists()


def test_an_ensemble_names_the_missing_part(path):
    torch.save(STATE, path.with_name("Pair2026.pt_m0.pt"))
    with pytest.raises(DataUnavailableError, match=r"m1\.pt \(missing\).*drive-b"):
        load(path.with_name("Pair2026.pt"))
    with pytest.raises(ValueError, match="ensemble of 2 files"):
        load(path.with_name("Pair2026.pt"), sha256="0" * 64)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wang2023Beter_WRN-28-10", "mean Wang2023Better_WRN-28-10"),
        ("svhn/Linf/Wong2020Fast", "expected one of cifar10.*'svhn'"),
        ("cifar10/L7/Wong2020Fast", "expected one of Linf, L2.*'L7'"),
        ("cifar10/Wong2020Fast", "DATASET/THREAT/NAME"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        load_model(f"robustbench:{name}")


# ---------------------------------------------------------------- compatibility


def test_resource_filename_is_beside_the_module():
    import robustbench.loaders

    assert import_robustbench() is sys.modules["robustbench"]
    path = _resource_filename("robustbench.loaders", "helper_files")
    assert path == str(Path(robustbench.loaders.__file__).parent / "helper_files")


def test_its_absence_is_told(monkeypatch):
    monkeypatch.delitem(sys.modules, "robustbench")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install .robustbook\[robustbench\]"):
        load_model("robustbench:Wong2020Fast")
