"""Where agreement is lost: confidence, groups of samples, other discrepancies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from robustbook import discrepancies
from robustbook.agreement import (
    Agreement,
    gibbs_posterior,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.scores import accuracy
from robustbook.studies._scores import agreement_row, failure_rates
from robustbook.studies._statistics import (
    Integers,
    Values,
    correlation_interval,
    interval_row,
    mean_error,
    middle_95,
    weighted_auroc,
)
from robustbook.studies.adversarial.attacked import (
    Attack,
    AttackedLogits,
    attack_model,
    list_attacks,
)
from robustbook.studies.adversarial.settings import SHIFTING, AttackSetting
from robustbook.studies.run import Row, Run, with_keys

BINS: Final = 20
BOOTSTRAPS: Final = {"quick": 20, "full": 300}
#: Certified to this, in nats, in the bootstrap: ranks do not need more.
TOLERANCE: Final = 1e-6
#: Discrepancies that are means over samples, so that a bootstrap is a mean, too.
POSTERIOR: Final = ("kl_divergence", "jensen_shannon", "total_variation")
FEATURE: Final = ("centroid_distance", "frechet_distance")


def parts(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack]]:
    """Each network with PGD at every bound, and with the attacks in focus."""
    for model, attack in list_attacks(run, ("pgd", "fmn", "apgd-dlr")):
        if attack.kind in ("pgd", "fmn") or _in_focus(attack, run.setting):
            yield model, attack


def measure(run: Run[AttackSetting], model: str, attack: Attack) -> Iterator[Row]:
    """Measure who loses agreement: all samples attacked (adversarial ratio 1).

    Confidence is the largest posterior probability, at inverse temperature 1
    (``_1``) and at the best one (``_star``). Groups: prediction kept or changed by
    the attack, clean prediction correct or wrong; "fooled" is changed and correct.
    Intervals hold 95 %, from a bootstrap of the images, the same for all models.

    ``table="summary"``: one row for each model under PGD at each bound, APGD-DLR at the
    bound in focus, and FMN. ``table="histogram"``: shares of the confidences of samples
    that are correct, wrong and fooled, in 20 bins, attacks in focus.
    ``table="share"``: PA and its approximations when only a part of the samples is
    attacked, PGD in focus and FMN; ``approximation`` takes each share's own best
    temperature, ``approximation_at_one`` that of all attacked.
    ``table="rank"``: Kendall's tau of each measure with PA over the models, attacks in
    focus; ``p`` is its exact two-sided level if the ranking had nothing to do with PA.
    """
    keys = {"dataset": run.data.name, "model": model, **attack.keys}
    pair = attack_model(run, model, attack)
    row = _of_attack(pair, _draws(run))
    yield {"table": "summary", **keys, **row}
    if not _in_focus(attack, run.setting):
        return
    yield from with_keys({"table": "histogram", **keys}, _histograms(pair))
    if attack.kind != "apgd-dlr":
        shares = _over_shares(pair, row["beta"], attack.unbounded, run.seed)
        yield from with_keys({"table": "share", **keys}, shares)


def summary(run: Run[AttackSetting]) -> Iterator[Row]:
    """Ranks of the networks, which need all of them."""
    by_attack: dict[tuple[str, float | None], list[dict[str, Values]]] = {}
    for model, attack in parts(run):
        if _in_focus(attack, run.setting):
            row, *_ = run.measured(measure, model, attack)
            arguments = attack_model(run, model, attack), row, _draws(run)
            values = run.arrays("resampled measures", _resampled, *arguments)
            by_attack.setdefault((attack.kind, attack.eps), []).append(values)
    for (kind, eps), networks in by_attack.items():
        keys = {"table": "rank", "dataset": run.data.name, "attack": kind, "eps": eps}
        yield from with_keys(keys, _ranks(networks))


def _draws(run: Run[AttackSetting]) -> Integers:
    """Images that a bootstrap draws, the same for all networks."""
    count = len(run.data)
    random = np.random.default_rng([run.seed, count])
    return random.integers(count, size=(BOOTSTRAPS[run.profile], count))


def _in_focus(attack: Attack, setting: AttackSetting) -> bool:
    kinds = {"pgd": setting.focus, "apgd-dlr": setting.focus, "fmn": None}
    return attack.kind in kinds and attack.eps == kinds[attack.kind]


# -------------------------------------------------------------- one model, one attack


def _of_attack(pair: AttackedLogits, draws: Integers) -> Row:
    logits = clean, shifted, labels = pair.logits, pair.shifted_logits, pair.labels
    result = posterior_agreement(clean, shifted)
    gaps = clean.double().topk(2, dim=1).values
    return {
        "samples": result.num_samples,
        "classes": result.num_classes,
        "accuracy": accuracy(clean, labels),
        **failure_rates(*logits),
        **agreement_row(result),
        "margin": float((gaps[:, 0] - gaps[:, 1]).mean()),
        **_groups(pair, result),
        **_certainty(pair, 1.0, "_1"),
        **_certainty(pair, result.beta, "_star"),
        **_detection(pair, draws),
        **_discrepancies(pair, result.beta),
    }


def _masks(pair: AttackedLogits) -> tuple[Tensor, Tensor]:
    """Whether predictions were kept, and whether the clean ones are correct."""
    before, after = pair.logits.argmax(1), pair.shifted_logits.argmax(1)
    return before == after, before == pair.labels


def _groups(pair: AttackedLogits, result: Agreement) -> Row:
    """Sizes of four groups, their exact contributions to PA, and the approximation.

    The thesis's approximation (section 4.2, Theorem B.1.1) puts the average missing
    confidence of a group into one logarithm, and leaves out the last group. Its terms
    are sums on the scale N (pa - log K); as shares of PA each has (count / N) log K
    added.
    """
    kept, correct = _masks(pair)
    before, after = (
        gibbs_posterior(logits, result.beta).amax(1)
        for logits in (pair.logits, pair.shifted_logits)
    )
    of_kept = 1.0 - 2.0 * (1.0 - before)
    row: Row = {}
    for name, members, overlap in (
        ("kept_correct", kept & correct, of_kept),
        ("kept_wrong", kept & ~correct, of_kept),
        ("changed_correct", ~kept & correct, 1.0 - after),
        ("changed_wrong", ~kept & ~correct, None),
    ):
        count = row[f"count_{name}"] = int(members.sum())
        exact = float(result.per_sample[members].sum()) / result.num_samples
        row[f"contribution_{name}"] = exact
        row[f"approximation_{name}"] = None
        if overlap is not None:
            mean = overlap[members].mean() if count else torch.ones(())
            confidence = math.log(result.num_classes) + float(mean.log())
            share = count / result.num_samples
            row[f"approximation_{name}"] = _or_none(share * confidence)
    return row


def _certainty(pair: AttackedLogits, beta: float, suffix: str) -> Row:
    """Mean confidences of groups, after - before; entropies where correct, in nats."""
    kept, correct = _masks(pair)
    posterior = gibbs_posterior(pair.logits, beta)
    before = posterior.amax(1)
    after = gibbs_posterior(pair.shifted_logits, beta).amax(1)
    fooled = correct & ~kept
    row: Row = {}
    for name, values in {
        "clean_correct": before[correct],
        "all_before": before,
        "fooled_before": before[fooled],
        "fooled_after": after[fooled],
        "fooled_change": (after - before)[fooled],
    }.items():
        error = None if len(values) < 2 else mean_error(values)
        row[f"confidence_{name}{suffix}"] = _mean(values)
        row[f"confidence_{name}{suffix}_se"] = error
    rightly = posterior[correct]
    mean = float(torch.special.entr(rightly.mean(0)).sum())
    each = torch.special.entr(rightly).sum(1)
    return {
        **row,
        f"entropy_of_mean{suffix}": mean,
        f"mean_entropy{suffix}": _mean(each),
    }


def _detection(pair: AttackedLogits, draws: Integers) -> Row:
    """AUROC of confidence, clean against fooled."""
    kept, correct = (mask.numpy() for mask in _masks(pair))
    fooled = correct & ~kept
    before, after = (
        gibbs_posterior(logits, 1.0).amax(1).numpy()
        for logits in (pair.logits, pair.shifted_logits)
    )
    times = np.array([np.bincount(index, minlength=len(kept)) for index in draws])
    value, *drawn = weighted_auroc(
        np.concatenate([before[correct], after[fooled]]),
        np.arange(correct.sum() + fooled.sum()) >= correct.sum(),
        np.hstack([times[:, correct], times[:, fooled]]),
    )
    ends = middle_95(np.array(drawn))
    return interval_row("auroc_attack", _or_none(float(value)), ends)


def _discrepancies(pair: AttackedLogits, beta: float) -> Row:
    logits = pair.logits, pair.shifted_logits
    row: Row = {}
    for name in POSTERIOR:
        measure = getattr(discrepancies, name)
        row[name] = _mean(measure(*logits, reduction="none"))
        mean = _mean(measure(*logits, beta=beta, reduction="none"))
        row[f"{name}_star"] = mean if mean is None or math.isfinite(mean) else None
    for ground in ("index", "confidence"):
        distance = discrepancies.wasserstein(*logits, ground=ground)
        row[f"wasserstein_{ground}"] = float(distance)
    features = pair.features, pair.shifted_features
    row["mmd"] = _mean(torch.as_tensor(discrepancies.mmd(*features, reduction="none")))
    full_rank = len(features[0]) > features[0].shape[1]
    for name in FEATURE:
        measure = getattr(discrepancies, name)
        known = full_rank or name == "centroid_distance"
        for suffix, relative in (("", False), ("_relative", True)):
            value = measure(*features, relative=relative) if known else None
            row[f"{name}{suffix}"] = value
    return row


def _over_shares(
    pair: AttackedLogits, beta: float, smallest_first: bool, seed: int
) -> Iterator[Row]:
    """PA and its approximations while the attack reaches one sample after another."""
    norms = pair.norms if smallest_first else None
    for ratio in SHIFTING:
        logits = pair.logits, pair.shifted_logits
        shifted = shift_by_ratio(*logits, ratio, norms=norms, seed=seed)
        mixed = replace(pair, shifted_logits=shifted)
        result = posterior_agreement(pair.logits, shifted)
        product = gibbs_posterior(pair.logits, beta) * gibbs_posterior(shifted, beta)
        contributions = (result.num_classes * product.sum(1)).log()
        at_one = replace(result, beta=beta, per_sample=contributions)
        yield {
            "ratio": ratio,
            "pa": result.pa,
            "beta": result.beta,
            "approximation": _approximation(mixed, result),
            "approximation_at_one": _approximation(mixed, at_one),
        }


def _approximation(pair: AttackedLogits, result: Agreement) -> float | None:
    """PA by the thesis's three terms; its fourth group loses nothing."""
    row = _groups(pair, result)
    terms = [
        row[f"approximation_{name}"]
        for name in ("kept_correct", "kept_wrong", "changed_correct")
    ]
    changed = row["count_changed_wrong"] * math.log(result.num_classes)
    return None if None in terms else math.fsum([*terms, changed / result.num_samples])


def _histograms(pair: AttackedLogits) -> Iterator[Row]:
    kept, correct = _masks(pair)
    clean, shifted = (
        gibbs_posterior(logits, 1.0).amax(1)
        for logits in (pair.logits, pair.shifted_logits)
    )
    edges = np.linspace(0.0, 1.0, BINS + 1)
    for name, values in {
        "clean_correct": clean[correct],
        "clean_wrong": clean[~correct],
        "fooled_after": shifted[correct & ~kept],
    }.items():
        counts, _ = np.histogram(values.numpy().clip(0.0, 1.0), edges)
        for low, number in zip(edges, counts, strict=False):
            share = float(number / max(len(values), 1))
            place = {"group": name, "low": float(low)}
            yield {**place, "count": int(number), "share": share}


# --------------------------------------------------------------------- all the models


def _resampled(
    pair: AttackedLogits, summary: Row, draws: Integers
) -> dict[str, Values]:
    """Measures of one model, larger if more robust: of the sample, then of draws."""
    everything = np.arange(len(pair.labels))[None]
    index = np.concatenate([everything, draws])
    clean, shifted = pair.logits, pair.shifted_logits
    kept, _ = _masks(pair)
    right = shifted.argmax(1) == pair.labels
    agreements = [
        posterior_agreement(clean[rows], shifted[rows], tol=TOLERANCE).pa
        for rows in torch.from_numpy(index)
    ]
    values = {
        "pa": np.array(agreements),
        "same_answer_rate": kept.double().numpy()[index].mean(1),
        "shifted_accuracy": right.double().numpy()[index].mean(1),
    }
    for name in POSTERIOR:
        terms = getattr(discrepancies, name)(clean, shifted, reduction="none")
        values[name] = -terms.numpy()[index].mean(1)
    try:
        features = pair.features, pair.shifted_features
        cosine = discrepancies.cosine_similarity(*features, reduction="none")
        values["cosine"] = torch.as_tensor(cosine).numpy()[index].mean(1)
    except ValueError:  # a sample whose features are all zeros
        pass
    single = [
        *(f"{name}_star" for name in POSTERIOR),
        "wasserstein_index",
        "wasserstein_confidence",
        "mmd",
        *(f"{name}{suffix}" for name in FEATURE for suffix in ("", "_relative")),
    ]
    for name in single:
        if summary[name] is not None:
            values[name] = -np.array([summary[name]])
    return values


def _ranks(models: list[dict[str, Values]]) -> Iterator[Row]:
    """Kendall's τ of each measure with PA of the same draw, over the models."""
    agreement = np.array([values["pa"] for values in models])
    for name in models[0]:
        if name == "pa" or any(name not in values for values in models):
            continue
        table = np.array([values[name] for values in models])
        orders = [
            kendalltau(agreement[:, draw], column)
            for draw, column in enumerate(table.T)
        ]
        tau, *drawn = (float(order.statistic) for order in orders)
        ends = correlation_interval(tau, np.array(drawn))
        yield {
            "measure": name,
            "models": len(models),
            **interval_row("tau", _or_none(tau), ends),
            "p": _or_none(float(orders[0].pvalue)),
        }


# ---------------------------------------------------------------------------- helpers


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
