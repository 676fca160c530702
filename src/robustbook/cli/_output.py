"""The output of ``score`` and ``compare``: one JSON object, or lines of a table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustbook._comparison import Comparison

Lines = list[tuple[str, str]]

_FIELDS = (
    *("pa", "standard_error", "beta", "upper_bound", "gap", "evaluations", "passes"),
    *("num_samples", "num_classes", "log_pa", "hard_part", "confidence_part"),
)

_ESTIMATE = "value", "standard_error", "interval"

RATES = {
    "accuracy": "accuracy, clean",
    "shifted_accuracy": "accuracy, shifted",
    "same_answer_rate": "same-answer rate",
    "paired_accuracy": "accuracy, estimated",
}


def agreement_fields(agreement: Any) -> dict[str, Any]:
    return {name: getattr(agreement, name) for name in _FIELDS}


def print_json(numbers: dict[str, Any]) -> None:
    from robustbook._json import strict

    print(json.dumps(strict(numbers), allow_nan=False))


def agreement_lines(agreement: Any, *, uniform: bool) -> Lines:
    most = math.log(agreement.num_classes)
    beta = "infinite" if math.isinf(agreement.beta) else f"{agreement.beta:.6g}"
    share = f", {agreement.pa / most:.1%} of log K" if uniform else ""
    error = agreement.standard_error
    low, high = agreement.interval()
    return [
        ("pairs, classes", f"{agreement.num_samples}, {agreement.num_classes}"),
        ("posterior agreement", f"{agreement.pa:.6f} nats per sample{share}"),
        ("  95 % interval", f"{low:.6f} to {high:.6f}"),
        ("  standard error", "undefined" if math.isnan(error) else f"{error:.6f}"),
        ("  hard decisions", f"{agreement.hard_part:.6f}"),
        ("  confidences", f"{agreement.confidence_part:+.6f}"),
        ("  certified gap", f"{agreement.gap:.1e}"),
        ("inverse temperature β*", beta),
        ("log PA, papers' scale", f"{agreement.log_pa:.6g}"),
    ]


def comparison_fields(comparison: Comparison, files: list[Path]) -> dict[str, Any]:
    clean, shifted = map(str, files[::2]), map(str, files[1::2])
    both = zip(clean, shifted, comparison.agreements, comparison.scores, strict=True)
    models = [
        {"clean": before, "shifted": after, **agreement_fields(agreement), **scores}
        for before, after, agreement, scores in both
    ]
    differences = {
        name: {field: getattr(difference, field) for field in _ESTIMATE}
        for name, difference in comparison.differences.items()
    }
    return {"models": models, "differences": [{"first": 0, "second": 1, **differences}]}


def comparison_lines(comparison: Comparison, files: list[Path]) -> Lines:
    agreement = comparison.agreements[0]
    lines = [("pairs, classes", f"{agreement.num_samples}, {agreement.num_classes}")]
    lines += [("model A", f"{files[0]}, {files[1]}")]
    lines += [("model B", f"{files[2]}, {files[3]}")]
    first, second = comparison.scores
    lines.append(("", "      A       B    A - B    s.e.  95 % interval"))
    for name, difference in comparison.differences.items():
        low, high = difference.interval
        row = f"{first[name]:7.4f}{second[name]:8.4f}{difference.value:+9.4f}"
        if math.isnan(difference.standard_error):
            row += "  undefined"
        else:
            row += f"{difference.standard_error:8.4f}  {low:+.4f} to {high:+.4f}"
        lines.append((RATES.get(name, "posterior agreement, nats"), row))
    return lines


def print_table(lines: Lines, *, width: int = 28) -> None:
    for name, value in lines:
        print(f"{name:<{width}}{value}")


def group_lines(grouped: list[Any]) -> Lines:
    names = "agreement", "accuracy"
    return [
        (
            f"{name}, {each.num_groups} groups",
            "{:.4f} to {:.4f} at 95 %".format(*each.interval),
        )
        for name, each in zip(names, grouped, strict=False)
    ]


def plan_lines(plan: float | None, needed: dict[str, int]) -> Lines:
    return [(f"pairs to find {plan:g} nats", f"{n}") for n in needed.values()]


def estimate_fields(estimate: Any) -> dict[str, Any]:
    if estimate is None:
        return {}
    fields = {name: getattr(estimate, name) for name in (*_ESTIMATE, "level")}
    names = "beta", "interval", "num_samples", "cross_entropy"
    calibration = {name: getattr(estimate.calibration, name) for name in names}
    return {"paired_accuracy": fields | {"calibration": calibration}}


def estimate_lines(estimate: Any) -> Lines:
    if estimate is None:
        return []
    (low, high), beta = estimate.interval, estimate.calibration.beta
    value = f"{estimate.value:.4f}, {low:.4f} to {high:.4f} at {estimate.level:.0%}"
    calibrated = "infinite" if math.isinf(beta) else f"{beta:.6g}"
    return [("accuracy, estimated", value), ("  calibrated β", calibrated)]
