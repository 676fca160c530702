"""Errors of networks under the fifteen common corruptions, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from robustbook._store.cache import Arrays
from robustbook.corruptions import (
    ALEXNET,
    CORRUPTIONS,
    FAMILIES,
    corrupt,
    mean_corruption_error,
)
from robustbook.models import logits_of
from robustbook.studies._networks import CIFAR10, trainings
from robustbook.studies._statistics import (
    Values,
    bootstrap_weights,
    interval_row,
    middle_95,
)
from robustbook.studies.run import Row, Run, Setting, decimals


@dataclass(frozen=True, kw_only=True)
class CorruptionSetting(Setting):
    """Networks, images, and the errors of a baseline, if the field has one."""

    baseline: Mapping[str, float] | None = None


_DIGITS: Final = (
    *("digits-linear-s0", "digits-cnn-s0", "digits-cnn-noise-s0"),
    *("digits-cnn-adv-s0", "digits-cnn-grad1e-1-s0"),
)
SETTINGS: Final = {
    "full": (
        CorruptionSetting(dataset="digits", models=_DIGITS),
        CorruptionSetting(
            dataset="cifar10", split="test1000",
            models=[
                *trainings("cifar10-cnn", 2), "cifar10-preact-adv-s0", *CIFAR10,
            ],
        ),
        CorruptionSetting(
            dataset="imagenet-nips2017", split="test200",
            models=["imagenet:efficientnet-lite0"], baseline=ALEXNET,
        ),
    ),
    "quick": (CorruptionSetting(dataset="digits", samples=100, models=_DIGITS),),
}  # fmt: skip

_CLEAN: Final = "clean"
_SEVERITIES: Final = range(1, 6)
#: Resamples of the images for intervals.
_DRAWS: Final = {"full": 2000, "quick": 200}


def parts(run: Run[CorruptionSetting]) -> Iterator[tuple[str]]:
    """Each kind of corruption, for all networks."""
    yield from ((kind,) for kind in (_CLEAN, *CORRUPTIONS))


def measure(run: Run[CorruptionSetting], kind: str) -> Iterator[Row]:
    """Measure the errors of all networks under a kind of corruption.

    ``what="error"``: a ``network`` of a ``dataset`` under a ``kind`` ("clean" is one):
    its ``error``, the mean of ``error_1`` to ``error_5`` by severity.
    """
    for network, wrong in _wrong_answers(run, kind).items():
        row: Row = {"what": "error", "dataset": run.data.name, "network": network}
        row |= {"kind": kind, "error": decimals(wrong.mean(), 4)}
        if kind != _CLEAN:
            errors = wrong.mean(axis=1)
            row |= {f"error_{s}": decimals(errors[s - 1], 4) for s in _SEVERITIES}
        yield row


def summary(run: Run[CorruptionSetting]) -> Iterator[Row]:
    """Put the errors of each network together.

    ``what="network"``: for each ``network`` its ``clean`` error, the ``mce`` by
    :func:`robustbook.corruptions.mean_corruption_error` (to the baseline where there is
    one), and the mean error in each family of corruptions. Their 95 % intervals are
    those of a bootstrap over the images.
    """
    setting, count = run.setting, len(run.data)
    generator = np.random.default_rng([run.seed, 0])
    draws = bootstrap_weights(count, _DRAWS[run.profile], generator)
    found = {kind: _wrong_answers(run, kind) for kind in (_CLEAN, *CORRUPTIONS)}
    for network in setting.models:
        # All are linear in the shares of images, so each is a mean over images.
        clean = found[_CLEAN][network][0].astype(np.float64)
        each = {kind: found[kind][network].mean(axis=0) for kind in CORRUPTIONS}
        errors = {kind: float(wrong.mean()) for kind, wrong in each.items()}
        base = setting.baseline or {}
        mce = np.mean([each[k] / base.get(k, 1.0) for k in CORRUPTIONS], axis=0)
        of_all: dict[str, Values] = {
            "clean": clean,
            "mce": mce,
            **{f: np.mean([each[k] for k in ks], axis=0) for f, ks in FAMILIES.items()},
        }
        published = mean_corruption_error(errors, baseline=setting.baseline)
        if abs(published - mce.mean()) > 1e-9:
            raise RuntimeError(f"mCE of {network}: {published}, not {mce.mean()}")
        row: Row = {"what": "network", "dataset": run.data.name, "network": network}
        for name, values in of_all.items():
            low, high = middle_95(draws @ values / count)
            ends = decimals(low, 4), decimals(high, 4)
            row |= interval_row(name, decimals(values.mean(), 4), ends)
        yield row


def _wrong_answers(run: Run[CorruptionSetting], kind: str) -> Arrays:
    """Whether networks are wrong, bool (5, N) by severity; (1, N) on clean images."""
    data = run.data

    def compute() -> Arrays:
        networks = {name: run.model(name) for name in run.setting.models}
        wrong: dict[str, list[Values]] = {name: [] for name in networks}
        for severity in (1,) if kind == _CLEAN else _SEVERITIES:
            images = data.images
            if kind != _CLEAN:
                images = corrupt(images, kind, severity=severity, seed=run.seed)
            for name, network in networks.items():
                answers = logits_of(network, images, batch_size=50).argmax(dim=1)
                wrong[name].append((answers != data.labels).numpy())
        return {name: np.stack(rows) for name, rows in wrong.items()}

    return run.arrays(
        "wrong answers",
        compute,
        code=__name__,
        networks=run.setting.models,
        data=data,
        kind=kind,
    )
