"""What the features of two domains vary along, and what a picture of it shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robustbook.studies._run import Row
from robustbook.studies._statistics import Values


@dataclass(frozen=True)
class Component:
    """The first principal component of n samples' features, of D dimensions."""

    #: Of unit length, (D,); the second class lies further along it than the first.
    direction: Values
    #: Where the samples are along it, from their mean, in standard deviations: (n,).
    values: Values
    #: Share of the variance that lies along it, and along the next one.
    share: float
    next_share: float


def principal_component(features: Values, labels: Values) -> Component | None:
    """Find the direction along which features (n, D) vary most; None if they do not.

    A principal direction has no sign of its own. Here class 1 has the larger mean.

    Examples
    --------
    >>> features = np.array([[0.0, 1.0], [2.0, 1.1], [4.0, 0.9]])
    >>> component = principal_component(features, np.array([1, 0, 0]))
    >>> component.direction.round(3), component.values.round(1)
    (array([-1.   ,  0.025]), array([ 1.2,  0. , -1.2]))
    """
    centered = features - features.mean(0)
    scale = float(np.abs(features).max())
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    if sizes[0] <= 1e-9 * max(scale, 1e-30):
        return None
    direction = directions[0]
    values = centered @ direction
    if values[labels == 1].mean() < values[labels == 0].mean():
        direction, values = -direction, -values
    shares = sizes**2 / (sizes**2).sum()
    return Component(
        direction=direction,
        values=values / values.std(),
        share=float(shares[0]),
        next_share=float(shares[1]) if len(shares) > 1 else 0.0,
    )


def shares_of_variance(first: Values, second: Values, labels: Values) -> Row:
    """Split the variance of paired features (n, D) into what it comes from.

    Row i of both samples is one digit, in two domains. Shares of the sum of squares,
    which add up to 1: "class" (which class a digit is of), "digit" (which digit of its
    class), "domain" (the same step for all), "domain_by_class" (a step that differs
    between the classes), "domain_by_digit" (the rest: a step that differs between
    digits of a class). Empty if nothing varies.

    The analysis of variance of two crossed factors, domain and digit, the digits nested
    in classes. The book's audit of domain shift.

    Examples
    --------
    >>> first = np.array([[0.0], [0.0], [4.0], [4.0]])
    >>> shares_of_variance(first, first + 2, np.array([0, 0, 1, 1]))["domain"]
    0.2
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


def margins(features: Values, head: Values) -> Values:
    """By how much class 1 is ahead of class 0, by the difference of their heads.

    Examples
    --------
    >>> margins(np.array([[1.0, 2.0]]), np.array([3.0, -1.0, 0.5]))
    array([1.5])
    """
    read: Values = features @ head[:-1] + head[-1]
    return read


def picture_numbers(first: Values, second: Values, labels: Values, head: Values) -> Row:
    """Say in numbers what the picture of two principal components shows, or hides.

    What it shows, each sample along its own first component: "correlation" of the two;
    "error", the mean squared difference after each has been normalized, which is
    2 (1 - correlation); "class_first" and "class_second", the shares of variance
    between the classes.

    What it leaves out: "share_first", "share_second", the share of all variance that
    lies along the component, and "next_first", "next_second" along the next;
    "alignment", the absolute cosine of the two directions; "head_first", "head_second",
    the squared correlation of the component with what the last layer reads;
    "flipped_by_loading" and "flipped_by_score", whether the picture were upside down
    had each component been given the sign that makes its largest loading, or its
    largest score, positive.

    What it could have shown: "raw_error", the mean squared difference along the common
    first component of both samples, over the variance of all values along it;
    "common_class" and "common_domain", shares of the variance there; and the shares of
    :func:`shares_of_variance`, with "features_" before them of all features, with
    "read_" of what the last layer reads. What has no value is left out.
    """
    leads = margins(first, head), margins(second, head)
    row: Row = {}
    read = leads[0][:, None], leads[1][:, None]
    for of, (one, two) in (("features", (first, second)), ("read", read)):
        shares = shares_of_variance(one, two, labels)
        row |= {f"{of}_{name}": share for name, share in shares.items()}
    parts = principal_component(first, labels), principal_component(second, labels)
    for name, lead, part in zip(("first", "second"), leads, parts, strict=True):
        if part is None:
            continue
        row |= {f"share_{name}": part.share, f"next_{name}": part.next_share}
        row[f"class_{name}"] = _between(part.values, labels)
        if lead.std() > 1e-9 * max(float(np.abs(lead).max()), 1e-30):
            row[f"head_{name}"] = float(np.corrcoef(part.values, lead)[0, 1] ** 2)
    a, b = parts
    if a is not None and b is not None:
        correlation = float((a.values * b.values).mean())
        loading = _largest(a.direction) * _largest(b.direction)
        score = _largest(a.values) * _largest(b.values)
        row |= {
            "correlation": correlation,
            "error": float(((a.values - b.values) ** 2).mean()),
            "alignment": float(abs(a.direction @ b.direction)),
            "flipped_by_loading": int(correlation * loading < 0),
            "flipped_by_score": int(correlation * score < 0),
        }
    common = principal_component(np.concatenate([first, second]), np.tile(labels, 2))
    if common is not None:
        x, y = common.values.reshape(2, -1)
        along = shares_of_variance(x[:, None], y[:, None], labels)
        row |= {"raw_error": float(((x - y) ** 2).mean()), "common_share": common.share}
        row |= {f"common_{name}": along[name] for name in ("class", "domain")}
    return row


def _between(values: Values, labels: Values) -> float:
    """Share of the variance of some values that is between the classes."""
    return float(_class_means(values[:, None], labels).var() / values.var())


def _class_means(values: Values, labels: Values) -> Values:
    """The mean over a sample's class, for every sample (axis -2)."""
    means = np.empty_like(values)
    for label in np.unique(labels):
        mine = labels == label
        means[..., mine, :] = values[..., mine, :].mean(-2, keepdims=True)
    return means


def _largest(values: Values) -> float:
    """The value of the largest size."""
    return float(values[np.abs(values).argmax()])
