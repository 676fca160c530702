"""Classifiers: the project's checkpoints, public ones, RobustBench's, and yours.

:func:`load_model` takes the name of any of them. All models take images with pixels in
[0, 1] and return logits; normalization, where there is any, is a layer of the model.
The project's checkpoints are the safetensors files of ``data/checkpoints``;
``registry.json`` has the sha256 of each, the command that trained it and its test
accuracy.
"""

from robustbook.models._architectures import Normalized, build_model
from robustbook.models._defenses import (
    JPEGReverseSigmoid,
    jpeg_compress,
    reverse_sigmoid,
)
from robustbook.models._encoders import Encoder, load_encoder
from robustbook.models._evaluate import features_of, logits_of, resolve_device
from robustbook.models._features import pacs_features
from robustbook.models._load import load_model
from robustbook.models._project import (
    checkpoint_entry,
    list_models,
    save_checkpoint,
    training_runs,
)
from robustbook.models._public import (
    PublicModel,
    Source,
    list_public_models,
    public_model,
)
from robustbook.models._robustbench import load_robustbench

__all__ = [
    "Encoder",
    "JPEGReverseSigmoid",
    "Normalized",
    "PublicModel",
    "Source",
    "build_model",
    "checkpoint_entry",
    "features_of",
    "jpeg_compress",
    "list_models",
    "list_public_models",
    "load_encoder",
    "load_model",
    "load_robustbench",
    "logits_of",
    "pacs_features",
    "public_model",
    "resolve_device",
    "reverse_sigmoid",
    "save_checkpoint",
    "training_runs",
]
