"""Public files: found on this machine or downloaded, and always checked."""

import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Final

from robustbook._checks.extras import extra
from robustbook._store.files import DataUnavailableError, sha256_of

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_DATA"


@lru_cache(maxsize=256)
def _checked(path: str, size: int, modified: int, expected: str) -> None:
    """Check a file, once in each process as long as it does not change."""
    actual = sha256_of(Path(path))
    if actual != expected:
        raise DataUnavailableError(
            f"{path}: expected sha256 {expected[:12]}..., got {actual[:12]}... "
            f"({size} bytes); delete the file and fetch it again"
        )


def check_sum(path: Path, expected: str) -> Path:
    """Return the path if the sha256 of the file is as expected."""
    state = path.stat()
    _checked(str(path), state.st_size, state.st_mtime_ns, expected)
    return path


def data_folder() -> Path | None:
    """Return the folder that ROBUSTBOOK_DATA names, or None."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return Path(value).expanduser() if value else None


def obtain(
    name: str,
    place: str,
    *,
    url: str,
    sha256: str,
    cache: Path,
    preferred: Path | None = None,
    progress: bool = False,
    remedy: str = "try again",
) -> Path:
    """Find a public file, or download it, and check its sum.

    The file is looked for as `preferred`, at `place` in the folder that ROBUSTBOOK_DATA
    names, and in the folder `cache`, where a download is kept. The message after a
    failure uses `name` and `remedy`.
    """
    file = Path(place).name
    folder = data_folder()
    shared = None if folder is None else folder / place
    for path in (preferred, shared, cache / file):
        if path is not None and path.is_file():
            return check_sum(path, sha256)
    with extra("data"), warnings.catch_warnings():
        # In a kernel without widgets, the import warns of progress bars.
        warnings.filterwarnings("ignore", message="IProgress not found")
        import pooch
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # one line on stderr would fail a chapter
    try:
        options = {"fname": file, "path": cache, "progressbar": progress}
        return Path(pooch.retrieve(url=url, known_hash=f"sha256:{sha256}", **options))
    except Exception as error:  # pooch passes on whatever requests raises
        looked = [
            f"{ENVIRONMENT_VARIABLE} ({folder or 'not set'})",
            *(str(path.parent) for path in (preferred, cache / file) if path),
        ]
        raise DataUnavailableError(
            f"{name}: {file} was looked for in {', '.join(looked)}, and the download "
            f"from {url} failed ({type(error).__name__}); set {ENVIRONMENT_VARIABLE} "
            f"to a folder that holds {place}, or {remedy} with a network"
        ) from error
    finally:
        logger.setLevel(level)
