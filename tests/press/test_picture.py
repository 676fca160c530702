"""The pictures of the preface are in step with what they are drawn from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from press import picture
from press.picture import picture_paths, stale_pictures, write_pictures

ROOT = Path(__file__).resolve().parents[2]
PREFACE = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a book with the registry of checkpoints and no picture."""
    folder = tmp_path / "data" / "checkpoints"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "data" / "checkpoints" / "registry.json", folder)
    (tmp_path / "book" / "_static").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[picture._Seen]:
    """Measure nothing; return what is drawn instead."""
    draw = np.random.default_rng(0)
    fake = [
        picture._Seen(
            accuracy=0.9,
            agreement=list(np.linspace(2.3, 0.1, len(picture.ATTACKS))),
            error=[0.05] * len(picture.ATTACKS),
            survival=np.sort(draw.random(60)),
            logit_margins=draw.random(20),
            input_margins=0.3 * draw.random(20),
            tau=0.5,
        )
        for _ in picture.NETWORKS
    ]
    monkeypatch.setattr(picture, "_measure", lambda: iter(fake))
    return fake


def test_the_pictures_follow_their_sources(
    root: Path, seen: list[picture._Seen]
) -> None:
    paths = picture_paths(root)
    assert stale_pictures(root) == paths
    assert write_pictures(root) == paths
    assert stale_pictures(root) == []
    before = [path.read_bytes() for path in paths]
    assert before[0] != before[1]
    assert write_pictures(root) == []

    # Another checkpoint, another picture.
    file = root / "data" / "checkpoints" / "registry.json"
    registry = json.loads(file.read_text())
    registry["checkpoints"][picture.NETWORKS[0]]["sha256"] = "0" * 64
    file.write_text(json.dumps(registry))
    assert stale_pictures(root) == paths
    assert write_pictures(root) == paths
    paths[1].write_bytes(b"not a picture")
    assert stale_pictures(root) == [paths[1]]
    paths[0].unlink()
    assert stale_pictures(root) == paths


def test_a_book_without_the_checkpoints_has_no_picture(root: Path) -> None:
    file = root / "data" / "checkpoints" / "registry.json"
    file.write_text('{"checkpoints": {}}')
    assert stale_pictures(root) == write_pictures(root) == []
    file.unlink()
    assert stale_pictures(root) == write_pictures(root) == []


def test_this_book_shows_them() -> None:
    assert stale_pictures(ROOT) == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in picture_paths(ROOT):
        assert path.relative_to(ROOT).as_posix() in readme
        assert path.relative_to(ROOT / "book").as_posix() in PREFACE
        assert path.stat().st_size < 300_000


@pytest.mark.slow
def test_what_the_caption_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"σ = {picture.SIGMA:g}," in PREFACE
    monkeypatch.setattr(picture, "COPIES", 60)
    monkeypatch.setattr(picture, "MEASURED", 120)
    monkeypatch.setattr(picture, "ATTACKS", (0.0, 0.15))
    plain, noise, adversarial = picture._measure()
    rates = [seen.accuracy for seen in (plain, noise, adversarial)]
    assert max(rates) - min(rates) < 0.02
    falls = [seen.agreement[-1] for seen in (plain, noise, adversarial)]
    assert falls == sorted(falls)
    kept = [seen.survival.mean() for seen in (plain, noise, adversarial)]
    assert kept[0] + 0.1 < min(kept[1:])
    assert abs(kept[1] - kept[2]) < 0.02
    assert adversarial.tau + 0.05 < min(plain.tau, noise.tau)
    for seen in (plain, noise, adversarial):
        assert seen.agreement[0] == pytest.approx(np.log(10))
