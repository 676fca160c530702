"""How long the estimates of average-case robustness take, for one image."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from torch import Tensor, nn
from tqdm import tqdm

from robustbook.average_case import mmse, monte_carlo, softmax_proxy, taylor
from robustbook.datasets import load_dataset
from robustbook.experiments._rows import Row
from robustbook.experiments.agreement_speed import one_thread
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import load_model
from robustbook.results import write_results

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
        _Case("cifar10-resnet20", "cifar10", "test1000", 1, 1_000, 100, 1),
    ),
}


def average_case_speed(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "cpu",
    directory: Path | None = None,
    name: str = "average_case_speed",
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
    directory : Path, optional
        Where to store the rows.
    name : str
        Under which name.

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
    started = datetime.now(UTC)
    rows: list[Row] = []
    sums: dict[str, str] = {}
    with one_thread():
        for case in tqdm(_PLANS[profile], desc="average_case_speed", disable=None):
            data = load_dataset(case.dataset, case.split).subset(slice(case.images))
            model = load_model(case.model).eval()
            sums[case.model] = model_sha256(model)
            sums[f"{case.dataset} {case.split} {case.images}"] = data_sha256(data)
            for way, size in WAYS.items():
                images = data.images if way == "batched" else data.images[:1]
                rows += _time(case, model, images, way, size, seed)
    if directory is not None:
        write_results(
            name,
            rows,
            experiment=name,
            profile=profile,
            seed=seed,
            device="cpu",
            modules=["robustbook.average_case"],
            started=started,
            data_sha256=sums,
            directory=directory,
        )
    return rows


def _time(
    case: _Case, model: nn.Module, images: Tensor, way: str, size: int | None, seed: int
) -> list[Row]:
    samples = case.samples if way == "batched" else case.serial_samples
    softmax_proxy(model, images, batch_size=size)
    tasks: list[tuple[str, int | None, int | None, Callable[[], object]]] = [
        (
            "monte_carlo",
            PAPER_SAMPLES,
            samples,
            lambda: monte_carlo(
                model, images, SIGMA, samples=samples, seed=seed, batch_size=size
            ),
        ),
        ("softmax", None, None, lambda: softmax_proxy(model, images, batch_size=size)),
    ]
    for cdf, ending in (("mvn", ""), ("mv_sigmoid", "_mvs")):
        tasks.append(
            (
                f"taylor{ending}",
                None,
                None,
                lambda cdf=cdf: taylor(  # type: ignore[misc]
                    model, images, SIGMA, cdf=cdf, batch_size=size
                ),
            )
        )
        for count in FITS if case.repeat > 1 else FITS[:3]:
            tasks.append(
                (
                    f"mmse{ending}",
                    count,
                    count,
                    lambda cdf=cdf, count=count: mmse(  # type: ignore[misc]
                        model, images, SIGMA,
                        samples=count, cdf=cdf, seed=seed, batch_size=size,
                    ),
                )
            )  # fmt: skip
    rows: list[Row] = []
    for estimator, stated, measured, action in tasks:
        repeat = 1 if estimator == "monte_carlo" else case.repeat
        if estimator != "monte_carlo":
            action()  # the first call of a process loads and chooses kernels
        seconds = min(_processor_time(action) for _ in range(repeat)) / len(images)
        if stated is not None and measured is not None:
            seconds *= stated / measured
        rows.append(
            {
                "model": case.model,
                "way": way,
                "estimator": estimator,
                "samples": stated,
                "measured_samples": measured,
                "images": len(images),
                "sigma": SIGMA,
                "threads": 1,
                "seconds": seconds,
            }
        )
    return rows


def _processor_time(action: Callable[[], object]) -> float:
    """Of this process: others on the machine do not count."""
    start = time.process_time()
    action()
    return time.process_time() - start
