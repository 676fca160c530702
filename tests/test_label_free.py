"""Estimates without labels of the shift, against second forms and hand-made cases."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from robustbook import label_free as lf
from robustbook.label_free._confidence import (
    average_thresholded_confidence,
    confidence_optimal_transport,
    difference_of_confidences,
)
from robustbook.label_free._orders import (
    effective_invariance,
    matrix_norm,
    mutual_information,
    nuclear_norm,
)


def rows(count, classes, seed, sure=2.0):
    random = np.random.default_rng(seed)
    logits = sure * random.normal(size=(count, classes))
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.fixture
def source():
    p = rows(80, 4, 1)
    answers = p.argmax(1)
    wrong = np.random.default_rng(2).random(80) < 0.3
    return p, np.where(wrong, (answers + 1) % 4, answers)


def test_plain_scores_by_their_definitions(source):
    p, labels = source
    q = rows(80, 4, 3, sure=1.0)
    sure = sum(max(row) for row in q) / 80
    assert lf.average_confidence(q) == pytest.approx(sure)
    right = np.mean([max(range(4), key=row.__getitem__) for row in p] == labels)
    fall = np.mean([max(row) for row in p]) - sure
    assert difference_of_confidences(q, source) == pytest.approx(right - fall)
    same = [
        math.sqrt(max(a) * max(b)) * (a.argmax() == b.argmax())
        for a, b in zip(p, q, strict=True)
    ]
    assert effective_invariance(p, q) == pytest.approx(np.mean(same))
    roots = np.sqrt(np.linalg.eigvalsh(q.T @ q))
    assert nuclear_norm(q) == pytest.approx(roots.sum() / math.sqrt(80 * 4))
    divergences = [(row * np.log(row / q.mean(0))).sum() for row in q]
    assert mutual_information(q) == pytest.approx(np.mean(divergences))
    assert mutual_information(q[:1].repeat(9, axis=0)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("score", ["maximum", "entropy"])
def test_the_threshold_is_exact_on_the_source(source, score):
    p, labels = source
    right = float((p.argmax(1) == labels).mean())
    found = average_thresholded_confidence(p, source, score=score)
    assert found == pytest.approx(right)
    wrong = (p, (p.argmax(1) + 1) % 4)
    assert average_thresholded_confidence(p, wrong, score=score) == 0


@pytest.mark.parametrize("classes", [2, 5])
def test_transport_is_the_best_assignment(classes):
    q = rows(60, classes, 7)
    labels = np.random.default_rng(8).integers(classes, size=60)
    gain = q[:, labels]
    best = gain[linear_sum_assignment(gain, maximize=True)].mean()
    assert confidence_optimal_transport(q, labels) == pytest.approx(best)


def test_networks_on_a_line_are_found():
    from scipy.stats import norm

    random = np.random.default_rng(14)
    agreements = random.uniform(0.5, 0.95, size=20)
    accuracies = random.uniform(0.6, 0.9, size=6)

    def shift(share):
        return norm.cdf(0.7 * norm.ppf(share) - 0.2)

    found = lf.agreement_on_the_line(accuracies, agreements, shift(agreements))
    assert found == pytest.approx(shift(accuracies))


def test_each_answer_has_the_temperature_of_its_own_mistakes(source):
    """A fine grid of inverse temperatures, class by class, finds the same."""
    p, labels = source
    q = rows(50, 4, 17, sure=1.5)
    grid = np.geomspace(1e-3, 1e3, 20_001)

    def confidence(row, betas):
        return 1 / ((row / row.max())[None, :] ** betas[:, None]).sum(1)

    total = 0.0
    for answer in range(4):
        known = p[p.argmax(1) == answer]
        share = np.mean(labels[p.argmax(1) == answer] == answer)
        means = np.mean([confidence(row, grid) for row in known], axis=0)
        beta = grid[[int(abs(means - share).argmin())]]
        total += sum(
            float(confidence(row, beta)[0]) for row in q if row.argmax() == answer
        )
    found = lf.class_wise_confidence(q, source)
    assert found == pytest.approx(total / 50, abs=1e-3)
    right = float((p.argmax(1) == labels).mean())
    assert lf.class_wise_confidence(p, source) == pytest.approx(right)


def test_temperatures_at_the_ends_of_their_range():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    q = np.array([[0.6, 0.4], [0.2, 0.8]])
    assert lf.class_wise_confidence(q, (p, [0, 0, 0, 0])) == pytest.approx(0.75)
    never = (p[:2], [0, 1])  # no answer is the second: it takes what all have
    assert lf.class_wise_confidence(q, never) == pytest.approx(0.5)


@pytest.mark.parametrize(("classes", "sure"), [(4, 1.0), (4, 9.0), (200, 9.0)])
def test_the_matrix_norm_is_a_mean_of_powers(classes, sure):
    logits = sure * np.random.default_rng(18).normal(size=(30, classes))
    total, surprise = 0.0, []
    for row in logits:
        surprise.append(math.log(np.exp(row).sum()) - row.mean())
    taylor = np.mean(surprise) <= 5
    assert taylor == (sure == 1.0)
    for row in logits:
        values = [1 + x + x * x / 2 if taylor else math.exp(x) for x in row]
        lowest = min(values) if taylor else 0.0
        mass = sum(value - lowest for value in values)
        total += sum(((value - lowest) / mass) ** 4 for value in values)
    expected = (total / logits.size) ** 0.25
    assert matrix_norm(logits) == pytest.approx(expected)
    assert matrix_norm(np.zeros((5, classes))) == pytest.approx(1 / classes)


def test_two_trainings_disagree_by_answers_and_by_divergences():
    p, q = rows(40, 3, 19), rows(40, 3, 20)
    same = [
        max(range(3), key=a.__getitem__) == b.argmax()
        for a, b in zip(p, q, strict=True)
    ]
    assert lf.generalization_disagreement(p, q) == pytest.approx(np.mean(same))
    far = [
        np.linalg.norm(np.sqrt(a) - np.sqrt(b)) / math.sqrt(2)
        for a, b in zip(p, q, strict=True)
    ]
    found = lf.generalization_disagreement(p, q, by="hellinger")
    assert found == pytest.approx(1 - np.mean(far))
    js = [jensenshannon(a, b, base=2) ** 2 for a, b in zip(p, q, strict=True)]
    found = lf.generalization_disagreement(p, q, by="jensen-shannon")
    assert found == pytest.approx(1 - np.mean(js))
    kl = [entropy(a, b) for a, b in zip(p, q, strict=True)]
    found = lf.generalization_disagreement(p, q, by="kullback-leibler")
    assert found == pytest.approx(1 - np.mean(kl))


def test_disagreement_estimates_the_accuracy_of_a_calibrated_pair():
    """Two answers that are drawn from the truth agree as often as they are right."""
    random = np.random.default_rng(21)
    truth = rows(20_000, 3, 22)
    answers = [[random.choice(3, p=row) for row in truth] for _ in range(3)]
    first, second, labels = (np.eye(3)[answer] for answer in answers)
    with pytest.warns(UserWarning, match="probabilities are 0"):
        found = lf.generalization_disagreement(first, second)
    right = float((first.argmax(1) == labels.argmax(1)).mean())
    assert found == pytest.approx(right, abs=0.015)


@pytest.fixture
def line():
    """One feature, two classes, whose border a shift moves beyond some inputs."""
    random = np.random.default_rng(23)
    x, y = random.normal(size=(2, 2000, 1))
    y = y + 3.0  # Everything is on the right now.
    p, q = (1 / (1 + np.exp(-2 * values)) for values in (x, y))
    p, q = np.hstack([1 - p, p]), np.hstack([1 - q, q])
    return x, y, p, q


def test_a_critic_finds_what_the_best_threshold_finds(line):
    x, y, p, q = line
    known = p.argmax(1)
    bound = lf.disagreement_bound(q, (p, known), features=(x, y))
    chance = math.sqrt(-5 * 2000 * math.log(0.05) / (2 * 2000**2))
    best = -1.0
    for border in np.linspace(-4, 7, 2001):
        for side in (0, 1):
            critics = ((values[:, 0] > border) ^ side for values in (x, y))
            on_source, on_shifted = (
                (critic != answers.argmax(1)).mean()
                for critic, answers in zip(critics, (p, q), strict=True)
            )
            best = max(best, on_shifted - on_source)
    found = 1 - bound - chance
    assert best - 0.1 < found <= best + 1e-9
    tighter = lf.disagreement_bound(q, (p, known), features=(x, y), level=0.5)
    assert tighter > bound


def test_the_bound_holds_where_no_critic_can_be_worse_than_the_truth(line):
    x, _, p, _ = line
    moved = x + 0.7
    q = 1 / (1 + np.exp(-2 * moved))
    q = np.hstack([1 - q, q])
    labels = (x[:, 0] > 0).astype(int)  # The inputs move, the labels do not.
    bound = lf.disagreement_bound(q, (p, labels), features=(x, moved))
    assert bound < float((q.argmax(1) == labels).mean())


@pytest.fixture(scope="module")
def compared():
    """Inputs on which the authors' programs were run once, with their answers below.

    moval 0.3.25 under numpy 2.2.6: ``MOVAL(mode="classification", metric="accuracy",
    confidence_scores=..., estim_algorithm=..., class_specific=...)``, then
    ``fit(np.log(p), labels)`` and ``estimate(np.log(q))``. netcal 1.4.0 under torch
    2.13.0: ``TemperatureScaling().fit(p, labels).temperature``, which is an inverse
    one. nannyml 0.13.1: the multiclass accuracy of CBPE on probabilities that are taken
    for calibrated. (Its own calibration, isotonic by class, has no counterpart here.)
    """
    p, q = rows(200, 4, 31), rows(150, 4, 33, sure=1.5)
    wrong = np.random.default_rng(32).random(200) < 0.35
    return p, np.where(wrong, (p.argmax(1) + 1) % 4, p.argmax(1)), q


def test_estimates_are_those_of_moval_and_nannyml(compared):
    p, labels, q = compared
    source = p, labels
    confidence = lf.average_confidence(q)
    assert confidence == pytest.approx(0.6209573275796909, abs=1e-6)  # moval, ac-model
    assert confidence == pytest.approx(0.6209577363488876, abs=1e-12)
    found = difference_of_confidences(q, source)
    assert found == pytest.approx(0.5475397593729037, abs=1e-6)  # doc-model
    found = lf.class_wise_confidence(q, source)
    assert found == pytest.approx(0.5431693877552042, abs=1e-6)  # ts-model by class
    found = average_thresholded_confidence(q, source)
    assert found == pytest.approx(0.5266666666666666)  # atc-model
    # moval searches for a threshold, and stops beside one of 150 values.
    found = average_thresholded_confidence(q, source, score="entropy")
    assert found == pytest.approx(0.4066666666666667, abs=1 / 150 + 1e-9)


def test_the_temperature_is_that_of_netcal(compared):
    p, labels, q = compared
    row = lf.score_pairs(np.log(q), np.log(q), calibrated_on=(np.log(p), labels))
    assert row["beta"] == pytest.approx(0.28903592, abs=1e-6)
    assert row["confidence"] == pytest.approx(0.3711065681324924, abs=1e-6)


@pytest.fixture(scope="module")
def scored():
    """Pairs whose clean posterior is calibrated at half the temperature of its logits.

    A third of the shifted answers is drawn anew, without regard to the label.
    """
    random = np.random.default_rng(40)
    p = rows(6000, 4, 41)
    truth = np.array([random.choice(4, p=row) for row in p])
    clean = 2 * np.log(p)
    lost = random.random(3000) < 1 / 3
    shifted = clean[3000:] + np.where(lost[:, None], 50 * rows(3000, 4, 42, 9), 0)
    source = clean[:3000], truth[:3000]
    row = lf.score_pairs(clean[3000:], shifted, calibrated_on=source)
    return row, clean[3000:], shifted, source, truth[3000:]


def test_the_estimate_holds_where_the_theorem_does_and_confidence_does_not(scored):
    row, clean, shifted, source, truth = scored
    extra = "beta", "clean_accuracy", "clean_confidence", "low", "high"
    assert set(row) == {*lf.ESTIMATES, *lf.SCORES, *extra}
    assert all(type(value) is float and math.isfinite(value) for value in row.values())
    wide = lf.score_pairs(clean, shifted, calibrated_on=source, level=0.999)
    assert wide["low"] < row["low"] < row["high"] < wide["high"]
    right = float((shifted.argmax(1) == truth).mean())
    assert row["beta"] == pytest.approx(0.5, abs=0.05)
    assert row["low"] < right < row["high"]
    assert row["paired_accuracy"] == pytest.approx(right, abs=0.025)
    assert row["paired_accuracy_isotonic"] == pytest.approx(right, abs=0.03)
    assert row["confidence"] - right > 0.15, "what was drawn anew is sure of itself"
    # Of a changed answer, the product forgets that it is right by luck.
    lucky = (1 - row["clean_accuracy"]) / 12
    product = row["same_answers_times_clean_accuracy"]
    assert right - product == pytest.approx(lucky, abs=0.02)


def test_scores_of_pairs_are_the_functions_at_the_calibrated_temperature(scored):
    row, clean, shifted, (known, labels), _ = scored

    def posterior(z):
        weights = np.exp(row["beta"] * (z - z.max(1, keepdims=True)))
        return weights / weights.sum(1, keepdims=True)

    p, q, source = posterior(clean), posterior(shifted), (posterior(known), labels)
    assert row["effective_invariance"] == pytest.approx(effective_invariance(p, q))
    assert row["nuclear_norm"] == pytest.approx(nuclear_norm(q))
    assert row["atc_entropy"] == pytest.approx(
        average_thresholded_confidence(q, source, score="entropy"), abs=1e-3
    )
    assert row["optimal_transport"] == pytest.approx(
        confidence_optimal_transport(q, labels)
    )
    answers = q.argmax(1)
    assert row["paired_accuracy"] == pytest.approx(p[range(3000), answers].mean())
    assert row["pa_calibrated"] == pytest.approx(np.log(4 * (p * q).sum(1)).mean())
    assert row["pa_calibrated"] <= row["pa"]


def test_scores_of_pairs_do_not_depend_on_scale_order_or_names_of_classes(scored):
    row, clean, shifted, (known, labels), _ = scored
    turn = np.array([2, 0, 3, 1])
    back = np.argsort(turn)
    order = np.random.default_rng(43).permutation(3000)
    again = lf.score_pairs(
        3 * clean[order][:, turn] + 5,
        3 * shifted[order][:, turn] - 2,
        calibrated_on=(3 * known[:, turn], back[labels]),
    )
    assert again.pop("beta") == pytest.approx(row["beta"] / 3, rel=1e-6)
    # The matrix norm takes logits as they are.
    again.pop("matrix_norm")
    for name, value in again.items():
        assert value == pytest.approx(row[name], abs=2e-3), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: lf.average_confidence(3 * q), "sum to 1"),
        (lambda q: lf.average_confidence(-q), "are they logits"),
        (lambda q: effective_invariance(q, q[:2]), "clean"),
        (lambda q: difference_of_confidences(q, q[:, 0]), "a pair"),
        (lambda q: difference_of_confidences(q, (rows(9, 3, 0), [0] * 9)), "4 classes"),
        (lambda q: average_thresholded_confidence(q, (q, [4] * 20)), "source labels"),
        (lambda q: confidence_optimal_transport(q, [0.5]), "source_labels"),
        (lambda q: lf.class_wise_confidence(q, q[:, 0]), "a pair"),
        (lambda q: matrix_norm(q[0]), "shifted_logits"),
        (lambda q: lf.generalization_disagreement(q, q[:2]), "first"),
        (lambda q: lf.generalization_disagreement(q, q, by="x"), "by: expected one of"),
        (
            lambda q: lf.disagreement_bound(q, (q, [0] * 20), features=(q, q[:3])),
            r"features: expected shape \(20, D\) of the shifted inputs",
        ),
        (lambda q: lf.agreement_on_the_line([1.0], *2 * [[0.5, 0.6]]), "source_accura"),
        (lambda q: lf.agreement_on_the_line([0.9], *2 * [[0.5, 0.5]]), "different"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(torch.tensor(rows(20, 4, 16)))
