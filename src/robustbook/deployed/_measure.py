"""Accuracy under shifts, counted by labels and estimated without them."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robustbook._checks.arguments import check_choice
from robustbook.agreement import log_probabilities
from robustbook.deployed._classifiers import Array, Classifier
from robustbook.deployed._sample import Sample
from robustbook.deployed._shifts import apply_shift, shifts_for
from robustbook.label_free import score_pairs
from robustbook.scores import accuracy

Integers = npt.NDArray[np.int64]


def measure_shifts(
    sample: Sample,
    classifier: Classifier,
    *,
    shifts: str | Iterable[str] | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """Measure a classifier under shifts, with the labels and without.

    Half of the sample, drawn at random, is the source: its labels set the temperature
    and whatever else an estimate asks of the source. The other half is shifted; its
    labels serve to judge the estimates, and no estimate sees them. All estimates but
    the shares of same answers take probabilities at the calibrated temperature.

    Parameters
    ----------
    sample : Sample
        Files or texts, with labels.
    classifier : Classifier
        It takes such contents.
    shifts : str or iterable of str, optional
        Keys of BYTE_SHIFTS for files, of TEXT_SHIFTS for texts; all by default.
    seed : int, default 0
        Seed of the halves, and of what is random in the shifts.
    level : float, default 0.95
        Coverage of the interval.

    Returns
    -------
    list of dict
        One row for each shift: its name (``shift``), the number of ``samples``, the
        ``accuracy`` that the labels show, what
        :func:`~robustbook.label_free.score_pairs` returns, and the share of
        probabilities that are 0 (``zeros``).

    Raises
    ------
    ValueError
        If there is no such shift, the classifier knows none of the labels or returns
        another shape than (N, K), or fewer than four contents are left.

    Warns
    -----
    UserWarning
        If the classifier does not know some labels, whose contents are left out; if
        probabilities are 0; and as :func:`~robustbook.agreement.paired_accuracy` does.

    Examples
    --------
    >>> contents = tuple(b"ab"[i % 2 :][:1] * 300 for i in range(400))
    >>> labels = tuple("ab"[(i + (i % 10 == 0)) % 2] for i in range(400))  # 10 % wrong
    >>> def probabilities(contents):
    ...     is_a = np.array([content[:1] in b"aA" for content in contents])
    ...     return np.where(is_a[:, None], [0.9, 0.1], [0.1, 0.9])
    >>> toy = Classifier("toy", ("a", "b"), probabilities)
    >>> (row,) = measure_shifts(Sample(contents, labels), toy, shifts=["upper case"])
    >>> row["same_answers"], round(row["paired_accuracy"], 2)
    (1.0, 0.91)
    """
    kept = _known(sample, classifier)
    contents = [sample.contents[index] for index in kept]
    column = {label: number for number, label in enumerate(classifier.labels)}
    labels = np.array([column[sample.labels[index]] for index in kept])
    known = shifts_for(contents)
    if isinstance(shifts, str):
        shifts = [shifts]
    chosen = list(known if shifts is None else shifts)
    for name in chosen:
        check_choice("shifts", name, known)
    order = np.random.default_rng([seed, 1]).permutation(len(contents))
    source, target = order[: len(order) // 2], order[len(order) // 2 :]
    before = _asked(classifier, contents)
    zeros = [float((before == 0).mean())]
    rows = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in chosen:
            moved = apply_shift(name, [contents[i] for i in target], seed=seed)
            after = _asked(classifier, moved)
            row = _row(before, after, labels, source, target, level)
            zeros.append(float((after == 0).mean()))
            rows.append({"shift": name, **row, "zeros": zeros[-1]})
    # Once, not once for each shift and estimate.
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        if "probabilities are 0" not in message:
            warnings.warn(f"{classifier.name}: {message}", stacklevel=2)
    if any(zeros):
        warnings.warn(
            f"{classifier.name}: {max(zeros):.0%} of its probabilities are 0 and were "
            "taken for 1e-12; report this with the scores",
            stacklevel=2,
        )
    return rows


def _known(sample: Sample, classifier: Classifier) -> list[int]:
    """Find the contents whose labels the classifier has."""
    known = set(classifier.labels)
    kept = [i for i, label in enumerate(sample.labels) if label in known]
    if not kept:
        raise ValueError(
            f"sample: expected labels that {classifier.name} knows, got "
            f"{', '.join(sorted(set(sample.labels))[:5]) or 'an empty sample'}"
        )
    if len(kept) < 4:
        raise ValueError(
            "sample: expected four contents or more, better some hundreds, got "
            f"{len(kept)} whose labels {classifier.name} knows"
        )
    if len(kept) < len(sample):
        missing = sorted(set(sample.labels) - known)
        warnings.warn(
            f"{len(sample) - len(kept)} of {len(sample)} contents have labels that "
            f"{classifier.name} does not know and were left out: "
            f"{', '.join(missing[:5])}",
            stacklevel=3,
        )
    return kept


def _asked(classifier: Classifier, contents: Sequence[Any]) -> Array:
    rows = np.asarray(classifier.probabilities(contents), np.float64)
    shape = len(contents), len(classifier.labels)
    if rows.shape != shape:
        raise ValueError(
            f"{classifier.name}: expected probabilities of shape {shape}, one column "
            f"for each of its labels, got {rows.shape}"
        )
    return rows


def _row(
    before: Array,
    after: Array,
    labels: Integers,
    source: Integers,
    target: Integers,
    level: float,
) -> dict[str, Any]:
    on = log_probabilities(before[source]), labels[source]
    pair = log_probabilities(before[target]), log_probabilities(after)
    scores = score_pairs(*pair, calibrated_on=on, level=level)
    right = accuracy(pair[1], labels[target])
    return {"samples": len(target), "accuracy": right, **scores}
