"""Load a model, measure it so that an interrupted run can go on, write the page."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._checks.models import (
    check_differentiable,
    check_model_logits,
    model_dtype,
)
from robustbook._store.cache import cache_directory, cached_arrays, earlier_work
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.lenses import (
    FEWEST,
    Settings,
    Tensors,
    ThreeLenses,
    compute_logits,
    measure_lenses,
)
from robustbook.models import load_model
from robustbook.report._data import Images, read_images
from robustbook.report._page import Report, image_scores, versions, write_files
from robustbook.report._pilot import Forecast, in_words, time_lenses
from robustbook.report._request import Request

#: Results of interrupted runs are kept for a month, in seconds.
_KEPT: Final = 30 * 24 * 3600.0


def make(request: Request) -> float:
    """Measure a model, write its page, and return the seconds of the measurement.

    A model or images that cannot be used are a TypeError or ValueError, a model that
    fails during the measurement a RuntimeError, a file that cannot be written an
    OSError.
    """
    assert request.out is not None
    started = time.monotonic()
    pool = read_images(request.data)
    if pool.labels is None and pool.others:
        _say(
            f"{pool.name}: no array is named labels (but {', '.join(pool.others)}); "
            "measured without labels"
        )
    run = Run(request, request.draw(pool), request.settings(use_training=True))
    source = request.calibration_images(pool, len(run.images))
    if source is not None:
        check_fit(run.model, source, request.model)
    with earlier_work() as earlier, blame(request.model):
        forecast = _forecast(run, started)
        margin_images, batch_size = forecast.margin_images, forecast.batch_size
        images = pool.draw(forecast.images, seed=request.seed)
        if earlier.files:
            _say("continuing with the results of an interrupted run")
        lenses = run.measure(images, margin_images, batch_size, progress=True)
        source = request.calibration_images(pool, len(images))
        calibrated_on = None
        if lenses.agreements and source is not None:
            logits = run.logits(source.images, batch_size)
            if request.calibrate is not None or bool((logits != logits[:, :1]).any()):
                calibrated_on = logits, source.labels
    positions = images.positions.tolist()
    on_cuda = "cuda" in run.device
    page = Report(
        lenses,
        images=images.images,
        positions=positions,
        model=request.model,
        data=images.name,
        date=datetime.now(UTC).date().isoformat(),
        device=torch.cuda.get_device_name(run.device) if on_cuda else run.device,
        seconds=time.monotonic() - started + earlier.seconds,
        calibrated_on=calibrated_on,
        calibration_data=source.name if source else None,
    )
    files = {request.out: page.html}
    if request.numbers is not None:
        content = {**page.numbers, "per_image": image_scores(lenses, positions)}
        files[request.numbers] = json.dumps(content, allow_nan=False) + "\n"
    write_files(files)
    shutil.rmtree(run.folder, ignore_errors=True)
    return page.seconds or 0.0


def _say(text: str) -> None:
    print(f"robustbook: {text}", file=sys.stderr)


class Run:
    """A model with its settings, and a folder that keeps the results of each batch.

    The same model, images and options have the same folder. Models are compared by
    their name, code and parameters, and by their logits on some of the images.
    """

    def __init__(self, request: Request, images: Images, settings: Settings) -> None:
        self.request, self.settings = request, settings
        self.images, self.device = images, request.torch_device
        self.model = load_model(request.model, device=self.device).eval()
        check_fit(self.model, images, request.model)

    @cached_property
    def folder(self) -> Path:
        """The folder of the results so far; those of old runs are removed."""
        tensors = self.images.images, self.logits(self.images.images[:16], 16)
        request = replace(self.request, out=None, numbers=None, device=self.device)
        sums = [model_sum(self.model), *map(tensor_sum, tensors)]
        parts = [asdict(request), vars(self.settings), versions(), sums]
        key = json.dumps(parts, sort_keys=True)
        reports = cache_directory() / "reports"
        for path in reports.glob("*"):
            if time.time() - path.stat().st_mtime > _KEPT:
                shutil.rmtree(path, ignore_errors=True)
        return reports / hashlib.sha256(key.encode()).hexdigest()[:32]

    def kept(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Read arrays from the folder, or compute and keep them."""
        key = {"name": name}
        return cached_arrays(key, compute, code=__name__, directory=self.folder)

    def measure(
        self,
        images: Images,
        margin_images: int,
        batch_size: int,
        *,
        progress: bool = False,
    ) -> ThreeLenses:
        """Measure the lenses that were asked for, with what is known already."""

        def store(name: str, rows: Tensor, compute: Callable[[], Tensors]) -> Tensors:
            arrays = self.kept(
                f"{name} {tensor_sum(rows)}",
                lambda: {key: tensor.numpy() for key, tensor in compute().items()},
            )
            return {key: torch.from_numpy(np.asarray(a)) for key, a in arrays.items()}

        return measure_lenses(
            self.model,
            images.images,
            images.labels,
            self.settings,
            skip=tuple(self.request.skip),
            margin_images=margin_images,
            batch_size=batch_size,
            store=store,
            progress=progress,
        )

    def logits(self, pixels: Tensor, batch_size: int) -> Tensor:
        """Return the model's logits, batch by batch."""
        device = torch.device(self.device)
        pixels = pixels.to(model_dtype(self.model) or torch.float32)
        return compute_logits(self.model, pixels, batch_size, device)


def check_fit(model: nn.Module, images: Images, name: str) -> None:
    """Evaluate the model on two images; refuse what attacks could not use."""
    pixels = sample(model, images, 2).requires_grad_()
    try:
        # A copy, since some models change their input.
        output = model(pixels.clone())
    except (Exception, SystemExit) as error:
        # A model of the user's may raise anything.
        shape = "x".join(map(str, pixels.shape[1:]))
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{name}: images of {shape}, as {images.name} has them, do not fit this "
            f"model ({type(error).__name__}: {reason})"
        ) from error
    try:
        logits = check_model_logits(output, len(pixels))
        check_differentiable(logits)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    classes, conflict = logits.shape[1], ""
    if images.num_classes is not None and classes != images.num_classes:
        conflict = f"{images.name} has {images.num_classes}"
    elif images.labels is not None and int(images.labels.max()) >= classes:
        conflict = f"a label of {images.name} is {int(images.labels.max())}"
    if conflict:
        raise ValueError(f"{name}: {classes} classes, but {conflict}")


def sample(model: nn.Module, images: Images, count: int) -> Tensor:
    """Return the first images, where the model is and in its dtype."""
    parameter = next(model.parameters(), torch.empty(0))
    dtype = model_dtype(model) or torch.float32
    return images.images[:count].to(device=parameter.device, dtype=dtype)


def _forecast(run: Run, started: float) -> Forecast:
    """Run the pilot, print the forecast, and choose how many images to measure.

    The times are kept with the results: the batches of a run that continues have to be
    the same.
    """
    request, count = run.request, len(run.images)

    def timed() -> dict[str, Any]:
        few = sample(run.model, run.images, 256)
        times = time_lenses(run.model, few, run.settings, request.lenses)
        times["spent"] = time.monotonic() - started
        return {name: np.array(seconds) for name, seconds in times.items()}

    arrays = run.kept(f"times on {run.device}", timed)
    times = {name: float(seconds) for name, seconds in arrays.items()}
    spent = times.pop("spent")
    forecast = Forecast(times, count, min(request.margin_images, count))
    if request.minutes is not None:
        # A tenth is left for the rest: drawing, the search for agreement, the page.
        fitting = forecast.fitting(54 * request.minutes - spent, fewest=FEWEST)
        if fitting is None:
            least = in_words(spent + sum(forecast.seconds(FEWEST).values()))
            raise ValueError(
                f"--minutes: expected more than {request.minutes:g}: {FEWEST} images, "
                f"the fewest, take about {least}; leave out a lens with --skip"
            )
        count = fitting
        margins = f", {forecast.margins(count)} input margins" * ("margins" in times)
        # Half the 95 % interval of a share of one half, in percentage points.
        half = 98 / float(np.sqrt(count))
        _say(
            f"--minutes {request.minutes:g}: {count} images fit{margins}; shares are "
            f"known to ± {half:.0f} percentage points or better"
        )
    seconds = forecast.seconds(count)
    parts = ", ".join(f"{lens} {in_words(one)}" for lens, one in seconds.items())
    total, advice = sum(seconds.values()), ""
    if total > 600 and request.minutes is None:
        advice = "; --minutes 10 takes fewer images, --skip leaves out a lens"
    _say(
        f"about {in_words(total)} for {count} images ({parts}){advice}; after an "
        "interruption, the same command continues"
    )
    return replace(forecast, images=count, margin_images=forecast.margins(count))


@contextmanager
def blame(model: str) -> Iterator[None]:
    """Name the model in an error that it raises during the measurement."""
    try:
        yield
    except (ImportError, OSError, TypeError, ValueError, Warning):
        raise
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__} "
        raise RuntimeError(f"{model}: {kind}while it was measured: {error}") from error
