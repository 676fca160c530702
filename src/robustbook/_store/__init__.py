"""Files that the project writes and reads, the cache, and the provenance of results."""

from robustbook._store.files import (
    SCHEMA,
    DataUnavailableError,
    data_directory,
    missing_file,
    note_read,
    read_json,
    sha256_of,
    user_cache,
)

__all__ = [
    "SCHEMA",
    "DataUnavailableError",
    "data_directory",
    "missing_file",
    "note_read",
    "read_json",
    "sha256_of",
    "user_cache",
]
