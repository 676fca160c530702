"""Principal components of the features of two domains, and how far they show both."""

from __future__ import annotations

import numpy as np

from robustbook.studies._statistics import Values
from robustbook.studies.run import Row


def principal_component(features: Values, labels: Values) -> Values | None:
    """Place samples (n, D) along the direction in which they vary most.

    From their mean, in standard deviations, (n,); None if nothing varies. A principal
    direction has no sign of its own. Here class 1 has the larger mean.
    """
    centered = features - features.mean(0)
    scale = float(np.abs(features).max())
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    if sizes[0] <= 1e-9 * max(scale, 1e-30):
        return None
    values: Values = centered @ directions[0]
    if values[labels == 1].mean() < values[labels == 0].mean():
        values = -values
    return values / values.std()


def shares_of_variance(first: Values, second: Values, labels: Values) -> Row:
    """Split the variance of paired features (n, D) into what it comes from.

    Row i of both samples is one digit, in two domains. Shares of the sum of squares,
    which add up to 1: "class" (which class a digit is of), "digit" (which digit of its
    class), "domain" (the same step for all), "domain_by_class" (a step that differs
    between the classes), "domain_by_digit" (the rest: a step that differs between
    digits of a class). Empty if nothing varies.

    The analysis of variance of two crossed factors, domain and digit, the digits nested
    in classes. The book's audit of domain shift.
    """
    both = np.stack([first, second])  # (2, n, D)
    center = both.mean((0, 1))
    digits = both.mean(0) - center  # (n, D), effects of the digits
    domains = both.mean(1) - center  # (2, D), effects of the domains
    rest = both - center - digits[None] - domains[:, None]
    total = float(((both - center) ** 2).sum())
    if total <= 1e-18 * float((both**2).sum()) or total == 0:
        return {}
    by_class, by_domain = _class_means(digits, labels), _class_means(rest, labels)
    parts = {
        "class": 2 * (by_class**2).sum(),
        "digit": 2 * ((digits - by_class) ** 2).sum(),
        "domain": len(labels) * (domains**2).sum(),
        "domain_by_class": (by_domain**2).sum(),
        "domain_by_digit": ((rest - by_domain) ** 2).sum(),
    }
    return {name: float(part) / total for name, part in parts.items()}


def picture_numbers(first: Values, second: Values, labels: Values) -> Row:
    """Say in numbers what the picture of two principal components shows, or hides.

    What it shows, each sample along its own first component: "error", the mean squared
    difference of the two, which is 2 (1 - their correlation); "class_first" and
    "class_second", the shares of variance between the classes. What it leaves out: the
    :func:`shares_of_variance` of all features, with "features_" before them. What has
    no value is left out.
    """
    shares = shares_of_variance(first, second, labels)
    row: Row = {f"features_{name}": share for name, share in shares.items()}
    a, b = (principal_component(part, labels) for part in (first, second))
    for name, values in (("first", a), ("second", b)):
        if values is not None:
            between = _class_means(values[:, None], labels).var() / values.var()
            row[f"class_{name}"] = float(between)
    if a is not None and b is not None:
        row["error"] = float(((a - b) ** 2).mean())
    return row


def _class_means(values: Values, labels: Values) -> Values:
    """The mean over a sample's class, for every sample (axis -2)."""
    means = np.empty_like(values)
    for label in np.unique(labels):
        members = labels == label
        means[..., members, :] = values[..., members, :].mean(-2, keepdims=True)
    return means
