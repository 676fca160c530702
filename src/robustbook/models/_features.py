"""Features of PACS in a network trained on ImageNet, computed once."""

from __future__ import annotations

import hashlib
from functools import cache, partial

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.sums import tensors_sum
from robustbook.datasets import dataset_spec
from robustbook.datasets.photographs import decoded, pacs_labels, stored_pictures
from robustbook.models._imagenet import Lite, load_imagenet

#: Pictures in a file of the cache.
_PART = 100
#: Modules that the features depend on; this one only keeps them.
_CODE = "robustbook.models._imagenet", "robustbook.datasets.photographs"


def pacs_features(domain: str, *, size: int = 128) -> tuple[Tensor, Tensor]:
    """Return what EfficientNet-Lite0, trained on ImageNet, sees in a domain of PACS.

    Returned are the inputs (n, 1280) of the network's last layer and the classes (n,),
    in the order of ``load_dataset("pacs", domain)``. The pictures are scaled to a side
    of `size` pixels and go through the network once, about 0.05 s each on one core; the
    features are kept in the cache, so that an interrupted call goes on where it was.

    >>> pacs_features("music")
    Traceback (most recent call last):
        ...
    ValueError: split: expected one of photo, ... for pacs; got 'music'
    """
    spec = dataset_spec("pacs")
    spec.check_split(domain)
    check_count("size", size)
    stored = stored_pictures(spec, domain)
    names, weights = list(stored), tensors_sum(_network().state_dict())
    parts = []
    for start in range(0, len(names), _PART):
        part = {name: stored[name] for name in names[start : start + _PART]}
        pictures = hashlib.sha256(b"".join(part.values())).hexdigest()
        arrays = cached_arrays(
            {
                "part": "Lite0 features",
                "network": weights,
                "pictures": pictures,
                "size": size,
                "device": "cpu",
            },
            partial(_seen, part, spec.image_shape[1], size),
            code=_CODE,
        )
        parts.append(torch.from_numpy(arrays["features"]))
    return torch.cat(parts), torch.from_numpy(pacs_labels(stored))


@cache
def _network() -> Lite:
    return load_imagenet("efficientnet-lite0").eval()


def _seen(part: dict[str, bytes], stored_size: int, size: int) -> Arrays:
    images = torch.from_numpy(decoded(part, stored_size, "pacs")) / 255
    return {"features": _network().features(images, size=size).numpy()}
