"""The torchmetrics metric: batches, resets, and two processes with gloo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
import torch

from robustbook.agreement import PosteriorAgreement, posterior_agreement


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
