"""Images, sentences and votes: embedded ones, and public ones that are fetched.

"digits" ships inside scikit-learn and the sentences "template-reviews" are made by this
package. The others are looked for in the folder that ``ROBUSTBOOK_DATA`` names, then in
the user's cache, and are downloaded from their public address last; the sha256 of every
file is checked.
"""

from robustbook._store import DataUnavailableError, data_directory
from robustbook.datasets._images import dataset_spec, fetch, list_datasets, load_dataset
from robustbook.datasets._sentences import Sentences, list_sentences, load_sentences
from robustbook.datasets._types import Dataset, DatasetSpec
from robustbook.datasets._votes import list_votes, load_votes

__all__ = [
    "DataUnavailableError",
    "Dataset",
    "DatasetSpec",
    "Sentences",
    "data_directory",
    "dataset_spec",
    "fetch",
    "list_datasets",
    "list_sentences",
    "list_votes",
    "load_dataset",
    "load_sentences",
    "load_votes",
]
