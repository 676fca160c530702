"""The measured input margins against AutoAttack, decision by decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import nn

from robustbook._checks.extras import extra
from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.studies._run import Row, Run
from robustbook.studies.margins.columns import exact_share
from robustbook.studies.margins.measured import margins_of
from robustbook.studies.margins.settings import SETTINGS as ALL
from robustbook.studies.margins.settings import MarginSetting

with extra("attacks"):
    from pyautoattack import AutoAttack

#: Images of each network.
IMAGES: Final = {"quick": 20, "full": 1000}
_MODELS: Final = {
    "quick": ("digits-linear-s0",),
    "full": ("cifar10-cnn_a_adv4", "cifar10-conv_small_pgd"),
}
SETTINGS: Final = {
    profile: (ALL[profile][0].only(*names),) for profile, names in _MODELS.items()
}


def rows(run: Run[MarginSetting]) -> Iterator[Row]:
    """Attack every decision at the usual ε with AutoAttack, the standard ensemble.

    It is APGD on the cross-entropy, targeted APGD on the DLR loss and targeted FAB, of
    100 steps toward nine classes, and Square with 5000 queries (F. Croce and M. Hein,
    ICML 2020). One row for each model, of ``samples`` images at ``eps``:
    ``robust_accuracy`` by our margins, ``ensemble_accuracy`` by the ensemble, and the
    share of all decisions that only the ensemble turns (``missed``) or only our search
    (``added``), with exact 95 % intervals.

    Margin paper, Appendix B.1, Figure 8.
    """
    for setting, name in run.each_model():
        data = setting.images_of(name).subset(slice(IMAGES[run.profile]))
        turned = _turned(run, name, data, setting.focus)
        recipe, _ = setting.models[name]
        ours = margins_of(run, name, data, recipe)
        near = ours.bounds <= setting.focus
        yield {
            "dataset": setting.dataset, "model": name, "eps": setting.focus,
            "samples": len(data),
            **exact_share("robust_accuracy", ours.correct & ~near),
            **exact_share("ensemble_accuracy", ours.correct & ~turned),
            **exact_share("missed", turned & ~near),
            **exact_share("added", near & ~turned),
        }  # fmt: skip


def _turned(
    run: Run[MarginSetting], name: str, data: Dataset, eps: float
) -> torch.Tensor:
    """Which decisions, right or wrong, the ensemble turns: from the cache, (N,)."""
    arguments = data, eps, run.seed
    kept = run.arrays("turned by AutoAttack", _attacked, *arguments, network=name)
    return torch.from_numpy(kept["turned"])


def _attacked(model: nn.Module, data: Dataset, eps: float, seed: int) -> Arrays:
    place = next(model.parameters()).device
    decisions = logits_of(model, data.images).argmax(dim=1).to(place)
    with torch.random.fork_rng():
        ensemble = AutoAttack(model, eps=eps, seed=seed, device=place)
        _, after = ensemble.run_standard_evaluation(data.images.to(place), decisions)
    return {"turned": (after != decisions).cpu().numpy()}
