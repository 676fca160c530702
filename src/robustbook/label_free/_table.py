"""All scores that one network's logits allow, at one calibrated temperature."""

import math
from typing import Any, Final

import numpy as np
from scipy.optimize import isotonic_regression
from torch import Tensor

from robustbook.agreement import (
    gibbs_posterior,
    paired_accuracy,
    posterior_agreement,
    posterior_overlap,
)
from robustbook.label_free._confidence import (
    average_confidence,
    average_thresholded_confidence,
    class_wise_confidence,
    confidence_optimal_transport,
    difference_of_confidences,
)
from robustbook.label_free._inputs import flat
from robustbook.label_free._orders import (
    effective_invariance,
    matrix_norm,
    mutual_information,
    nuclear_norm,
)
from robustbook.scores import accuracy, same_answer_rate

#: Entries of :func:`score_pairs` that estimate the accuracy, ours first.
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
#: Entries that only order: sets, or classifiers.
SCORES: Final = (
    "pa",
    "pa_calibrated",
    "nuclear_norm",
    "matrix_norm",
    "mutual_information",
)


def score_pairs(
    logits: Any,
    shifted_logits: Any,
    *,
    calibrated_on: tuple[Any, Any],
    level: float = 0.95,
) -> dict[str, float]:
    """Return every estimate of accuracy, and every score to order by, of pairs.

    All but the shares of same answers, Posterior Agreement at its own best β and the
    matrix norm, which takes logits, have the temperature that the labels set.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Of the same inputs before and after the shift; logarithms of probabilities are
        logits, too.
    calibrated_on : tuple
        Logits (M, K) of labeled inputs like those before the shift, and their labels
        (M,).
    level : float, default 0.95
        Coverage of the interval.

    Returns
    -------
    dict
        The calibrated ``beta``, ``clean_accuracy`` and ``clean_confidence`` of the
        labeled inputs, ESTIMATES, the interval (``low``, ``high``) of the first of
        these, and SCORES.

    Raises
    ------
    TypeError, ValueError
        As :func:`~robustbook.agreement.paired_accuracy` does.

    Examples
    --------
    >>> import numpy as np
    >>> logits = 5.0 * np.eye(2)[[0, 1] * 50]
    >>> labels = [0, 1] * 45 + [1, 0] * 5
    >>> row = score_pairs(logits, logits[::-1], calibrated_on=(logits, labels))
    >>> round(row["paired_accuracy"], 2), round(row["confidence"], 2)
    (0.1, 0.9)
    """
    pair, (on, labels) = (logits, shifted_logits), calibrated_on
    estimate = paired_accuracy(*pair, calibrated_on=calibrated_on, level=level)
    beta = estimate.calibration.beta
    p, q, p_source = (gibbs_posterior(x, beta) for x in (*pair, on))
    source = p_source, labels
    clean, same = accuracy(on, labels), same_answer_rate(*pair)
    overlap = posterior_overlap(*pair, beta=beta, log=True)
    return {
        "beta": beta,
        "clean_accuracy": clean,
        "clean_confidence": average_confidence(p_source),
        "paired_accuracy": estimate.value,
        "low": estimate.interval[0],
        "high": estimate.interval[1],
        "paired_accuracy_isotonic": _isotonic(p, q, p_source, labels),
        "same_answers": same,
        "same_answers_times_clean_accuracy": clean * same,
        "confidence": average_confidence(q),
        "class_wise_confidence": class_wise_confidence(q, source),
        "difference_of_confidences": difference_of_confidences(q, source),
        **{
            f"atc_{score}": average_thresholded_confidence(q, source, score=score)
            for score in ("maximum", "entropy")
        },
        "optimal_transport": confidence_optimal_transport(q, labels),
        "effective_invariance": effective_invariance(p, q),
        "pa": posterior_agreement(*pair).pa,
        "pa_calibrated": float(overlap.mean()) + math.log(p.shape[1]),
        "nuclear_norm": nuclear_norm(q),
        "matrix_norm": matrix_norm(shifted_logits),
        "mutual_information": mutual_information(q),
    }


def _isotonic(p: Tensor, q: Tensor, p_source: Tensor, labels: Any) -> float:
    """Estimate the accuracy by a rising curve instead of one temperature.

    The curve is fitted to how often, on the source, a class of a given probability is
    the label; all classes share it.
    """
    given, place, counts = np.unique(
        p_source.numpy(), return_inverse=True, return_counts=True
    )
    is_label = np.eye(p_source.shape[1])[flat(labels).numpy()]
    shares = np.bincount(place.ravel(), is_label.ravel()) / counts
    curve = isotonic_regression(shares, weights=counts).x
    of_answers = p.gather(1, q.argmax(1, keepdim=True)).numpy().ravel()
    return float(np.interp(of_answers, given, curve).mean())
