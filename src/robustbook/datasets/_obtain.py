"""Files of data sets: found, or downloaded, and checked either way."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from robustbook._store import DataUnavailableError, sha256_of, user_cache

__all__ = ["data_folder", "obtain", "verify"]

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_DATA"


class HasFiles(Protocol):
    """What this module needs to know of a data set of any kind."""

    @property
    def name(self) -> str:
        """The name of the data set."""

    @property
    def files(self) -> dict[str, str]:
        """Each file and its sha256."""

    @property
    def urls(self) -> dict[str, str]:
        """Each file and its public address."""


@lru_cache(maxsize=256)
def _verified(path: str, size: int, modified: int, expected: str) -> None:
    """Check a sum once for each state of a file in this process."""
    actual = sha256_of(Path(path))
    if actual != expected:
        raise DataUnavailableError(
            f"{path}: expected sha256 {expected[:12]}..., got {actual[:12]}... "
            f"({size} bytes); delete the file and fetch it again"
        )


def verify(path: Path, expected: str) -> Path:
    """Return a file whose sha256 is as expected."""
    state = path.stat()
    _verified(str(path), state.st_size, state.st_mtime_ns, expected)
    return path


def data_folder() -> Path | None:
    """The folder that ROBUSTBOOK_DATA names, if it names one."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return Path(value).expanduser() if value else None


def _in_data_folder(place: str, file: str) -> Path | None:
    folder = data_folder()
    if folder is None:
        return None
    path = folder / place / file
    return path if path.is_file() else None


def obtain(
    spec: HasFiles, file: str, *, folder: str | None = None, progress: bool = False
) -> Path:
    """Find a file of a data set, or download it; its sum is checked either way.

    ``folder`` says where in the data folder it is looked for, instead of in a
    folder with the name of the data set.
    """
    place = spec.name if folder is None else folder
    local = _in_data_folder(place, file)
    if local is not None:
        return verify(local, spec.files[file])
    cache = user_cache(spec.name)
    cached = cache / file
    if cached.is_file():
        return verify(cached, spec.files[file])
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # one line on stderr would fail a chapter
    try:
        return Path(
            pooch.retrieve(
                url=spec.urls[file],
                known_hash=f"sha256:{spec.files[file]}",
                fname=file,
                path=cache,
                progressbar=progress,
            )
        )
    except Exception as error:  # pooch passes on whatever requests raises
        looked = f"{ENVIRONMENT_VARIABLE} ({data_folder() or 'not set'})"
        raise DataUnavailableError(
            f"{spec.name}: {file} is neither in {looked} nor in {cache}, and the "
            f"download from {spec.urls[file]} failed ({type(error).__name__}); "
            f"set {ENVIRONMENT_VARIABLE} to a folder that holds {place}/{file}, "
            f"or run `robustbook data fetch {spec.name}` with a network"
        ) from error
    finally:
        logger.setLevel(level)
