"""Ends of classes of a thousand images, as the average-case paper takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from robustbook.studies._run import Row, Run
from robustbook.studies.average_case import average_case_bias
from robustbook.studies.average_case._extremes import Ends
from robustbook.studies.average_case.average_case_bias import SurvivalSetting

SETTINGS: Final = {
    "quick": (
        SurvivalSetting(
            dataset="digits", models=("digits-cnn-s2",), sigmas=(0.1, 0.2), draws=12,
            fitted=("digits-cnn-s2",), fits=3, separated=("digits-cnn-s2",),
            ends=Ends(images=8, folds=2, repeats=1), pictured=(1,),
        ),
    ),
    "full": (
        SurvivalSetting(
            dataset="mnist", models=("mnist-cnn-s0",), sigmas=(0.2, 0.4), draws=16,
            separated=("mnist-cnn-s0",), pictured=(4,),
        ),
        SurvivalSetting(
            dataset="fashion-mnist", models=("fashion-mnist-cnn-s0",),
            sigmas=(0.1, 0.2), draws=16, separated=("fashion-mnist-cnn-s0",),
            pictured=(6,),
        ),
        SurvivalSetting(
            dataset="cifar10", split="test1000",
            models=("cifar10-captum_lenet", "cifar10-cnn_a_adv4"), sigmas=(0.05, 0.1),
            draws=60, fitted=("cifar10-captum_lenet", "cifar10-cnn_a_adv4"),
        ),
        SurvivalSetting(
            dataset="mnist", models=("mnist-madry_tiny_adv",), sigmas=(0.2, 0.4),
            draws=16, step=8, fitted=("mnist-madry_tiny_adv",),
        ),
        SurvivalSetting(
            dataset="fashion-mnist", models=("fashion-kw",), sigmas=(0.1, 0.2),
            draws=16, step=8, fitted=("fashion-kw",),
        ),
    ),
}  # fmt: skip


def rows(run: Run[SurvivalSetting]) -> Iterator[Row]:
    """Measure what ``average_case_bias`` does, on all test images of a data set.

    The same rows. On MNIST and FashionMNIST, of which the paper takes 25 of a thousand
    images of a class at either end; and linearized estimates of more networks by class.

    Average-case paper, Figures 4, 11 to 13, Appendix A.4. Chapter 20 of this book.
    """
    return average_case_bias.rows(run)


measure = average_case_bias.measure
