"""How long the estimates of average-case robustness take, for one image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.average_case import mmse, monte_carlo, taylor
from robustbook.average_case.parts import softmax_proxy
from robustbook.models import load_model
from robustbook.studies.agreement_speed import timed
from robustbook.studies.run import Row, Run, Setting, one_thread

SIGMA: Final = 0.1
#: Noisy inputs of the paper's gold standard.
PAPER_SAMPLES: Final = 10_000
#: Noisy inputs of its MMSE.
FITS: Final = (1, 5, 10, 25, 50, 100)
#: Inputs that the model gets at once.
WAYS: Final = {"serial": 1, "batched": 1024}


@dataclass(frozen=True, kw_only=True)
class SpeedSetting(Setting):
    """A network, the images of all batched runs, and noisy inputs that are timed."""

    models: tuple[str]
    samples: int
    #: Noisy inputs of MMSE, and of Monte Carlo.
    fits: tuple[int, ...]
    noisy: int = PAPER_SAMPLES
    #: Runs, each on images of its own: one of them, where they are serial.
    runs: int = 5


SETTINGS: Final = {
    "quick": (
        SpeedSetting(
            dataset="digits", models=("digits-cnn-s0",), samples=4, fits=(1, 5),
            noisy=500, runs=2,
        ),
    ),
    "full": (
        SpeedSetting(
            dataset="mnist", models=("mnist-conv_small_nat",), samples=20, fits=FITS,
        ),
        *(
            SpeedSetting(
                dataset="cifar10", split="test1000", models=(name,), samples=10,
                fits=FITS,
            )
            for name in ("cifar10-resnet4b_adv", "cifar10-blocks-s0")
        ),
    ),
}  # fmt: skip


def rows(run: Run[SpeedSetting]) -> Iterator[Row]:
    """Time every estimate on a single thread of the CPU, wherever the run is.

    One row for each model, ``way`` ("serial": the model gets one input at a time;
    "batched"), ``estimator`` and number of noisy inputs ``samples``, with the processor
    time of one image in ``seconds``: the mean of ``runs``, the fastest and the slowest
    (``_low``, ``_high``), each on other images, on ``images`` at once.

    Average-case paper, Tables 1 and 3. In the quick profile Monte Carlo's time is
    measured with fewer samples, in proportion to which it grows. Chapters 19 and 34.
    """
    for setting, name in run.each_model():
        images = setting.data().images
        model = load_model(name).eval()
        for way in WAYS:
            each = 1 if way == "serial" else len(images) // setting.runs
            parts = torch.split(images[: each * setting.runs], each)
            with one_thread():
                yield from _time(setting, model, parts, way, run.seed)


def _time(
    setting: SpeedSetting,
    model: nn.Module,
    parts: Sequence[Tensor],
    way: str,
    seed: int,
) -> Iterator[Row]:
    options: dict[str, Any] = {"batch_size": WAYS[way]}
    noise: dict[str, Any] = {**options, "seed": seed}
    noisy: Any = {"samples": setting.noisy, **noise}
    # Estimators, their numbers of noisy inputs, and what to time.
    tasks: list[tuple[str, int | None, Callable[..., object]]] = [
        ("monte_carlo", PAPER_SAMPLES, partial(monte_carlo, **noisy)),
        ("taylor", None, partial(taylor, cdf="mvn", **options)),
        ("taylor_mvs", None, partial(taylor, cdf="mv_sigmoid", **options)),
        *((name, fits, partial(mmse, samples=fits, **{**noise, "cdf": cdf}))
          for name, cdf in (("mmse", "mvn"), ("mmse_mvs", "mv_sigmoid"))
          for fits in setting.fits),
        ("softmax", None, lambda m, x, _: softmax_proxy(m, x, **options)),
    ]  # fmt: skip
    for estimator, count, estimate in tasks:
        runs, each = [partial(estimate, model, x, SIGMA) for x in parts], len(parts[0])
        sampled = estimator == "monte_carlo"
        share = PAPER_SAMPLES / setting.noisy if sampled else 1.0
        # The first call of a process loads and chooses kernels.
        runs[0](**({"samples": max(2, WAYS[way])} if sampled else {}))
        yield {
            "model": setting.models[0],
            "way": way,
            "estimator": estimator,
            "samples": count,
            "images": each,
            "sigma": SIGMA,
            **timed(runs, share / each),
        }
