"""Load a model, forecast the time of its report, measure it, write the page."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._checks.models import (
    check_differentiable,
    check_model_logits,
    model_dtype,
)
from robustbook._store.cache import cached_arrays, earlier_work
from robustbook.lenses import (
    FEWEST,
    ThreeLenses,
    cache_key,
    compute_logits,
    three_lenses,
)
from robustbook.models import load_model
from robustbook.report._data import Images, read_images
from robustbook.report._page import Report, image_scores, write_files
from robustbook.report._pilot import (
    BATCH_SIZE,
    in_words,
    largest_draw,
    lens_seconds,
    time_lenses,
)
from robustbook.report._request import Request


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
    images = request.draw(pool)
    model = load_fitting(request, images)
    source = request.calibration_images(pool, len(images))
    if source is not None:
        check_fit(model, source, request.model)
    with blame(request.model), earlier_work() as earlier:
        count, margin_images = _plan(request, model, images, started)
        if earlier.files:
            _say(f"continuing an earlier run of this command, on {count} images")
        images = pool.draw(count, seed=request.seed)
        lenses = measure(request, model, images, margin_images, progress=True)
        source = request.calibration_images(pool, count)
        calibrated_on = None
        if lenses.agreements and source is not None:
            pixels = sample(model, source, len(source))
            logits = compute_logits(model, pixels, BATCH_SIZE, pixels.device)
            if request.calibrate is not None or bool((logits != logits[:, :1]).any()):
                calibrated_on = logits, source.labels
    positions, device = images.positions.tolist(), request.torch_device
    page = Report(
        lenses,
        images=images.images,
        positions=positions,
        model=request.model,
        data=images.name,
        date=datetime.now(UTC).date().isoformat(),
        device=torch.cuda.get_device_name(device) if "cuda" in device else device,
        seconds=time.monotonic() - started + earlier.seconds,
        calibrated_on=calibrated_on,
        calibration_data=source.name if source else None,
    )
    files = {request.out: page.html}
    if request.numbers is not None:
        content = {**page.numbers, "per_image": image_scores(lenses, positions)}
        files[request.numbers] = json.dumps(content, allow_nan=False) + "\n"
    write_files(files)
    return page.seconds or 0.0


def _say(text: str) -> None:
    print(f"robustbook: {text}", file=sys.stderr)


def load_fitting(request: Request, images: Images) -> nn.Module:
    """Load the model, and refuse one that does not fit the images."""
    model = load_model(request.model, device=request.torch_device)
    check_fit(model, images, request.model)
    return model


def measure(
    request: Request,
    model: nn.Module,
    images: Images,
    margin_images: int,
    *,
    progress: bool = False,
) -> ThreeLenses:
    """Measure the lenses that were asked for; each finished measure is kept."""
    return three_lenses(
        model,
        images.images,
        images.labels,
        **vars(request.settings),
        skip=request.skip,
        margin_images=margin_images,
        batch_size=BATCH_SIZE,
        progress=progress,
        resume=True,
    )


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


def _plan(
    request: Request, model: nn.Module, images: Images, started: float
) -> tuple[int, int]:
    """Return how many images and input margins to measure.

    They are kept in the cache, since a run that continues has to measure the same ones,
    although its pilot would take another time.
    """
    pixels, settings = sample(model, images, BATCH_SIZE), request.settings

    def pilot() -> dict[str, Any]:
        times = time_lenses(model, pixels, settings, request.lenses)
        spent = time.monotonic() - started
        return {"draw": np.array(_fitting(request, times, len(images), spent))}

    logits = compute_logits(model, pixels, BATCH_SIZE, pixels.device)
    key = cache_key(model, settings, request.torch_device, images.images, logits)
    options = request.lenses, request.minutes, request.margin_images
    key = {**key, "plan": json.dumps(options)}
    count, margin_images = cached_arrays(key, pilot, code=__name__)["draw"].tolist()
    return count, margin_images


def _fitting(
    request: Request, times: dict[str, float], available: int, spent: float
) -> tuple[int, int]:
    """Choose how many images and input margins to measure; print the forecast."""
    # A tenth is left for the rest: drawing, the search for agreement, the page.
    limit = 54 * request.minutes - spent if request.minutes is not None else math.inf
    draw = largest_draw(times, available, request.margin_images, limit)
    if draw is None:
        fewest = lens_seconds(times, FEWEST, min(request.margin_images, FEWEST // 2))
        raise ValueError(
            f"--minutes: expected more than {request.minutes:g}: {FEWEST} images, the "
            f"fewest, take about {in_words(spent + sum(fewest.values()))}; leave out a "
            "lens with --skip"
        )
    seconds = lens_seconds(times, *draw)
    total, advice = sum(seconds.values()), ""
    if request.minutes is not None:
        # Half the 95 % interval of a share of one half, in percentage points.
        half = 98 / math.sqrt(draw[0])
        advice = f"; shares are known to ± {half:.0f} percentage points or better"
    elif total > 600:
        advice = "; --minutes 10 takes fewer images, --skip leaves out a lens"
    names = {"margins": f"{draw[1]} input margins"}
    parts = (f"{names.get(x, x)} {in_words(cost)}" for x, cost in seconds.items())
    _say(
        f"about {in_words(total)} for {draw[0]} images ({', '.join(parts)}){advice}; "
        "after an interruption, the same command continues"
    )
    return draw


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
