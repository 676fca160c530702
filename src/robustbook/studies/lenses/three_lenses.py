"""Three lenses on the same models, images and shifts: do they see the same?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch

from robustbook.attacks import pgd
from robustbook.average_case import mmse, monte_carlo
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.lenses import CountedModel
from robustbook.margins import gradient_normalized_margin, logit_margin
from robustbook.models import load_model, logits_of
from robustbook.studies._statistics import (
    Values,
    bootstrap_weights,
    interval_row,
    mean_row,
    middle_95,
    weighted_auroc,
)
from robustbook.studies.lenses._models import SETTINGS as SETTINGS  # for the study
from robustbook.studies.lenses._models import LensedModel, LensSetting
from robustbook.studies.lenses._models import measure_model as measure
from robustbook.studies.margins.columns import difference_row, exact_share, tau_row
from robustbook.studies.margins.search import measure_bounds
from robustbook.studies.run import Row, Run

#: Resamples of the images for intervals.
_DRAWS: Final = {"full": 1000, "quick": 100}
#: Images on which passes are counted.
_COUNTED: Final = 20
#: With fewer failures, or fewer survivors, no AUROC is measured.
_FEWEST: Final = 5
#: Scores whose order of the images is compared with that of contributions to PA.
_RIVALS: Final = ("average_case", "logit_margin")


def rows(run: Run[LensSetting]) -> Iterator[Row]:
    """Measure every model with all three lenses.

    Rows with ``what`` = "setting"; "model", one a model, with every measure;
    "relation", how average case and logit margin order the images of a model, beside
    the contributions to PA under noise; "difference", by how much the first does it
    better; "foresight", how well a score of the clean side foretells that a corruption
    which it did not see changes the prediction, for each model, and "mean", on average;
    "tie", how many images weak noise cannot tell apart; "cost".
    """
    setting, draws = run.setting, _DRAWS[run.profile]
    models = {name: measure(run, item, name) for item, name in run.each_model()}
    count, random = setting.samples, np.random.default_rng([run.seed, 2])
    weights = bootstrap_weights(count, draws, random)
    yield {
        "what": "setting",
        "sigma": setting.sigma,
        "small": ", ".join(f"{sigma:g}" for sigma in setting.small),
    }
    for name, model in models.items():
        yield {"what": "model", "model": name, **_model_row(model, setting.eps)}
    for name, model in models.items():
        yield from _relations(name, model)
    yield from _failures(models, weights)
    for sigma in (*setting.small, setting.sigma):
        # Images whose probability to survive is 1 in floating point.
        shares = [
            float((item.linearized[sigma] >= 1 - 1e-15).double().mean())
            for item in models.values()
        ]
        yield {"what": "tie", "sigma": sigma, "share": float(np.mean(shares))}
    yield from _costs(next(iter(models)), setting, run.seed)


def _model_row(model: LensedModel, eps: float) -> Row:
    row = exact_share("accuracy", model.margins.correct)
    for shift in ("adversarial", "noise"):
        agreement = model.agreements[shift]
        row |= {
            f"pa_{shift}": agreement.pa,
            f"pa_{shift}_se": agreement.standard_error,
            f"hard_{shift}": agreement.hard_part,
            f"mismatch_{shift}": agreement.mismatch,
        }
    for name, each in (
        ("kept_domain", model.survived().double() / len(CORRUPTIONS)),
        ("pa_domain", model.domain()),
        ("average_case", model.kept),
    ):
        row |= mean_row(name, each.double().numpy())
    row |= exact_share("robust_share", model.robust(eps))
    score = model.scores()["logit_margin"]
    return row | tau_row("consistency", score, model.margins.bounds)


def _relations(name: str, model: LensedModel) -> Iterator[Row]:
    scores = model.scores()
    of_noise, rivals = scores["pa_noise"], [scores[rival] for rival in _RIVALS]
    for rival, score in zip(_RIVALS, rivals, strict=True):
        keys = {"model": name, "first": "pa_noise", "second": rival}
        yield {"what": "relation", **keys, **tau_row("tau", of_noise, score)}
    difference = difference_row(rivals[0], rivals[1], of_noise)
    yield {"what": "difference", "model": name, **difference}


def _failures(models: dict[str, LensedModel], weights: Values) -> Iterator[Row]:
    """Measure how well scores predict that an unseen corruption changes a prediction.

    `weights` (R, N) say how often each image is in each resample.
    """
    by_score: dict[str, list[Values]] = {}
    for (name, model), kind in itertools.product(models.items(), CORRUPTIONS):
        failed = model.changed(kind).numpy()
        if not _FEWEST <= failed.sum() <= len(failed) - _FEWEST:
            continue
        for score, values in model.scores(kind).items():
            aurocs = weighted_auroc(values.numpy(), failed, weights)
            by_score.setdefault(score, []).append(aurocs)
            yield {
                "what": "foresight",
                "failure": "changed",
                "model": name,
                "shift": kind,
                "score": score,
                "failed": float(failed.mean()),
                "auroc": float(aurocs[0]),
            }
    for score, several in by_score.items():
        mean = np.mean(several, axis=0)
        ends = middle_95(mean[1:])
        row: Row = {"failure": "changed", "score": score, "cases": len(several)}
        yield {"what": "mean", **row, **interval_row("auroc", float(mean[0]), ends)}


def _costs(name: str, setting: LensSetting, seed: int) -> Iterator[Row]:
    """Passes per image of each measure, counted on the first model."""
    data = setting.data().subset(slice(_COUNTED))
    counted = CountedModel(load_model(name).eval())
    images, recipe = data.images, setting.models[name]
    noisy = images + setting.sigma * torch.randn(
        images.shape, generator=torch.Generator().manual_seed(seed)
    )

    def attacked() -> None:
        how: Any = {"eps": setting.eps, "steps": setting.attack_steps, "seed": seed}
        result = pgd(counted, images, **how, progress=False)
        logits_of(counted, result.adversarial)

    def corrupted() -> None:
        for kind in CORRUPTIONS:
            moved = corrupt(images, kind, severity=setting.severity, seed=seed)
            logits_of(counted, moved)

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
    for lens, asked in tried.items():
        result, passes = counted.count(asked, per=len(images))
        # Agreement needs the clean logits beside the shifted ones.
        forward = passes.forward + lens.startswith("pa_")
        backward = passes.backward
        if lens == "average_case_mmse":
            # The gradients of all classes pass the logits at once.
            backward = float(result.calls.double().mean()) - forward
        passes_of = {"forward": forward, "backward": backward}
        yield {"what": "cost", "measure": lens, **passes_of}
