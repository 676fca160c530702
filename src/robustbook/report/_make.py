"""What ``robustbook report`` does: load, forecast, measure, write."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from robustbook._store.cache import cache_directory, cached_arrays, earlier_work
from robustbook._store.sums import model_sum, tensor_sum
from robustbook.lenses import FEWEST, three_lenses
from robustbook.models import load_model
from robustbook.report._data import Images, read_images
from robustbook.report._forecast import Forecast, Pace, in_words, measure_pace
from robustbook.report._page import Report, image_scores, versions, write_files
from robustbook.report._request import IMAGES, Request, check_fit

#: Seconds that what was measured is kept for who goes on with it: a month.
_KEPT: Final = 30 * 24 * 3600.0


def make(request: Request) -> float:
    """Measure a model, write its page, and return the seconds of the measuring.

    What cannot be used is a TypeError or ValueError, a model that fails while it is
    measured a RuntimeError, a file that cannot be written an OSError.
    """
    started = time.monotonic()
    pool = read_images(request.data)
    if pool.labels is None and pool.others:
        names = ", ".join(pool.others)
        _say(
            f"{pool.name}: nothing named labels in it (but {names}); "
            "measured without labels"
        )
    if len(pool) < FEWEST:
        said = f"expected at least {FEWEST}, got {len(pool)}"
        raise ValueError(f"{pool.name}: images: {said}")
    chosen = request.draw(pool)
    device = request.place
    model = load_model(request.model, device=device).eval()
    classes = check_fit(model, chosen, request.model)
    folder = _folder(request, model, chosen)
    eps, sigma = request.settled()
    with earlier_work() as earlier, naming(request.model):
        forecast = _forecast(request, model, chosen, classes, folder, started)
        chosen = pool.draw(forecast.images, seed=request.seed)
        if earlier.files:
            _say("going on from what was measured before it was interrupted")
        lenses = three_lenses(
            model, chosen.images, chosen.labels, eps=eps, sigma=sigma,
            margin_images=forecast.margin_images, batch_size=forecast.part,
            checkpoint=folder, **request.measuring,
        )  # fmt: skip
    seconds = time.monotonic() - started + earlier.seconds
    places, name = chosen.positions.tolist(), device
    if "cuda" in device:
        name = torch.cuda.get_device_name(device)
    page = Report(
        lenses, images=chosen.images, positions=places, model=request.model,
        data=chosen.name, date=datetime.now(UTC).date().isoformat(), device=name,
        seconds=seconds,
    )  # fmt: skip
    assert request.out is not None
    files = {request.out: page.html}
    if request.numbers is not None:
        scores = image_scores(lenses, places)
        numbers = json.dumps({**page.numbers, "per_image": scores}, allow_nan=False)
        files[request.numbers] = numbers + "\n"
    write_files(files)
    shutil.rmtree(folder, ignore_errors=True)
    return seconds


def _say(text: str) -> None:
    print(f"robustbook: {text}", file=sys.stderr)


def _folder(request: Request, model: nn.Module, chosen: Images) -> Path:
    """Where this request keeps what it has measured, until its page is written."""
    asked = asdict(replace(request, out=None, numbers=None))
    key = [asked, versions(), model_sum(model), tensor_sum(chosen.images)]
    text = json.dumps(key, sort_keys=True).encode()
    reports = cache_directory() / "reports"
    drop_old(reports)
    return reports / hashlib.sha256(text).hexdigest()[:32]


def drop_old(folder: Path) -> None:
    """Remove what nobody went on with."""
    for left in folder.glob("*"):
        if time.time() - left.stat().st_mtime > _KEPT:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _forecast(
    request: Request,
    model: nn.Module,
    chosen: Images,
    classes: int,
    folder: Path,
    started: float,
) -> Forecast:
    """Time a few passes, say what the whole takes, and choose how many images.

    The pace is kept with the parts: who goes on has the same images in the same parts.
    """
    parameter = next(model.parameters(), torch.empty(0))
    sample = chosen.images[:16].to(parameter.device)
    if parameter.is_floating_point():
        sample = sample.to(parameter.dtype)

    def timed() -> dict[str, Any]:
        pace = measure_pace(model, sample, severity=request.severity)
        times = asdict(pace) | {"spent": time.monotonic() - started}
        return {name: np.array(value) for name, value in times.items()}

    pace = cached_arrays(
        {"part": "pace", "device": parameter.device.type}, timed,
        code="robustbook.report", directory=folder,
    )  # fmt: skip
    spent = float(pace.pop("spent"))
    count = len(chosen)
    forecast = Forecast(
        Pace(**{name: array.tolist() for name, array in pace.items()}), classes, count,
        min(request.margin_images, count), request.attack_steps, request.noise_samples,
        request.skip,
    )  # fmt: skip
    if request.minutes is not None:
        forecast = _within(forecast, request.minutes, spent)
    lenses = forecast.seconds()
    each = ", ".join(f"{name} {in_words(seconds)}" for name, seconds in lenses.items())
    total = forecast.total()
    advice = ""
    if total > 600 and request.minutes is None:
        costly = max(lenses, key=lambda name: lenses[name])
        advice = f"; --minutes 10 takes fewer images, --skip {costly} leaves that out"
    if forecast.pace.slowest > 1.5:
        each += f"; up to {in_words(total * forecast.pace.slowest)} if the machine "
        each += "stays as busy as it was for a moment"
    _say(
        f"about {in_words(total)} for {forecast.images} images ({each}){advice}; an "
        "interrupted report goes on where it stopped"
    )
    return forecast


def _within(whole: Forecast, minutes: float, spent: float) -> Forecast:
    # A tenth for what no pass is: drawing, writing, the search for agreement.
    forecast = whole.within(54 * minutes - spent, fewest=FEWEST)
    if forecast is None:
        least = in_words(spent + whole.of(FEWEST).total())
        raise ValueError(
            f"--minutes: expected more than {minutes:g}: {FEWEST} images, the fewest, "
            f"take about {least}; leave out a lens with --skip, or take "
            "fewer --noise-samples and --attack-steps"
        )
    count, usual = forecast.images, min(IMAGES, whole.images)
    # Of the 95 % interval of a share of one half, in percentage points.
    half, other = (98 / float(np.sqrt(images)) for images in (count, usual))
    _say(
        f"--minutes {minutes:g}: {count} images fit, {forecast.margin_images} input "
        f"margins; shares are known to ± {half:.0f} percentage points or better (of "
        f"{usual} images: ± {other:.0f})"
    )
    return forecast


@contextmanager
def naming(model: str) -> Iterator[None]:
    """Say whose fault it is what a stranger's model raises after the first images."""
    try:
        yield
    except (ImportError, OSError, TypeError, ValueError, Warning):
        raise
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__} "
        raise RuntimeError(f"{model}: {kind}while it was measured: {error}") from error
