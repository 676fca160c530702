"""Names of networks that several studies measure."""

from collections.abc import Sequence
from typing import Final

#: Ends of the names of plain networks, and of those with a gradient-norm penalty.
PENALTIES: Final = ("", "-grad1e-4", "-grad1e-3", "-grad1e-2", "-grad1e-1", "-grad1")
#: Public networks for CIFAR-10.
CIFAR10: Final = tuple(
    f"cifar10-{name}"
    for name in (
        "captum_lenet", "cnn_a_adv", "cnn_a_adv4", "cnn_a_adv_alt", "cnn_a_mix",
        "cnn_a_mix4", "conv_small_pgd", "marabou_large", "marabou_medium",
        "marabou_small", "oval_wide_kw", "resnet2b_adv", "resnet4b_adv", "resnet20",
        "resnet32", "resnet56",
    )
)  # fmt: skip


def trainings(stem: str, seeds: int, kinds: Sequence[str] = PENALTIES) -> list[str]:
    """Names of the first trainings of each kind of a network."""
    return [f"{stem}{kind}-s{seed}" for kind in kinds for seed in range(seeds)]


#: A network of 92 %, without a penalty and with the paper's three.
BLOCKS: Final = tuple(trainings("cifar10-blocks", 2, PENALTIES[:4]))
