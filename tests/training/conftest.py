"""What the tests of training share: small data, and weights compared to the bit."""

import pytest
import torch

from robustbook.datasets import load_dataset


@pytest.fixture(scope="session")
def small():
    return load_dataset("digits", "train").subset(range(300))


@pytest.fixture(scope="session")
def same_weights():
    def same(first, second):
        theirs = second.state_dict()
        return all(torch.equal(v, theirs[k]) for k, v in first.state_dict().items())

    return same
