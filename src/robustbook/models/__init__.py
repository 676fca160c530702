"""Classifiers: the project's checkpoints, public ones, RobustBench's, and yours.

:func:`load_model` takes the name of any of them. All models take images with pixels in
[0, 1] and return logits; normalization, where there is any, is a layer of the model.
The project's checkpoints are the safetensors files of ``data/checkpoints``;
``registry.json`` has the sha256 of each, the command that trained it and its test
accuracy.
"""

from robustbook.models._architectures import Normalized as Normalized
from robustbook.models._architectures import build_model
from robustbook.models._defenses import (
    JPEGReverseSigmoid,
    Mirrored,
    jpeg_compress,
    reverse_sigmoid,
)
from robustbook.models._encoders import Encoder as Encoder
from robustbook.models._encoders import load_encoder
from robustbook.models._evaluate import features_of, logits_of
from robustbook.models._evaluate import resolve_device as resolve_device
from robustbook.models._features import pacs_features as pacs_features
from robustbook.models._load import load_model
from robustbook.models._project import checkpoint_entry, list_models, training_runs
from robustbook.models._project import save_checkpoint as save_checkpoint
from robustbook.models._public import PublicModel as PublicModel
from robustbook.models._public import Source as Source
from robustbook.models._public import list_public_models as list_public_models
from robustbook.models._public import public_model as public_model

__all__ = [
    "JPEGReverseSigmoid",
    "Mirrored",
    "build_model",
    "checkpoint_entry",
    "features_of",
    "jpeg_compress",
    "list_models",
    "load_encoder",
    "load_model",
    "logits_of",
    "reverse_sigmoid",
    "training_runs",
]
