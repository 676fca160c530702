"""Files that the project writes and reads, the cache, and the provenance of results."""

from robustbook._store.files import SCHEMA as SCHEMA
from robustbook._store.files import DataUnavailableError as DataUnavailableError
from robustbook._store.files import data_directory as data_directory
from robustbook._store.files import missing_file as missing_file
from robustbook._store.files import note_read as note_read
from robustbook._store.files import read_json as read_json
from robustbook._store.files import sha256_of as sha256_of
from robustbook._store.files import user_cache as user_cache
