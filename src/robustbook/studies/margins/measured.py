"""Input margins, measured once and kept for all studies of Part V."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.datasets import Dataset
from robustbook.margins import feature_margin, logit_margin
from robustbook.models import features_of
from robustbook.studies.margins.search import (
    Recipe,
    first_order_arrays,
    searched_arrays,
)
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Run

#: Images per cache file.
_BLOCK: Final = 500


@dataclass(frozen=True, eq=False)
class MeasuredMargins:
    """A model and the distances of N images from its decision boundary."""

    #: Of the clean images, (N, K); what the linear head receives of them, (N, D); and
    #: their true classes, (N,).
    logits: Tensor
    features: Tensor
    labels: Tensor
    #: The linear head, (K, D) and (K,).
    weights: Tensor
    bias: Tensor
    #: ℓ∞ distance to the closest image of another class than the predicted one, in
    #: [0, 1] pixel units, float64 (N,): an upper bound on the input margin, infinite
    #: where there is none.
    bounds: Tensor
    #: ℓ2 distance between the features of the image and of that closest one, (N,).
    feature_shifts: Tensor
    #: Logit margin over the 1-norm of its gradient; the smallest of these ratios over
    #: all other classes: (N,).
    gradient_margins: Tensor
    first_order_margins: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> Tensor:
        """Whether the clean prediction is right, shape (N,)."""
        return self.logits.argmax(dim=1) == self.labels

    def __getitem__(self, chosen: Tensor) -> MeasuredMargins:
        """Return the samples of an index, or of a mask."""
        parts = {
            item.name: getattr(self, item.name)[chosen]
            for item in fields(self)
            if item.name not in ("weights", "bias")
        }
        return replace(self, **parts)


def margins_of(
    run: Run[Any], network: str | nn.Module, data: Dataset, recipe: Recipe
) -> MeasuredMargins:
    """Measure the input margins of a model, or read them from the cache.

    It is given, or named, and must end in a linear layer. Every block of 500 images is
    kept in its own file; the seed is APGD's. The result is on the CPU.
    """
    kept: Any = {"network": network, "size": _BLOCK}
    how = searched_arrays, data, recipe, run.seed
    arrays = {
        **run.arrays_by_block("searched margins", *how, **kept),
        **run.arrays_by_block("first-order margins", first_order_arrays, data, **kept),
    }
    model = run.model(network)
    weights, bias = (part.cpu() for part in linear_head(model))
    return MeasuredMargins(
        features=features_of(model, data.images),
        labels=data.labels,
        weights=weights,
        bias=bias,
        **{name: torch.from_numpy(values) for name, values in arrays.items()},
    )


def margins_in(run: Run[MarginSetting], model: str) -> MeasuredMargins:
    """Measure a network of the only setting, or read its margins from the cache."""
    recipe, _ = run.setting.models[model]
    return margins_of(run, model, run.setting.images_of(model), recipe)


def linear_head(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Weights (K, D) and bias (K,) of the last linear layer, which makes the logits."""
    layer = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    weights = layer.weight.detach()
    bias = layer.bias
    return weights, weights.new_zeros(len(weights)) if bias is None else bias.detach()


def scores_of(model: MeasuredMargins) -> dict[str, Tensor]:
    """Scores of samples that need no attack, by name: float64 (N,).

    A smaller score marks a more brittle decision. The first three need one forward
    pass, the next one backward pass more, and the last K - 1 backward passes.
    """
    logits = model.logits.double()
    probabilities = logits.softmax(dim=1).topk(2, dim=1).values
    gap = logit_margin(logits)
    return {
        "logit_margin": gap,
        "feature_margin": feature_margin(
            model.features.double(), model.weights.double(), model.bias.double()
        ),
        "softmax_margin": probabilities[:, 0] - probabilities[:, 1],
        "gradient_margin": model.gradient_margins,
        "first_order_margin": model.first_order_margins,
    }
