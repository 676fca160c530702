"""Files that the project writes and reads: where, how safely, and what they certify."""

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
