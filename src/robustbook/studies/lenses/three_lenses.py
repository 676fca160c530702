"""Three lenses on the same models, images and shifts: do they see the same?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from robustbook.attacks import pgd
from robustbook.average_case import mmse, monte_carlo
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.lenses import CountedModel
from robustbook.margins import (
    gradient_normalized_margin,
    logit_margin,
    margin_consistency,
)
from robustbook.models import load_model, logits_of
from robustbook.studies._run import Row, Run
from robustbook.studies._statistics import Values, interval_row, mean_row, middle_95
from robustbook.studies.lenses._failures import failure_rows
from robustbook.studies.lenses._models import LensedModel, measure_model
from robustbook.studies.lenses.settings import SETTINGS, LensSetting
from robustbook.studies.margins.columns import (
    difference_row,
    paired_tau_difference,
    share_row,
    tau_row,
)
from robustbook.studies.margins.measured import measure_bounds

__all__ = ["MEASURES", "SETTINGS", "rows"]

#: Resamples of the images for intervals.
_DRAWS: Final = {"full": 1000, "quick": 100}
#: What is compared between models: numbers that grow with robustness.
MEASURES: Final = (
    "accuracy", "pa_adversarial", "pa_noise", "pa_domain", "kept_domain",
    "average_case", "robust_share", "consistency",
)  # fmt: skip
#: Pairs of scores whose order of the samples is compared.
_PAIRS: Final = (
    ("pa_noise", "average_case"), ("pa_noise", "logit_margin"),
    ("pa_noise", "input_margin"), ("average_case", "logit_margin"),
    ("average_case", "input_margin"), ("logit_margin", "input_margin"),
    ("pa_adversarial", "input_margin"), ("pa_adversarial", "logit_margin"),
)  # fmt: skip
#: Images on which passes are counted.
_COUNTED: Final = 20


def rows(run: Run[LensSetting]) -> Iterator[Row]:
    """Measure every model with all three lenses.

    Rows told apart by ``what``: "setting"; "model", one a model, with every measure and
    its error; "rank", how two measures order the models; "relation", how two scores
    order the images of a model; "difference", by how much average-case robustness
    orders contributions better than the logit margin; "foresight", how well a score of
    the clean side foretells failure under a corruption that it did not see, for each
    model and on average; "gain", the difference to the logit margin; "tie", how many
    images weak noise cannot tell apart; "cost".
    """
    setting, draws = run.setting, _DRAWS[run.profile]
    models = {name: measure_model(run, name) for name in run.each(setting.models)}
    count, random = setting.samples, np.random.default_rng([run.seed, 2])
    weights = random.multinomial(count, [1 / count] * count, size=draws).astype(float)
    yield {
        "what": "setting",
        **{field.name: getattr(setting, field.name) for field in fields(LensSetting)
           if field.name not in ("split", "step")},
        "models": len(setting.models),
        "small": ", ".join(f"{sigma:g}" for sigma in setting.small),
        "draws": draws,
    }  # fmt: skip
    for name, model in models.items():
        yield _model_row(name, model, setting)
    yield from _ranks(models, setting, weights)
    for name, model in models.items():
        yield from _relations(name, model)
    yield from failure_rows(models, weights)
    yield from _ties(models)
    yield from _costs(next(iter(models)), setting, run.seed)


def _model_row(name: str, model: LensedModel, setting: LensSetting) -> Row:
    """Every measure of one model, with its standard error or interval."""
    row: Row = {"what": "model", "model": name}
    row |= share_row("accuracy", model.correct)
    for shift, agreement in model.agreements.items():
        row |= {
            f"pa_{shift}": agreement.pa,
            f"pa_{shift}_se": agreement.standard_error,
            f"beta_{shift}": agreement.beta if math.isfinite(agreement.beta) else None,
            f"hard_{shift}": agreement.hard_part,
            f"mismatch_{shift}": agreement.mismatch,
        }
    for name in ("kept_domain", "pa_domain", "average_case"):
        row |= mean_row(name, _of_each(model, name, setting))
    robust = model.robust(setting.eps)
    row |= share_row("robust_share", robust)
    row |= share_row("robust_accuracy", robust & model.correct)
    bounds = model.margins.bounds
    row["input_margin_median"] = float(bounds.median())
    order = margin_consistency(model.scores()["logit_margin"], bounds)
    return row | tau_row("consistency", order)


# --- between models -----------------------------------------------------------


@dataclass(frozen=True)
class _Resampled:
    """One measure of every model: as measured (M,), and on resamples (R, M)."""

    values: Values
    drawn: Values


def _ranks(
    models: dict[str, LensedModel], setting: LensSetting, weights: Values
) -> Iterator[Row]:
    """Kendall's τ of each two measures across models.

    The models stay, the images are drawn anew: the same ones for all models. A mean
    contribution stands for the agreement of a resample: by the envelope theorem the
    change of the best temperature counts to second order only.
    """
    measures = {
        name: _resampled(
            [_of_each(one, name, setting) for one in models.values()], weights
        )
        for name in MEASURES
        if name != "consistency"
    }
    measures["consistency"] = _consistencies(models, weights)
    for first, second in itertools.combinations(MEASURES, 2):
        a, b = measures[first], measures[second]
        tau = kendalltau(a.values, b.values)
        drawn = [
            kendalltau(*pair).statistic for pair in zip(a.drawn, b.drawn, strict=True)
        ]
        yield {
            "what": "rank", "first": first, "second": second, "models": len(models),
            **interval_row("tau", float(tau.statistic), middle_95(np.array(drawn))),
            "p_value": float(tau.pvalue),
        }  # fmt: skip


def _of_each(model: LensedModel, measure: str, setting: LensSetting) -> Values:
    """What is averaged over the images for a measure, shape (N,)."""
    values: dict[str, Tensor] = {
        "accuracy": model.correct,
        "pa_adversarial": model.agreements["adversarial"].per_sample,
        "pa_noise": model.agreements["noise"].per_sample,
        "pa_domain": model.domain(),
        "kept_domain": model.survived().double() / len(CORRUPTIONS),
        "average_case": model.kept,
        "robust_share": model.robust(setting.eps),
    }
    return values[measure].double().numpy()


def _resampled(columns: list[Values], weights: Values) -> _Resampled:
    stacked = np.stack(columns, axis=1)
    drawn = weights @ stacked / len(stacked)
    # Models with equal shares tie, whatever the order of the summation.
    return _Resampled(stacked.mean(axis=0).round(12), drawn.round(12))


def _consistencies(models: dict[str, LensedModel], weights: Values) -> _Resampled:
    """τ of logit and input margins, of each model."""
    count = weights.shape[1]
    picks = [np.repeat(np.arange(count), row.astype(int)) for row in weights]
    values, drawn = [], []
    for one in models.values():
        free = one.scores()["logit_margin"].numpy()
        bounds = one.margins.bounds.numpy()
        values.append(kendalltau(free, bounds).statistic)
        drawn.append([kendalltau(free[p], bounds[p]).statistic for p in picks])
    return _Resampled(np.array(values), np.array(drawn).T)


# --- between images -----------------------------------------------------------


def _relations(name: str, model: LensedModel) -> Iterator[Row]:
    scores = model.scores()
    for first, second in _PAIRS:
        a, b = scores[first], scores[second]
        row: Row = {"what": "relation", "model": name, "first": first, "second": second}
        if bool((a == a[0]).all()) or bool((b == b[0]).all()):
            yield row | interval_row("tau", None, (None, None))
        else:
            yield row | tau_row("tau", margin_consistency(a, b))
    paired = paired_tau_difference(
        scores["average_case"], scores["logit_margin"], scores["pa_noise"]
    )
    yield {"what": "difference", "model": name, **difference_row(*paired)}


def _ties(models: dict[str, LensedModel]) -> Iterator[Row]:
    """Share of images whose probability to survive is 1 in floating point."""
    for sigma in next(iter(models.values())).linearized:
        shares = [
            float((one.linearized[sigma] >= 1 - 1e-15).double().mean())
            for one in models.values()
        ]
        yield {"what": "tie", "sigma": sigma, "share": float(np.mean(shares))}


# --- costs -------------------------------------------------------------------


def _costs(name: str, setting: LensSetting, seed: int) -> Iterator[Row]:
    """Passes per image of each measure, counted on the first model."""
    data = setting.data().subset(slice(_COUNTED))
    counted = CountedModel(load_model(name).eval())
    images, recipe = data.images, setting.models[name]
    noisy = images + setting.sigma * torch.randn(
        images.shape, generator=torch.Generator().manual_seed(seed)
    )

    def attacked() -> None:
        result = pgd(
            counted, images, eps=setting.eps, steps=setting.attack_steps, seed=seed,
            progress=False,
        )  # fmt: skip
        logits_of(counted, result.adversarial)

    def corrupted() -> None:
        for kind in CORRUPTIONS:
            logits_of(counted, corrupt(images, kind, severity=setting.severity))

    tried: dict[str, Callable[[], Any]] = {
        "logit_margin": lambda: logit_margin(logits_of(counted, images)),
        "gradient_margin": lambda: gradient_normalized_margin(counted, images),
        "pa_noise": lambda: logits_of(counted, noisy),
        "pa_domain": corrupted,
        "pa_adversarial": attacked,
        "average_case": lambda: monte_carlo(
            counted, images, setting.sigma, samples=setting.noise_samples, seed=seed
        ),
        "average_case_mmse": lambda: mmse(counted, images, setting.sigma, seed=seed),
        "input_margin": lambda: measure_bounds(counted, images, recipe, seed=seed),
    }
    for lens, measure in tried.items():
        result, passes = counted.count(measure, per=len(images))
        # Agreement needs the clean logits beside the shifted ones.
        forward = passes.forward + lens.startswith("pa_")
        backward = passes.backward
        if lens == "average_case_mmse":
            # The gradients of all classes pass the logits at once.
            backward = float(result.calls.double().mean()) - forward
        yield {
            "what": "cost", "measure": lens, "forward": forward, "backward": backward
        }  # fmt: skip
