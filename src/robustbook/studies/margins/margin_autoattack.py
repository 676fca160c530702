"""The measured input margins against AutoAttack, decision by decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from robustbook._checks.extras import extra
from robustbook.datasets import Dataset
from robustbook.margins import logit_margin
from robustbook.models import logits_of, resolve_device
from robustbook.studies.margins import defended
from robustbook.studies.margins.columns import exact_share, tau_row
from robustbook.studies.margins.measured import margins_of
from robustbook.studies.margins.settings import SETTINGS as ALL
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run

with extra("attacks"):
    from pyautoattack import AutoAttack

#: Images of each network.
IMAGES: Final = {"quick": 20, "full": 1000}
_MNIST: Final = defended.SETTINGS["full"][0]
#: Networks of which only half of the classes are defended: weakly consistent ones.
WEAK: Final = MarginSetting(
    dataset=_MNIST.dataset,
    models={
        f"{defended.__name__}:half_{start}": searched
        for start, searched in enumerate(_MNIST.models.values())
    },
    eps=_MNIST.eps,
    focus=_MNIST.focus,
)
SETTINGS: Final = {
    "quick": (ALL["quick"][0].only("digits-linear-s0"),),
    "full": (ALL["full"][0], WEAK),
}


def measure(run: Run[MarginSetting], model: str) -> Iterator[Row]:
    """Attack every decision at the usual ε with AutoAttack, the standard ensemble.

    It is APGD on the cross-entropy, targeted APGD on the DLR loss and targeted FAB, of
    100 steps toward nine classes, and Square with 5000 queries (F. Croce and M. Hein,
    ICML 2020). One row for each model, of ``samples`` images at ``eps``:
    ``robust_accuracy`` by our margins, ``ensemble_accuracy`` by the ensemble, and the
    share of all decisions that only the ensemble turns (``missed``) or only our search
    (``added``), with exact 95 % intervals; and ``tau``, how well the logit margin
    orders our margins.

    Margin paper, Appendix B.1, Figure 8.
    """
    setting, (recipe, count) = run.setting, run.setting.models[model]
    data = run.data.subset(slice(min(count, IMAGES[run.profile])))
    margins = margins_of(run, model, data, recipe)
    # Which decisions, right or wrong, each of the two turns.
    ours, turned = margins.bounds <= setting.focus, _turned(run, model, data)
    yield {
        "dataset": setting.dataset,
        "model": model,
        "eps": setting.focus,
        "samples": len(data),
        **exact_share("robust_accuracy", margins.correct & ~ours),
        **exact_share("ensemble_accuracy", margins.correct & ~turned),
        **exact_share("missed", turned & ~ours),
        **exact_share("added", ours & ~turned),
        **tau_row("tau", logit_margin(margins.logits), margins.bounds),
    }


def _turned(run: Run[MarginSetting], name: str, data: Dataset) -> torch.Tensor:
    """Which decisions the ensemble turns, (N,)."""
    model, device = run.model(name), resolve_device(run.device)
    decisions = logits_of(model, data.images).argmax(dim=1).to(device)
    with torch.random.fork_rng():
        ensemble = AutoAttack(
            model, eps=run.setting.focus, seed=run.seed, device=device
        )
        _, after = ensemble.run_standard_evaluation(data.images.to(device), decisions)
    return (after != decisions).cpu()
