"""How long the estimates of average-case robustness take, for one image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from torch import Tensor, nn

from robustbook.average_case import mmse, monte_carlo, taylor
from robustbook.average_case.parts import softmax_proxy
from robustbook.models import load_model
from robustbook.studies.agreement_speed import shortest
from robustbook.studies.run import Row, Run, Setting, one_thread

SIGMA: Final = 0.1
#: Noisy inputs of the paper's gold standard.
PAPER_SAMPLES: Final = 10_000
#: Of its MMSE.
FITS: Final = (1, 5, 10, 25, 50, 100)
#: Inputs that the model gets at once.
WAYS: Final = {"serial": 1, "batched": 1024}


@dataclass(frozen=True, kw_only=True)
class SpeedSetting(Setting):
    """A network, the images of the batched runs, and noisy inputs that are timed."""

    models: tuple[str]
    samples: int
    #: Noisy inputs of MMSE.
    fits: tuple[int, ...]
    #: Noisy inputs of each image in batched runs, and of the one in serial runs.
    batched: int
    serial: int
    repeat: int


SETTINGS: Final = {
    "quick": (
        SpeedSetting(
            dataset="digits", models=("digits-cnn-s0",), samples=4, fits=(1, 5),
            batched=500, serial=50, repeat=1,
        ),
    ),
    "full": (
        SpeedSetting(
            dataset="mnist", models=("mnist-conv_small_nat",), samples=20, fits=FITS,
            batched=10_000, serial=2_000, repeat=3,
        ),
        SpeedSetting(
            dataset="cifar10", split="test1000", models=("cifar10-resnet4b_adv",),
            samples=10, fits=FITS, batched=5_000, serial=1_000, repeat=3,
        ),
        SpeedSetting(
            dataset="cifar10", split="test1000", models=("cifar10-blocks-s0",),
            samples=20, fits=FITS, batched=10_000, serial=10_000, repeat=1,
        ),
    ),
}  # fmt: skip


def rows(run: Run[SpeedSetting]) -> Iterator[Row]:
    """Time every estimate on a single thread of the CPU, wherever the run is.

    One row for each model, ``way`` ("serial": the model gets one input at a time;
    "batched"), ``estimator`` and number of noisy inputs ``samples``, with the processor
    time of one image in ``seconds``, the shortest of some runs.

    Average-case paper, Tables 1 and 3. Monte Carlo's time grows in proportion to its
    samples: on some networks it is measured with fewer of them and stated for 10 000.
    Chapter 19 of this book.
    """
    for setting, name in run.each_model():
        images = setting.data().images
        model = load_model(name).eval()
        for way in WAYS:
            shown = images if way == "batched" else images[:1]
            with one_thread():
                yield from _time(setting, model, shown, way, run.seed)


def _time(
    setting: SpeedSetting, model: nn.Module, images: Tensor, way: str, seed: int
) -> Iterator[Row]:
    samples = setting.batched if way == "batched" else setting.serial
    options: dict[str, Any] = {"batch_size": WAYS[way]}
    problem = (model, images, SIGMA)
    # Estimators, their numbers of noisy inputs, and what to time.
    tasks: list[tuple[str, int | None, Callable[[], object]]] = [
        ("monte_carlo", samples,
         partial(monte_carlo, *problem, samples=samples, seed=seed, **options)),
        ("taylor", None, partial(taylor, *problem, cdf="mvn", **options)),
        ("taylor_mvs", None, partial(taylor, *problem, cdf="mv_sigmoid", **options)),
        *((name, fits,
           partial(mmse, *problem, samples=fits, seed=seed, **{**options, "cdf": cdf}))
          for name, cdf in (("mmse", "mvn"), ("mmse_mvs", "mv_sigmoid"))
          for fits in setting.fits),
        ("softmax", None, partial(softmax_proxy, model, images, **options)),
    ]  # fmt: skip
    for estimator, count, action in tasks:
        sampled = estimator == "monte_carlo"
        if not sampled:
            action()  # the first call of a process loads and chooses kernels
        repeat = 1 if sampled else setting.repeat
        # Of this process: others on the machine do not count.
        seconds = shortest(action, repeat, time.process_time) / len(images)
        yield {
            "model": setting.models[0],
            "way": way,
            "estimator": estimator,
            "samples": PAPER_SAMPLES if sampled else count,
            "images": len(images),
            "sigma": SIGMA,
            "seconds": seconds * PAPER_SAMPLES / samples if sampled else seconds,
        }
