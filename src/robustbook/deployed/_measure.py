"""Accuracy under shifts, counted by labels and estimated without them."""

import warnings
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook.agreement import (
    gibbs_posterior,
    log_probabilities,
    paired_accuracy,
    posterior_agreement,
    posterior_overlap,
)
from robustbook.deployed._classifiers import Array, Classifier
from robustbook.deployed._sample import Sample
from robustbook.deployed._shifts import apply_shift, shifts_for
from robustbook.label_free import (
    average_confidence,
    average_thresholded_confidence,
    class_wise_confidence,
    confidence_optimal_transport,
    difference_of_confidences,
    effective_invariance,
    matrix_norm,
    mutual_information,
    nuclear_norm,
)
from robustbook.scores import accuracy, same_answer_rate

Integers = npt.NDArray[np.int64]

#: Columns of :func:`measure_shifts` that estimate the accuracy, ours first.
ESTIMATES: Final = (
    "paired_accuracy",
    "paired_accuracy_isotonic",
    "same_answers",
    "same_answers_times_clean_accuracy",
    "confidence",
    "class_wise_confidence",
    "difference_of_confidences",
    "atc_maximum",
    "atc_entropy",
    "optimal_transport",
    "effective_invariance",
)
#: Columns that only order: sets, or classifiers.
SCORES: Final = (
    "pa",
    "pa_calibrated",
    "nuclear_norm",
    "matrix_norm",
    "mutual_information",
)


def measure_shifts(
    sample: Sample,
    classifier: Classifier,
    *,
    shifts: Iterable[str] | None = None,
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
    shifts : iterable of str, optional
        Keys of BYTE_SHIFTS for files, of TEXT_SHIFTS for texts; all by default.
    seed : int, default 0
        Seed of the halves, and of what is random in the shifts.
    level : float, default 0.95
        Coverage of the interval.

    Returns
    -------
    list of dict
        One row for each shift: its name (``shift``), the number of ``samples``, the
        calibrated ``beta``, ``clean_accuracy`` and ``clean_confidence`` (calibrated, of
        the source), the ``accuracy`` that the labels show, the columns of ESTIMATES,
        the interval (``low``, ``high``) of the first of these, the columns of SCORES,
        and the share of probabilities that are 0 (``zeros``).

    Raises
    ------
    ValueError
        If there is no such shift, or the classifier knows none of the labels.

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
    chosen = list(known) if shifts is None else list(shifts)
    for name in chosen:
        check_choice("shifts", name, known)
    order = np.random.default_rng([seed, 1]).permutation(len(contents))
    source, target = order[: len(order) // 2], order[len(order) // 2 :]
    before = classifier.probabilities(contents)
    zeros = [float((before == 0).mean())]
    rows = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in chosen:
            moved = apply_shift(name, [contents[i] for i in target], seed=seed)
            after = classifier.probabilities(moved)
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
    if len(kept) < len(sample):
        missing = sorted(set(sample.labels) - known)
        warnings.warn(
            f"{len(sample) - len(kept)} of {len(sample)} contents have labels that "
            f"{classifier.name} does not know and were left out: "
            f"{', '.join(missing[:5])}",
            stacklevel=3,
        )
    return kept


def _row(
    before: Array,
    after: Array,
    labels: Integers,
    source: Integers,
    target: Integers,
    level: float,
) -> dict[str, Any]:
    on = log_probabilities(before[source])
    pair = log_probabilities(before[target]), log_probabilities(after)
    known = labels[source]
    estimate = paired_accuracy(*pair, calibrated_on=(on, known), level=level)
    beta = estimate.calibration.beta
    p, q, p_source = (gibbs_posterior(x, beta) for x in (*pair, on))
    with_labels = p_source, known
    thresholded = {
        f"atc_{score}": average_thresholded_confidence(q, with_labels, score=score)
        for score in ("maximum", "entropy")
    }
    clean, same = accuracy(on, known), same_answer_rate(*pair)
    calibrated = posterior_overlap(*pair, beta=beta, log=True)
    return {
        "samples": len(target),
        "beta": beta,
        "clean_accuracy": clean,
        "clean_confidence": average_confidence(p_source),
        "accuracy": accuracy(pair[1], labels[target]),
        "paired_accuracy": estimate.value,
        "low": estimate.interval[0],
        "high": estimate.interval[1],
        "paired_accuracy_isotonic": _isotonic(p, q, p_source, known),
        "same_answers": same,
        "same_answers_times_clean_accuracy": clean * same,
        "confidence": average_confidence(q),
        "class_wise_confidence": class_wise_confidence(q, with_labels),
        "difference_of_confidences": difference_of_confidences(q, with_labels),
        **thresholded,
        "optimal_transport": confidence_optimal_transport(q, known),
        "effective_invariance": effective_invariance(p, q),
        "pa": posterior_agreement(*pair).pa,
        "pa_calibrated": float(calibrated.mean()) + float(np.log(before.shape[1])),
        "nuclear_norm": nuclear_norm(q),
        "matrix_norm": matrix_norm(pair[1]),
        "mutual_information": mutual_information(q),
    }


def _isotonic(p: Tensor, q: Tensor, p_source: Tensor, labels: Integers) -> float:
    """Estimate the accuracy by a rising curve instead of one temperature.

    The curve is fitted to how often, on the source, a class of a given probability is
    the label; all classes share it.
    """
    given, place, counts = np.unique(
        p_source.numpy(), return_inverse=True, return_counts=True
    )
    is_label = np.eye(p_source.shape[1])[labels]
    shares = np.bincount(place.ravel(), is_label.ravel()) / counts
    curve = isotonic_regression(shares, weights=counts).x
    of_answers = p.gather(1, q.argmax(1, keepdim=True)).numpy().ravel()
    return float(np.interp(of_answers, given, curve).mean())
