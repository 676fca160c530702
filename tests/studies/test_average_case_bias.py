"""Who is robust: the statistics are what they say, and tell something from nothing."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway
from sklearn.metrics import roc_auc_score

from robustbook.average_case import linear_exact
from robustbook.datasets import Dataset
from robustbook.models import build_model
from robustbook.studies import _statistics
from robustbook.studies.average_case import _extremes, _survival

pytestmark = pytest.mark.filterwarnings("error")


def test_concordance_counts_pairs():
    p = np.array([0.1, 0.5, 0.5, 1.0])
    # Pairs that differ in p: all but (1, 2). The proxy has (0, 1) wrong, (2, 3) tied.
    proxy = np.array([0.3, 0.2, 0.9, 0.9])
    share, _ = _statistics.share_ordered(proxy, p)
    assert share == pytest.approx((0 + 1 + 1 + 1 + 0.5) / 5)
    assert _statistics.share_ordered(p, p)[0] == 1
    assert _statistics.share_ordered(-p, p)[0] == 0
    assert np.isnan(_statistics.share_ordered(proxy, np.ones(4))[0])


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_errors_of_rank_measures_are_the_spread_of_repetitions(strength):
    generator = np.random.default_rng(1)
    found = []
    for _ in range(300):
        truth = generator.normal(size=120)
        p = np.round(strength * truth + generator.normal(size=120)).clip(-1, 1)
        row = [*_statistics.share_ordered(truth, p)]
        row.append(_statistics.rank_correlation(truth, p))
        row.append(_statistics.rank_correlation_error(truth, p))
        found.append(row)
    values = np.array(found)
    for estimate, error in ((0, 1), (2, 3)):
        spread = values[:, estimate].std(ddof=1)
        assert values[:, error].mean() == pytest.approx(spread, rel=0.15)


def test_error_of_a_rank_correlation_is_the_spread_of_few_values():
    generator = np.random.default_rng(7)
    drawn = generator.normal(size=(1000, 2, 10))
    spread = np.std([_statistics.rank_correlation(*pair) for pair in drawn])
    errors = [_statistics.rank_correlation_error(*pair) for pair in drawn]
    assert np.mean(errors) == pytest.approx(spread, rel=0.08)
    # What is not finite counts neither for the estimate nor for its error.
    first, second = drawn[0]
    more = np.append(first, [np.inf] * 50), np.append(second, np.arange(50.0))
    assert _statistics.rank_correlation_error(*more) == pytest.approx(errors[0])
    assert np.isnan(_statistics.rank_correlation_error(first[:3], second[:3]))


def test_area_within_classes():
    generator = np.random.default_rng(2)
    upper = np.tile([0, 1], 100)
    classes = np.repeat([0, 1], 100)
    found = []
    for _ in range(300):
        # Between classes the values differ much, which must not count.
        values = 100 * classes + upper + generator.normal(size=200)
        found.append(_statistics.area_within_classes(values, upper, classes))
    parts = [roc_auc_score(upper[classes == k], values[classes == k]) for k in (0, 1)]
    assert found[-1][0] == pytest.approx(np.mean(parts))
    areas, errors = np.array(found).T
    assert errors.mean() == pytest.approx(areas.std(ddof=1), rel=0.15)
    # A class with too few values for an error is left out.
    few = np.append(values, 0.0), np.append(upper, 1), np.append(classes, 2)
    assert _statistics.area_within_classes(*few) == found[-1]


def test_class_test_is_calibrated_and_sees_a_difference():
    generator = np.random.default_rng(3)
    classes = np.repeat(np.arange(5), 40)
    values = []
    for _ in range(60):
        p = generator.beta(5, 1, size=200)
        values.append(_statistics.class_differences(p, classes, generator))
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) < 0.2) < 0.4
    shifted = p + 0.2 * (classes == 2)
    assert _statistics.class_differences(shifted, classes, generator) < 0.01
    # Classes that are more alike than chance makes them do not differ.
    alike = np.tile(np.arange(40.0), 5)
    assert _statistics.class_differences(alike, classes, generator) > 0.99
    # As the F test says of classes of unlike sizes; one image is no class.
    unlike = np.append(np.repeat([0, 1, 2], [10, 30, 80]), 3)
    drawn = np.append(generator.normal(size=120), 100.0)
    expected = f_oneway(*(drawn[unlike == k] for k in range(3))).pvalue
    found = _statistics.class_differences(drawn, unlike, generator)
    assert found == pytest.approx(expected, abs=0.03)


def test_noisy_predictions_have_the_right_shares():
    model = build_model("linear", seed=0, options={"size": 2, "num_classes": 3})
    model = model.eval().requires_grad_(False)
    images = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    counts = _survival.noisy_predictions(model, images, [0.2, 0.5], 8000, seed=0)
    assert counts.shape == (2, 4, 3)
    assert (counts.sum(2) == 8000).all()
    exact = linear_exact(model.linear.weight, model.linear.bias, images, [0.2, 0.5])
    kept = counts[:, np.arange(4), exact.labels.numpy()] / 8000
    np.testing.assert_allclose(kept, exact.probability.numpy(), atol=0.02)


def test_a_network_tells_what_can_be_seen_and_nothing_else():
    generator = torch.Generator().manual_seed(4)
    images = 0.5 * torch.rand(120, 1, 8, 8, generator=generator)
    upper = np.tile([0, 1], 60)
    blind = _extremes.separated(images, upper, upper, folds=3)
    assert 0.3 < blind.mean() < 0.7
    images[upper == 1] += 0.4
    seen = _extremes.separated(images, upper, upper, folds=3)
    assert seen.mean() > 0.95


def test_ends_are_those_of_each_class():
    index, upper = _extremes.ends_of_classes(np.arange(12.0), np.array([0, 1] * 6), 2)
    assert index[upper == 0].tolist() == [0, 2, 1, 3]
    assert index[upper == 1].tolist() == [8, 10, 9, 11]
    few, _ = _extremes.ends_of_classes(np.arange(3.0), np.zeros(3, dtype=int), 2)
    assert few.tolist() == [0, 2]
    # One image has no ends.
    ends = _extremes.ends_of_classes(np.array([0.1, 0.2, 0.3]), np.array([0, 0, 1]), 1)
    assert [part.tolist() for part in ends] == [[0, 1], [0, 1]]


def test_properties_are_what_their_names_say():
    images = torch.zeros(3, 3, 8, 8)
    images[1, :, 2:-2, 2:-2] = 1.0  # a white square in the middle
    images[2, 0] = 0.6  # red all over
    found = _extremes.image_properties(images)
    np.testing.assert_allclose(found["brightness"], [0, 0.25, 0.2], atol=1e-6)
    np.testing.assert_allclose(found["saturation"], [0, 0, 0.6], atol=1e-6)
    np.testing.assert_allclose(found["middle against border"], [0, 1, 0], atol=1e-6)
    assert found["contrast"][1] > 0.4
    assert found["edges"][1] == pytest.approx(2 * 8 / 56)
    assert found["edges"][2] == found["contrast"][2] == 0
    assert "saturation" not in _extremes.image_properties(images[:, :1])


def test_interval_of_a_correlation_holds_it():
    generator = np.random.default_rng(5)
    inside, width = 0, []
    for _ in range(60):
        x = generator.normal(size=100)
        y = 0.6 * x + 0.8 * generator.normal(size=100)

        def correlation(index, x=x, y=y):
            return np.corrcoef(x[index], y[index])[0, 1]

        low, high = _statistics.bootstrap_interval(
            correlation, 100, generator, resamples=60
        )
        inside += low < 0.6 < high
        width.append(high - low)
    assert inside >= 50
    # (1 - rho^2) / sqrt(n), both sides of it.
    assert np.mean(width) == pytest.approx(2 * 1.96 * 0.064, rel=0.08)


def test_the_middle_of_known_values():
    values = np.append(np.arange(1001.0), np.nan)
    assert _statistics.middle_95(values) == (25.0, 975.0)


def test_halves_of_the_noise_are_apart():
    images, labels = torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])
    data = Dataset(images, labels, name="halves", split="test", num_classes=2)
    arrays = {
        "logits": np.array([[1.0, 0], [1, 0]]),
        "counts": np.array([[[4, 0], [3, 1]]]),
        "first": np.array([[[2, 0], [1, 1]]]),
    }
    kept = _survival.Survival(data, (0.1,), 4, 0, arrays)
    assert kept.right.tolist() == [True, False]
    assert kept.kept_share.tolist() == [[1, 0.75]]
    assert [half.tolist() for half in kept.halves] == [[1, 0.5], [1, 1]]
    # Neither the halves of one seed nor those of two have any noise in common.
    model = build_model("linear", seed=0, options={"size": 8, "num_classes": 2})
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = Dataset(images, torch.zeros(40, dtype=torch.int64), "halves", "test", 2)
    how = {"sigmas": (2.0,), "draws": 100, "fits": 0}
    halves = []
    for seed in (0, 1):
        found = _survival.measure_survival(model.eval(), data, **how, seed=seed).arrays
        halves += [found["first"], found["counts"] - found["first"]]
    for one, other in itertools.combinations(halves, 2):
        assert (one != other).mean() > 0.5


def test_classes_have_the_mean_of_all_images(average_case_bias):
    frame = average_case_bias.frame(what="class", by="label", among="all")
    for (model, sigma), classes in frame.groupby(["model", "sigma"]):
        mean = average_case_bias.row(what="mean", model=model, sigma=sigma)
        for kind in {"p", "taylor", "mmse"} & mean.keys():
            weighted = np.average(classes[kind], weights=classes.n)
            assert weighted == pytest.approx(mean[kind], abs=1e-4)
