"""The torchmetrics metric: batches, resets, and two processes with gloo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
import torch

from robustbook.agreement import (
    CertificateError,
    PosteriorAgreement,
    _metric,
    posterior_agreement,
)

# After the metric, which mends torchvision first.
from torchmetrics import MetricCollection, MetricTracker  # isort: skip


def pair(samples: int = 101):
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(samples, 4, generator=generator)
    return clean, clean + torch.randn(samples, 4, generator=generator)


def test_batches_give_the_whole():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    for low in range(0, 101, 16):
        metric.update(clean[low : low + 16], shifted[low : low + 16])
    expected = posterior_agreement(clean, shifted)
    values = metric.compute()
    assert float(values["pa"]) == expected.pa
    assert float(values["beta"]) == expected.beta
    assert float(values["standard_error"]) == expected.standard_error
    assert float(values["hard_part"] + values["confidence_part"]) == pytest.approx(
        expected.pa
    )
    assert metric.agreement().pa == expected.pa


def test_reset_forgets():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    metric.update(clean, clean)
    metric.reset()
    metric.update(clean, shifted)
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_forward_returns_the_value_of_the_batch():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    first = metric(clean[:50], shifted[:50])
    assert float(first["pa"]) == posterior_agreement(clean[:50], shifted[:50]).pa
    metric(clean[50:], shifted[50:])
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_errors_say_what_to_do():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    with pytest.raises(ValueError, match="at least one update"):
        metric.agreement()
    metric.update(clean, shifted)
    with pytest.raises(ValueError, match="expected 4 classes"):
        metric.update(clean[:, :3], shifted[:, :3])
    with pytest.raises(ValueError, match="shifted_logits"):
        metric.update(clean, shifted[:5])
    # A refused batch leaves what was gathered untouched.
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


SPOILED = torch.full((3, 4), torch.nan)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ((SPOILED, SPOILED), ValueError, "NaN at index"),
        ((torch.eye(4)[:2], torch.eye(4)), ValueError, "shifted_logits"),
        ((torch.eye(3), torch.eye(3)), ValueError, "expected 4 classes"),
        ((torch.eye(4).int(), torch.eye(4)), TypeError, "floating-point"),
    ],
)
def test_forward_loses_nothing_by_a_refused_batch(batch, error, message):
    clean, shifted = pair()
    metric = PosteriorAgreement()
    metric(clean[:50], shifted[:50])
    with pytest.raises(error, match=message):
        metric(*batch)
    metric(clean[50:], shifted[50:])
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_forward_loses_nothing_where_a_value_cannot_be_certified(monkeypatch):
    clean, shifted = pair()
    metric = PosteriorAgreement()
    metric(clean, shifted)

    def refuse(*_, **__):
        raise CertificateError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(_metric, "posterior_agreement", refuse)
        with pytest.raises(CertificateError):
            metric(clean[:5], shifted[:5])
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa
    assert not metric(clean, shifted)["pa"].isnan()


def test_forward_of_an_empty_batch_is_nan_and_loses_nothing():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    assert metric(clean[:0], shifted[:0])["pa"].isnan()
    metric(clean, shifted)
    assert metric(clean[:0], shifted[:0])["pa"].isnan()
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_one_value_serves_trackers_and_arithmetic():
    clean, shifted = pair()
    tracker = MetricTracker(PosteriorAgreement(value="pa"))
    for scale in (0.1, 0.2, 1.0):
        tracker.increment()
        tracker.update(clean, torch.lerp(clean, shifted, scale))
    best, step = tracker.best_metric(return_step=True)
    assert step == 0
    assert best == pytest.approx(float(tracker.compute_all().max()))
    twice = 2 * PosteriorAgreement(value="pa")
    twice.update(clean, shifted)
    assert float(twice.compute()) == 2 * posterior_agreement(clean, shifted).pa
    assert PosteriorAgreement(value="standard_error").higher_is_better is False


def test_a_dict_where_one_number_is_wanted_says_so():
    with pytest.raises(TypeError, match='value="pa"'):
        MetricTracker(PosteriorAgreement())
    more = PosteriorAgreement() + 1
    more.update(*pair())
    with pytest.raises(TypeError, match='value="pa"'):
        more.compute()
    with pytest.raises(ValueError, match="value: expected one of pa, beta"):
        PosteriorAgreement(value="gap")


def test_a_collection_has_all_values():
    collection = MetricCollection({"shift": PosteriorAgreement()})
    collection.update(*pair())
    assert float(collection.compute()["pa"]) == posterior_agreement(*pair()).pa


def test_prior_and_tolerance_are_passed_on():
    clean, shifted = pair()
    prior = [0.4, 0.3, 0.2, 0.1]
    metric = PosteriorAgreement(prior=prior, tol=1e-6)
    metric.update(clean, shifted)
    expected = posterior_agreement(clean, shifted, prior=prior, tol=1e-6)
    assert float(metric.compute()["pa"]) == expected.pa


WORKER = """
import json, sys, torch
from robustbook.agreement import PosteriorAgreement
port, rank, *sizes = map(int, sys.argv[1:])
torch.distributed.init_process_group(
    "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(sizes)
)
generator = torch.Generator().manual_seed(0)
clean = torch.randn(101, 4, generator=generator)
shifted = clean + torch.randn(101, 4, generator=generator)
start = sum(sizes[:rank])
metric = PosteriorAgreement()
for low in range(start, start + sizes[rank], 20):
    high = min(low + 20, start + sizes[rank])
    # Shards may come in different precisions.
    both = (part[low:high].to(torch.float64 if rank else torch.float32)
            for part in (clean, shifted))
    metric.update(*both)
pa = float(metric.compute()["pa"])
print(json.dumps([pa, metric.agreement().num_samples]))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("sizes", [[70, 31], [101, 0], [0, 101]])
def test_two_processes_with_unequal_shards(sizes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *map(str, [port, rank, *sizes])],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    expected = posterior_agreement(*pair())
    for worker in workers:
        output, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        pa, samples = json.loads(output)
        assert samples == 101
        assert pa == pytest.approx(expected.pa, abs=1e-12)


def test_updates_keep_copies():
    clean, shifted = pair(60)
    metric = PosteriorAgreement()
    buffer = [torch.empty(20, 4), torch.empty(20, 4)]
    for low in range(0, 60, 20):
        for place, part in zip(buffer, (clean, shifted), strict=True):
            place.copy_(part[low : low + 20])
        metric.update(*buffer)
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_empty_batches_are_accepted():
    clean, shifted = pair()
    metric = PosteriorAgreement()
    metric.update(clean[:0], shifted[:0])
    metric.update(clean, shifted)
    assert float(metric.compute()["pa"]) == posterior_agreement(clean, shifted).pa


def test_a_bad_prior_is_refused_at_once():
    with pytest.raises(ValueError, match=r"prior: .*sum to 1"):
        PosteriorAgreement(prior=[0.5, 0.6])
