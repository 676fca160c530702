"""Images, sentences and votes: embedded ones, and public ones that are fetched.

"digits" ships inside scikit-learn and the sentences "template-reviews" are made by this
package. The others are looked for in the folder that ``ROBUSTBOOK_DATA`` names, then in
the user's cache, and are downloaded from their public address last; the sha256 of every
file is checked.
"""

from robustbook._store import DataUnavailableError
from robustbook._store import data_directory as data_directory
from robustbook.datasets._images import dataset_spec as dataset_spec
from robustbook.datasets._images import fetch, list_datasets, load_dataset
from robustbook.datasets._sentences import Sentences as Sentences
from robustbook.datasets._sentences import list_sentences as list_sentences
from robustbook.datasets._sentences import load_sentences
from robustbook.datasets._types import Dataset
from robustbook.datasets._votes import list_votes as list_votes
from robustbook.datasets._votes import load_votes

__all__ = [
    "DataUnavailableError",
    "Dataset",
    "fetch",
    "list_datasets",
    "load_dataset",
    "load_sentences",
    "load_votes",
]
