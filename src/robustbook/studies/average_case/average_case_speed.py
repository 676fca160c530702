"""How long the estimates of average-case robustness take, for one image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from torch import Tensor, nn
from tqdm import tqdm

from robustbook.average_case import mmse, monte_carlo, softmax_proxy, taylor
from robustbook.models import load_model
from robustbook.studies._rows import Row
from robustbook.studies._sums import first_images, sums_of
from robustbook.studies.agreement_speed import one_thread

__all__ = ["average_case_speed"]

SIGMA: Final = 0.1
#: Noisy inputs of the paper's gold standard.
PAPER_SAMPLES: Final = 10_000
FITS: Final = (1, 5, 10, 25)
#: Inputs that the model gets at once.
WAYS: Final = {"serial": 1, "batched": None}


@dataclass(frozen=True)
class _Case:
    model: str
    dataset: str
    split: str
    #: Images of the batched runs, and the noisy inputs of each that are timed.
    images: int
    samples: int
    #: Noisy inputs of the serial run, on one image.
    serial_samples: int
    repeat: int


_PLANS: Final[dict[str, tuple[_Case, ...]]] = {
    "quick": (_Case("digits-cnn-s0", "digits", "test", 4, 500, 50, 1),),
    "full": (
        _Case("mnist-conv_small_nat", "mnist", "test", 20, 10_000, 2_000, 3),
        _Case("cifar10-resnet4b_adv", "cifar10", "test1000", 10, 5_000, 1_000, 3),
        _Case("cifar10-resnet20", "cifar10", "test1000", 8, 500, 100, 1),
    ),
}


def average_case_speed(
    *, profile: str = "full", seed: int = 0, device: str = "cpu"
) -> list[Row]:
    """Time every estimate on a single thread.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the noise.
    device : str
        Not used: what is timed is a single thread of the CPU.

    Returns
    -------
    list of dict
        One row for each model, ``way`` ("serial": the model gets one input at a time;
        "batched"), ``estimator`` and number of noisy inputs ``samples``, with the
        processor time of one image in ``seconds``, the shortest of some runs.

    Notes
    -----
    Average-case paper, Tables 1 and 3. Monte Carlo's time grows in proportion to its
    samples: it is measured with ``measured_samples`` of them and stated for 10 000.
    Chapter 20 of this book.
    """
    rows: list[Row] = []
    with one_thread():
        for case in tqdm(_PLANS[profile], desc="average_case_speed", disable=None):
            images = first_images(case.dataset, case.split, case.images).images
            model = load_model(case.model).eval()
            for way, size in WAYS.items():
                some = images if way == "batched" else images[:1]
                rows += _time(case, model, some, way, size, seed)
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the images and of the models."""
    sums: dict[str, str] = {}
    for case in _PLANS[profile]:
        model = (case.model, load_model(case.model))
        sums |= sums_of(case.dataset, case.split, case.images, [model])
    return sums


def _time(
    case: _Case, model: nn.Module, images: Tensor, way: str, size: int | None, seed: int
) -> Iterator[Row]:
    samples = case.samples if way == "batched" else case.serial_samples
    softmax_proxy(model, images, batch_size=size)
    for estimator, count, action in _tasks(case, model, images, samples, size, seed):
        sampled = estimator == "monte_carlo"
        if not sampled:
            action()  # the first call of a process loads and chooses kernels
        repeat = 1 if sampled else case.repeat
        seconds = min(_processor_time(action) for _ in range(repeat)) / len(images)
        yield {
            "model": case.model,
            "way": way,
            "estimator": estimator,
            "samples": PAPER_SAMPLES if sampled else count,
            "measured_samples": count,
            "images": len(images),
            "sigma": SIGMA,
            "threads": 1,
            "seconds": seconds * PAPER_SAMPLES / samples if sampled else seconds,
        }


def _tasks(
    case: _Case,
    model: nn.Module,
    images: Tensor,
    samples: int,
    size: int | None,
    seed: int,
) -> Iterator[tuple[str, int | None, Callable[[], object]]]:
    """Estimators, their numbers of noisy inputs, and what to time."""
    shared: dict[str, Any] = {"batch_size": size}
    given = (model, images, SIGMA)
    plain = partial(monte_carlo, *given, samples=samples, seed=seed, **shared)
    yield "monte_carlo", samples, plain
    yield "softmax", None, partial(softmax_proxy, model, images, **shared)
    for cdf, ending in (("mvn", ""), ("mv_sigmoid", "_mvs")):
        shared["cdf"] = cdf
        yield f"taylor{ending}", None, partial(taylor, *given, **shared)
        for count in FITS if case.repeat > 1 else FITS[:3]:
            fit = partial(mmse, *given, samples=count, seed=seed, **shared)
            yield f"mmse{ending}", count, fit


def _processor_time(action: Callable[[], object]) -> float:
    """Of this process: others on the machine do not count."""
    start = time.process_time()
    action()
    return time.process_time() - start
