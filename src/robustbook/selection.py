"""Selection of an epoch: its criteria, and the pairs to measure them on."""

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import ArrayLike, as_tensor, check_count
from robustbook.agreement import pair_nearest, posterior_agreement
from robustbook.datasets import Dataset
from robustbook.models import features_of
from robustbook.scores import accuracy, same_answer_rate

__all__ = ["pair_by_features", "pair_scores"]


def pair_scores(
    logits: ArrayLike, shifted_logits: ArrayLike, labels: ArrayLike
) -> dict[str, float]:
    """Return the criteria by which an epoch may be selected, for a validation pair.

    It serves as argument `measure` of :func:`robustbook.training.train_domains`. The
    thesis, chapter 6, takes validation accuracy over both samples; Chapter 16.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the two samples; row i of both is one pair.
    labels : Tensor or array, shape (N,)
        The classes of the pairs.

    Returns
    -------
    dict of str to float
        "accuracy", the mean over the two samples; "same_answer_rate"; "pa", posterior
        agreement in nats per sample, exact to 1e-6; "pa_se", its standard error;
        "beta", where it is attained; "confidence", the mean probability of the
        predicted class in the second sample.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> shifted = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.1]])
    >>> scores = pair_scores(logits, shifted, torch.tensor([0, 1, 0]))
    >>> round(scores["accuracy"], 3), round(scores["same_answer_rate"], 3)
    (0.833, 0.667)
    """
    result = posterior_agreement(logits, shifted_logits, tol=1e-6)
    shifted = as_tensor("shifted_logits", shifted_logits)
    return {
        "accuracy": (accuracy(logits, labels) + accuracy(shifted, labels)) / 2,
        "same_answer_rate": same_answer_rate(logits, shifted),
        "pa": result.pa,
        "pa_se": result.standard_error,
        "beta": result.beta,
        "confidence": float(shifted.double().softmax(1).amax(1).mean()),
    }


def pair_by_features(
    model: nn.Module, first: Dataset, second: Dataset, *, batch_size: int = 256
) -> tuple[Dataset, Dataset]:
    """Pair every image of one sample with the nearest of its class in another.

    Distances are Euclidean, between the features of a model. The PA thesis (section
    5.3) takes the model after its first epoch and keeps these pairs; Chapter 17.

    Parameters
    ----------
    model : torch.nn.Module
        The model whose features are compared: the input of its last linear layer.
    first, second : Dataset
        The samples. Images are float in [0, 1] or uint8.
    batch_size : int, default 256
        Images in a batch.

    Returns
    -------
    tuple of (Dataset, Dataset)
        Row i of both is a pair. Images of `first` whose class is in `second` occur
        once, images of `second` as often as they are nearest.

    Raises
    ------
    ValueError
        If a sample is empty, or they have no class in common.

    Examples
    --------
    >>> from robustbook.datasets import load_dataset
    >>> from robustbook.models import load_model
    >>> test = load_dataset("digits", "test")
    >>> first, second = test.subset(range(50)), test.subset(range(50, 200))
    >>> pair = pair_by_features(load_model("digits-cnn-s0"), first, second)
    >>> len(pair[0]), torch.equal(pair[0].labels, pair[1].labels)
    (50, True)
    """
    check_count("batch_size", batch_size)
    for name, sample in (("first", first), ("second", second)):
        if not isinstance(sample, Dataset):
            raise TypeError(
                f"{name}: expected a Dataset, got {type(sample).__name__}; scenes and "
                "photographs have a method dataset()"
            )
        dtype = sample.images.dtype
        if not (dtype.is_floating_point or dtype == torch.uint8):
            raise TypeError(
                f"{name}: expected images in floating point or uint8, got {dtype}; "
                "convert them"
            )

    def features(images: Tensor) -> Tensor:
        scale = 255 if images.dtype == torch.uint8 else 1
        parts = torch.split(images, batch_size)
        return torch.cat([features_of(model, part / scale) for part in parts])

    index, nearest = pair_nearest(
        features(first.images),
        features(second.images),
        labels=first.labels,
        shifted_labels=second.labels,
    )
    return first.subset(index), second.subset(nearest)
