"""All studies, by name: a line for each, and none of their code."""

from __future__ import annotations

from typing import Final

from robustbook.studies._study import Study


def _in(folder: str, *names: str, device: str | None = None) -> list[Study]:
    return [Study(name, f"{folder}{name}", device=device) for name in names]


_ALL: Final = (
    *_in("", "agreement_speed", "cost_model", "choosing", device="cpu"),
    *_in(
        "adversarial.", "adaptive_attacks",
        "pseudo_agreement", "adversarial_groups", "adversarial_sweep",
        "attack_convergence", "attack_examples", "attack_steps", "boundary",
        "growing_shares", "noise", "imagenet", "norm_quantiles", "paired_differences",
        "rank_stability", "text_edits", "reviews",
    ),
    Study(
        "stronger_sweep", "adversarial.adversarial_sweep",
        {"kinds": ("fmn", "fab", "apgd-ce", "apgd-dlr")},
    ),
    Study(
        "larger_sweep", "adversarial.adversarial_sweep",
        {"kinds": ("pgd",)}, ("quick", "larger"),
    ),
    Study(
        "mnist_sweep", "adversarial.adversarial_sweep",
        {"kinds": ("pgd", "fmn")}, ("quick", "mnist"),
    ),
    Study(
        "mnist_rank_stability", "adversarial.rank_stability", {}, ("quick", "mnist")
    ),
    *_in("domains.", "domain_bias", "domain_learners", "domain_selection"),
    Study(
        "domain_shortcuts", "domains.domain_selection",
        {"shortcuts": True}, ("quick shortcuts", "full shortcuts"),
    ),
    *_in("domains.", "domain_regime", "regime_selection"),
    Study(
        "domain_regime_large", "domains.domain_regime",
        {}, ("quick large", "full large"), "cuda",
    ),
    *_in("domains.", "photographs", "photographs_pixels", device="cpu"),
    Study(
        "photographs_mixing", "domains.photographs",
        {"mixing": True}, ("quick mixing", "full mixing"), "cpu",
    ),
    Study(
        "regime_learners", "domains.domain_learners",
        {"setups": ("printed",)}, ("quick borrowed", "full borrowed"),
    ),
    Study(
        "regime_positions", "domains.regime_selection",
        {}, ("quick positions", "full positions"),
    ),
    *_in(
        "average_case.", "average_case_bias", "average_case_classes",
        "average_case_errors", "control_variate_gain",
    ),
    Study(
        "average_case_ends", "average_case.average_case_bias",
        {}, ("quick ends", "full ends"),
    ),
    Study(
        "average_case_penalty", "average_case.average_case_errors",
        {}, ("quick penalty", "full penalty"),
    ),
    *_in("average_case.", "average_case_speed", device="cpu"),
    *_in(
        "margins.", "defended", "margin_accuracy", "margin_autoattack",
        "margin_consistency", "margin_convergence", "margin_pseudo",
    ),
    Study("margin_samples", "margins.margin_consistency", {"samples": True}),
    *_in("lenses.", "held_out", "standard_corruptions", "three_lenses"),
    Study(
        "held_out_measures", "lenses.held_out", {}, ("quick measures", "full measures")
    ),
    *_in("", "people", "pairing"),
    Study("pairing_heads", "pairing", {}, ("quick heads", "full heads")),
    *_in("", "error_bars", "deployed", "label_free", device="cpu"),
)  # fmt: skip

#: Studies by name.
STUDIES: Final[dict[str, Study]] = {study.name: study for study in _ALL}
