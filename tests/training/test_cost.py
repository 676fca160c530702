"""What an exact agreement costs beside the epoch that it judges."""

import time

import pytest
import torch

from robustbook.datasets import Dataset
from robustbook.models import build_model
from robustbook.selection import pair_scores
from robustbook.training import ERM, train_domains

#: Images of a training epoch, and pairs of a validation.
EPOCH, PAIRS = 20_000, 20_000


def spent(function):
    """Processor time on one thread: other work on the machine does not count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        began = time.process_time()
        function()
        return time.process_time() - began
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_agreement_costs_less_than_a_twentieth_of_an_epoch(spread):
    torch.manual_seed(0)
    labels = torch.randint(4, (PAIRS,))
    logits = torch.randn(PAIRS, 4) * spread / 2
    logits[torch.arange(PAIRS), labels] += spread
    shifted = logits + torch.randn(PAIRS, 4) * spread / 3
    pair_scores(logits[:100], shifted[:100], labels[:100])
    measuring = min(
        spent(lambda: pair_scores(logits, shifted, labels)) for _ in range(2)
    )

    images = torch.rand(256, 3, 64, 64)
    data = Dataset(images, torch.arange(256) % 4, "made", "train", 4)
    # The smallest network of Part IV, on a fraction of the images of an epoch.
    model = build_model("strided-cnn", seed=0, options={"num_classes": 4})
    options = {"epochs": 1, "lr": 1e-3, "seed": 0, "progress": False}
    train_domains(model, ERM(), [data.subset(range(64))], **options)
    training = spent(lambda: train_domains(model, ERM(), [data], **options))
    assert measuring < 0.05 * training * EPOCH / len(data)
