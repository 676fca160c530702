"""The torchmetrics metric: batches, resets; of several processes in `test_shards`."""

import pytest
import torch
from random_views import noisy

from robustbook.agreement import (
    CertificateError,
    PosteriorAgreement,
    _metric,
    calibrate_beta,
    paired_accuracy,
    posterior_agreement,
)

# After the metric, which mends torchvision first.
from torchmetrics import MetricCollection, MetricTracker  # isort: skip


CLEAN, SHIFTED = (view.float() for view in noisy(0, samples=101, classes=4))
WHOLE = posterior_agreement(CLEAN, SHIFTED)
EMPTY = CLEAN[:0], SHIFTED[:0]


def pa(metric):
    return float(metric.compute()["pa"])


@pytest.fixture
def metric():
    return PosteriorAgreement()


OPTIONS = {"prior": [0.4, 0.3, 0.2, 0.1], "tol": 1e-6}


@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_batches_give_the_same_result_as_all_samples_at_once(options):
    metric = PosteriorAgreement(**options)
    buffer = [torch.empty(16, 4), torch.empty(16, 4)]
    for low in range(0, 96, 16):
        # What was added is a copy: the buffers are filled again.
        for place, part in zip(buffer, (CLEAN, SHIFTED), strict=True):
            place.copy_(part[low : low + 16])
        metric.update(*buffer)
    metric.update(*EMPTY)
    metric.update(CLEAN[96:], SHIFTED[96:])
    whole = posterior_agreement(CLEAN, SHIFTED, **options)
    assert metric.agreement().pa == whole.pa
    values = {name: float(value) for name, value in metric.compute().items()}
    assert (values.pop("low"), values.pop("high")) == whole.interval()
    assert values == {name: getattr(whole, name) for name in values}
    with pytest.raises(ValueError, match=r"prior: .*sum to 1"):
        PosteriorAgreement(prior=[0.5, 0.6])


def test_forward_returns_the_value_of_the_batch(metric):
    with pytest.raises(ValueError, match="at least one update"):
        metric.agreement()
    # NaN for one without samples, which loses nothing.
    assert metric(*EMPTY)["pa"].isnan()
    first = metric(CLEAN[:50], SHIFTED[:50])
    assert float(first["pa"]) == posterior_agreement(CLEAN[:50], SHIFTED[:50]).pa
    metric(CLEAN[50:], SHIFTED[50:])
    assert metric(*EMPTY)["pa"].isnan()
    assert pa(metric) == WHOLE.pa


SPOILED = torch.full((3, 4), torch.nan)


@pytest.mark.parametrize("how", ["forward", "update"])
@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ((SPOILED, SPOILED), ValueError, "NaN at index"),
        ((torch.eye(4)[:2], torch.eye(4)), ValueError, "shifted_logits"),
        ((torch.eye(3), torch.eye(3)), ValueError, "expected 4 classes"),
        ((torch.eye(4).bool(), torch.eye(4)), TypeError, "floating-point"),
    ],
)
def test_a_refused_batch_loses_nothing(metric, how, batch, error, message):
    metric(CLEAN[:50], SHIFTED[:50])
    with pytest.raises(error, match=message):
        getattr(metric, how)(*batch)
    metric(CLEAN[50:], SHIFTED[50:])
    assert pa(metric) == WHOLE.pa


def test_forward_loses_nothing_where_a_value_cannot_be_certified(metric, monkeypatch):
    metric(CLEAN, SHIFTED)

    def refuse(*_, **__):
        raise CertificateError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(_metric, "posterior_agreement", refuse)
        with pytest.raises(CertificateError):
            metric(CLEAN[:5], SHIFTED[:5])
    assert pa(metric) == WHOLE.pa
    assert not metric(CLEAN, SHIFTED)["pa"].isnan()


def test_one_value_serves_trackers_and_arithmetic(metric):
    tracker = MetricTracker(PosteriorAgreement(value="pa"), maximize=True)
    for scale in (0.1, 0.2, 1.0):
        tracker.increment()
        tracker.update(CLEAN, torch.lerp(CLEAN, SHIFTED, scale))
    best, step = tracker.best_metric(return_step=True)
    assert step == 0
    assert best == pytest.approx(float(tracker.compute_all().max()))
    twice = 2 * PosteriorAgreement(value="pa")
    twice.update(CLEAN, SHIFTED)
    assert float(twice.compute()) == 2 * WHOLE.pa
    with pytest.raises(ValueError, match="value: expected one of pa, beta"):
        PosteriorAgreement(value="gap")
    assert metric.higher_is_better is None
    with pytest.raises(AttributeError, match="provide the `maximize` argument"):
        MetricTracker(metric)


def test_a_collection_has_all_values_and_a_reset_forgets(metric):
    collection = MetricCollection({"shift": metric})
    collection.update(CLEAN, CLEAN)
    collection.reset()
    collection.update(CLEAN, SHIFTED)
    assert pa(collection) == WHOLE.pa


SOURCE = 2 * CLEAN, CLEAN.argmax(1).where(torch.arange(101) % 5 > 0, 3)


def test_labeled_source_data_add_the_estimated_accuracy():
    metric = PosteriorAgreement(calibrated_on=SOURCE)
    assert metric(*EMPTY)["paired_accuracy"].isnan()
    metric(CLEAN[:50], SHIFTED[:50])
    metric.update(CLEAN[50:], SHIFTED[50:])
    values = {name: float(value) for name, value in metric.compute().items()}
    expected = paired_accuracy(CLEAN, SHIFTED, calibrated_on=SOURCE)
    ends = values["paired_accuracy_low"], values["paired_accuracy_high"]
    assert (values["paired_accuracy"], ends) == (expected.value, expected.interval)
    assert values["pa"] == WHOLE.pa
    three = PosteriorAgreement(calibrated_on=SOURCE, num_views=3)
    three.update(CLEAN, SHIFTED, CLEAN)
    assert float(three.compute()["paired_accuracy"]) == expected.value
    calibration = calibrate_beta(*SOURCE)
    one = PosteriorAgreement(calibrated_on=calibration, value="paired_accuracy")
    one.update(CLEAN, SHIFTED)
    assert float(one.compute()) == expected.value
    with pytest.raises(ValueError, match=r"as the calibration has, got 0\.9"):
        paired_accuracy(CLEAN, SHIFTED, calibrated_on=calibration, level=0.9)
    with pytest.raises(ValueError, match="value: expected one of pa, beta"):
        PosteriorAgreement(value="paired_accuracy")
    with pytest.raises(TypeError, match=r"expected \(logits, labels\)"):
        PosteriorAgreement(calibrated_on=CLEAN)
