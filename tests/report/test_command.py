"""``robustbook report``, from the model's name to the page."""

import json
import os
import re
import sys
import time
import warnings

import numpy as np
import pytest
import torch

from robustbook._defaults import LENSES
from robustbook.agreement import calibrate_beta
from robustbook.datasets import load_dataset
from robustbook.lenses import Settings, three_lenses
from robustbook.lenses._evaluator import Evaluator
from robustbook.models import load_model
from robustbook.report import Request, read_images, read_report
from robustbook.report._measure import check_fit
from robustbook.report._pilot import (
    largest_draw,
    lens_seconds,
    time_lenses,
    time_pass,
)

FAST = (
    "--images=12",
    "--attack-steps=2",
    "--noise-samples=16",
    "--margin-images=3",
    "--device=cpu",
)

NETS = """
from collections import namedtuple

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, after=lambda logits: logits, *, before=lambda x: x, classes=4):
        super().__init__()
        self.before, self.after = before, after
        self.linear = nn.Linear(48, classes)
        nn.init.normal_(self.linear.weight, generator=torch.Generator().manual_seed(0))
        nn.init.zeros_(self.linear.bias)

    def forward(self, images):
        return self.after(self.linear(self.before(images).flatten(1)))


class Counts(Net):
    def __init__(self):
        super().__init__()
        count = nn.Parameter(torch.zeros(1, dtype=torch.int8), requires_grad=False)
        self._parameters = {"count": count, **self._parameters}


def picked(images):
    return images if len(images) <= 2 else {}["w"]


def mended():
    net = output()
    net.register_forward_hook(lambda module, images, output: output.logits)
    return net


def leave():
    raise SystemExit(0)


Output = namedtuple("Output", "logits")
Changes = lambda: Net(before=lambda images: images.sub_(0.5))
Picky = lambda: Net(before=picked)
single = lambda: Net(classes=1)
small = lambda: Net().half()
frozen = lambda: Net(lambda logits: logits.detach())
half = lambda: Net(lambda logits: logits[:1])
likely = lambda: Net(lambda logits: logits.softmax(1))
same = lambda: Net(lambda logits: 0 * logits + torch.tensor([0.0, 1, 0, 0]))
output = lambda: Net(Output)
named = lambda: Net(lambda logits: {"loss": 0, "logits": logits})
pair = lambda: Net(lambda logits: (logits, None))
array = lambda: Net(lambda logits: logits.detach().numpy())
"""


@pytest.fixture
def run(command, tmp_path):
    """Return ``robustbook report`` in a folder with data of its own."""
    rng = np.random.default_rng(0)
    images = rng.random((20, 3, 4, 4), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(20) % 4)
    np.savez(tmp_path / "bare.npz", images=(255 * images).astype(np.uint8))
    np.savez(tmp_path / "five.npz", images=images, labels=np.arange(20) % 5)
    np.savez(tmp_path / "few.npz", images=images[:5])
    np.savez(tmp_path / "other.npz", images=images, y=np.arange(20) % 4)
    os.mkfifo(tmp_path / "pipe")

    def report(model, data, *words, out="page.html"):
        return command("report", model, "--data", data, "--out", out, *FAST, *words)

    return report


def test_a_known_model_on_known_data(run, tmp_path):
    result = run("digits-linear", "digits", "--json", "all.json", "--eps=0.1")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"page\.html: .* s\n", result.stdout)
    numbers = read_report(tmp_path / "page.html")
    named = {"model": "digits-linear", "data": "digits:test", "images": 12}
    assert (named | {"device": "cpu"}).items() <= numbers.items()
    assert numbers["settings"]["eps"] == 0.1
    assert numbers["margins"]["measured"] == 3
    whole = json.loads((tmp_path / "all.json").read_text())
    scores = whole.pop("per_image")
    assert whole == numbers
    assert len(scores["position"]) == len(scores["logit margin"]) == 12
    assert sum(margin is not None for margin in scores["input margin"]) == 3
    names = {path.name for path in tmp_path.iterdir()}
    assert {"page.html", "all.json"} <= names
    # What lies here is imported for import paths only.
    assert str(tmp_path) not in sys.path
    assert not [name for name in names if name.startswith(".")]


@pytest.mark.parametrize(
    ("model", "data", "labeled", "said"),
    [
        ("Net", "mine.npz", True, ""),
        ("Net", "bare.npz", False, ""),
        ("Net", "other.npz", False, "other.npz: no array is named labels (but y)"),
        ("mended", "mine.npz", True, ""),
    ],
)
def test_a_model_and_data_of_the_user(run, tmp_path, model, data, labeled, said):
    result = run(f"own_nets:{model}", data)
    assert result.exit_code == 0, result.output
    assert said in result.stderr
    numbers = read_report(tmp_path / "page.html")
    assert (numbers["classes"], numbers["data"]) == (4, data)
    assert (numbers["accuracy"] is not None) == labeled


@pytest.mark.parametrize(
    ("model", "data", "words", "said"),
    [
        ("oak", "digits", (), "'oak'"),
        ("own_nets:oak", "mine.npz", (), "module 'own_nets' has no attribute 'oak'"),
        ("oak_nets:net", "mine.npz", (), "No module named 'oak_nets'"),
        ("digits-linear", "oak", (), "expected one of digits:{train,test}"),
        ("digits-linear", "oak.npz", (), "oak.npz: no such file"),
        ("digits-linear", "mine.npz", (), "images of 3x4x4, as mine.npz has them, do"),
        ("own_nets:Net", "digits", (), "images of 1x8x8, as digits:test has them, do"),
        ("own_nets:single", "mine.npz", (), "logits of shape (2, K) with K of at lea"),
        ("own_nets:half", "mine.npz", (), "logits of shape (2, K)"),
        ("own_nets:frozen", "mine.npz", (), "got logits without a gradient"),
        ("own_nets:Net", "five.npz", (), "4 classes, but a label of five.npz is 4"),
        ("own_nets:Net", "few.npz", (), "few.npz: images: expected at least 10, got 5"),
        ("digits-linear", "digits", ("--eps=eight",), "--eps: expected a number such"),
        ("digits-linear", "digits", ("--sigma=0",), "--sigma: expected a positive"),
        ("digits-linear", "digits", ("--device=oak",), "device: "),
        ("digits-linear", "digits", ("--out=none/page.html",), "no such folder: none"),
        ("digits-linear", "digits", ("--out=.",), "expected a plain file, got a fo"),
        ("digits-linear", "digits", ("--json=none/a.json",), "no such folder: none"),
        (
            "digits-linear",
            "digits",
            ("--json=page.html",),
            "--json: expected different fi",
        ),
        (
            "own_nets:Net",
            "mine.npz",
            ("--out=mine.npz",),
            "--json: expected different fi",
        ),
        ("digits-linear", "digits", ("--out=pipe",), "pipe: expected a plain file"),
        ("digits-linear", "digits", ("--engine=oak",), "--engine: for a list of mod"),
        ("own_nets:leave", "mine.npz", (), "got SystemExit: 0"),
        ("own_nets:small", "mine.npz", (), "float16; call model.float() first"),
        ("own_nets:output", "mine.npz", (), "logits, got Output; after creating the m"),
        ("own_nets:output", "mine.npz", (), "lambda module, images, output: output.lo"),
        ("own_nets:named", "mine.npz", (), "images, output: output['logits'])"),
        ("own_nets:pair", "mine.npz", (), "images, output: output[0])"),
        ("own_nets:array", "mine.npz", (), "numpy.save the logits and score them with"),
        ("own_nets:Net", "mine.npz", ("--skip=noise",), "--skip: expected one or two"),
        ("own_nets:Net", "mine.npz", ("--minutes=-1",), "--minutes: expected a posit"),
        ("own_nets:Net", "mine.npz", ("--minutes=1e-6",), "10 images, the fewest, ta"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    run, tmp_path, model, data, words, said
):
    (tmp_path / "page.html").write_text("an older page")
    result = run(model, data, *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("robustbook: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert (tmp_path / "page.html").read_text() == "an older page"


def test_too_few_images_are_an_error_of_the_option(run):
    result = run("digits-linear", "digits", "--images=3")
    assert (result.exit_code, "--images" in result.stderr) == (2, True)


@pytest.mark.filterwarnings("default")
def test_a_warning_if_there_are_fewer_images_than_asked_for(run):
    result = run("own_nets:Net", "mine.npz", "--images=21", "--skip=margins")
    said = "robustbook: --images 21: mine.npz has 20 images; all of them are measured"
    assert said in result.stderr
    assert "--images" not in run("own_nets:Net", "mine.npz", "--skip=margins").stderr


def test_an_error_names_a_model_that_fails_later(run, tmp_path):
    result = run("own_nets:Picky", "mine.npz")
    assert result.exit_code == 1
    assert "own_nets:Picky: KeyError while it was measured: 'w'" in result.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["Changes", "Counts"])
def test_unusual_models_are_accepted(run, tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = read_images("mine.npz")
    before = mine.images.clone()
    check_fit(load_model(f"own_nets:{name}"), mine, name)
    assert torch.equal(mine.images, before)


def test_a_long_name(run, tmp_path):
    name = "a" * 245 + ".html"
    assert run("digits-linear", "digits", out=name).exit_code == 0
    assert read_report(tmp_path / name)["model"] == "digits-linear"


def test_the_forecast_and_the_time_limit(run, command, tmp_path):
    result = run("own_nets:Net", "mine.npz", "--skip=margins,average-case")
    (line,) = result.stderr.splitlines()
    assert re.match(
        r"robustbook: about \d+ s for 12 images \(agreement \d+ s\)",
        line,
    )
    assert read_report(tmp_path / "page.html")["average_case"] is None
    words = ["--data=mine.npz", "--out=page.html", *FAST[1:], "--minutes=60"]
    said = command("report", "own_nets:Net", *words).stderr
    assert re.search(r"for 20 images \(.*, 3 input margins \d+ s\)", said)
    assert "; shares are known to ± 22 percentage points or better; after" in said
    assert read_report(tmp_path / "page.html")["images"] == 20


def test_an_interrupted_report_goes_on(run, command, tmp_path, monkeypatch):
    """With as many images, although a second pilot would find room for others."""
    words = ["--data=mine.npz", "--out=page.html", *FAST[1:], "--skip=margins"]
    words = ["report", "own_nets:Net", *words, "--json=all.json", "--minutes=10"]
    shifts, now = [], [0.0]
    method = Evaluator.shifted_logits
    monkeypatch.setattr(
        "robustbook.report._measure.time_lenses",
        lambda *_: {"agreement": now[0] + 40, "average-case": 0.0},
    )

    def shifted_logits(evaluator, shift):
        if len(shifts) == 3:
            shifts.append("interrupted")
            raise KeyboardInterrupt
        shifts.append(shift)
        return method(evaluator, shift)

    monkeypatch.setattr(Evaluator, "shifted_logits", shifted_logits)
    result = command(*words)
    assert result.exit_code == 130
    assert "after an interruption, the same command continues" in result.stderr
    assert "robustbook: interrupted; the same command continues" in result.stderr
    assert not (tmp_path / "page.html").exists()
    now[0] = -30.0
    for _ in range(2):
        result = command(*words)
        assert result.exit_code == 0, result.output
        assert (
            "continuing an earlier run of this command, on 13 images" in result.stderr
        )
        assert len(shifts) == len({*shifts}) == 1 + 7
    resumed = json.loads((tmp_path / "all.json").read_text())
    assert resumed["images"] == 13

    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path / "another"))
    now[0] = 0.0
    assert command(*words).exit_code == 0
    at_once = json.loads((tmp_path / "all.json").read_text())
    for numbers in (resumed, at_once):
        numbers.pop("seconds")
    assert resumed == at_once


def test_a_pilot_forecasts_the_time_of_a_slow_model(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    linear = load_model("digits-linear")

    class Slow(torch.nn.Module):
        def forward(self, images):
            now[0] += 0.02 * len(images)
            return linear(images)

    images, settings = load_dataset("digits", "test").images[:12], Settings()
    times = time_lenses(Slow(), images, settings, LENSES)
    for lens in LENSES:
        start, skip = now[0], {*LENSES} - {lens}
        three_lenses(Slow(), images, skip=skip, margin_images=12, batch_size=12)
        assert 12 * times[lens] == pytest.approx(now[0] - start, rel=0.1), lens


def test_a_pass_is_timed_on_more_images_if_it_is_fast(monkeypatch):
    counts, now = [], [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def run(count):
        counts.append(count)
        now[0] += 0.1 + 0.01 * count

    assert time_pass(run, 100) == pytest.approx(0.42 / 32)
    assert counts == [1, 2, 4, 8, 16, 32]
    for available, count in ((3, 2), (4, 4)):
        assert time_pass(run, available) == pytest.approx(0.1 / count + 0.01)


def test_as_many_images_as_fit_are_taken():
    times = {"agreement": 0.3, "margins": 20.0}
    for minutes in (5, 20):
        count, margins = largest_draw(times, 5000, 100, 60 * minutes)
        assert margins == min(100, count // 2)
        assert sum(lens_seconds(times, count, margins).values()) <= 60 * minutes
        more = lens_seconds(times, count + 1, min(100, (count + 1) // 2))
        assert sum(more.values()) > 60 * minutes
    assert largest_draw(times, 5000, 100, 20) is None
    assert largest_draw(times, 5000, 100, 1e9) == (5000, 100)
    assert largest_draw(times, 60, 100, 1e9) == (60, 60)


@pytest.mark.filterwarnings("ignore:calibration")
def test_labeled_images_that_are_not_measured_calibrate(run, tmp_path):
    skip = "--skip=average-case,margins"
    assert run("digits-linear", "digits", skip, "--json=all.json").exit_code == 0
    numbers = json.loads((tmp_path / "all.json").read_text())
    estimates = numbers["accuracy_estimates"]
    assert estimates["calibration"]["num_samples"] == 120
    # The measured images and those of the calibration do not overlap.
    request = Request(model="digits-linear", data="digits", images=12)
    pool = read_images("digits")
    rest = request.calibration_images(pool, 12)
    assert numbers["per_image"]["position"] == request.draw(pool).positions.tolist()
    assert not {*numbers["per_image"]["position"]} & {*rest.positions.tolist()}
    source = load_model("digits-linear")(rest.images).detach(), rest.labels
    beta = estimates["calibration"]["beta"]
    assert beta == pytest.approx(calibrate_beta(*source).beta, rel=1e-5)
    # Images without labels take those of another set; without any, there is none.
    pixels = pool.images[:20].numpy()
    np.savez(tmp_path / "unlabeled.npz", images=pixels)
    assert run("digits-linear", "unlabeled.npz", skip).exit_code == 0
    assert "accuracy_estimates" not in read_report(tmp_path / "page.html")
    result = run("digits-linear", "unlabeled.npz", skip, "--calibrate=digits:train")
    assert result.exit_code == 0, result.output
    found = read_report(tmp_path / "page.html")["accuracy_estimates"]["calibration"]
    assert found["num_samples"] == 120


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("bare.npz", "bare.npz: expected images with labels, other than those"),
        ("mine.npz", "mine.npz: expected images with labels, other than those"),
        ("five.npz", "4 classes, but a label of five.npz is 4"),
        ("digits", "images of 1x8x8, as digits:test has them, do not fit this model"),
    ],
)
def test_calibration_images_that_do_not_fit_are_refused(run, source, said):
    result = run("own_nets:Net", "mine.npz", "--calibrate", source)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert said in result.stderr


@pytest.mark.parametrize("package", ["jinja2", "foolbox", "pyautoattack"])
def test_a_missing_package_is_reported_first(run, monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    for user in (
        "attacks.foolbox_runs",
        "attacks.pyautoattack_runs",
        "margins._recipe",
    ):
        monkeypatch.delitem(sys.modules, f"robustbook.{user}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    result = run("own_nets:Net", "mine.npz")
    assert result.exit_code == 1
    assert f"robustbook: {package} is not installed; pip install" in result.stderr


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("model", "remark", "title"),
    [
        ("same", "it names class 1 for all 12 images", "One class for all images."),
        ("likely", "rows are not negative and sum to 1", "Probabilities instead of lo"),
        ("Net", "", ""),
    ],
)
def test_warnings_of_misleading_numbers(run, tmp_path, model, remark, title):
    result = run(f"own_nets:{model}", "mine.npz")
    assert result.exit_code == 0, result.output
    assert f"robustbook: model: {remark}" in result.stderr or not remark
    assert ("robustbook: model: " in result.stderr) == bool(remark)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert title in page
    assert page.count('class="warning"') == bool(remark)


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(run, monkeypatch):
    def warn(_):
        warnings.warn("the noise\n is small", stacklevel=1)
        return 3.0

    monkeypatch.setattr("robustbook.report.make", warn)
    result = run("digits-linear", "digits")
    assert result.exit_code == 0, result.output
    assert result.stderr == "robustbook: the noise is small\n"


@pytest.mark.parametrize(
    ("model", "options", "strengths"),
    [
        ("digits-cnn-adv-s0", {}, (0.15, 0.1)),
        ("digits-cnn-noise-s0", {}, (8 / 255, 0.3)),
        ("digits-cnn-adv-s0", {"eps": "0.05", "sigma": 0.2}, (0.05, 0.2)),
        ("nets:Net", {}, (8 / 255, 0.1)),
    ],
)
def test_strengths_default_to_those_of_the_training(
    model, options, strengths, tmp_path
):
    out = tmp_path / "page.html"
    request = Request(model=model, data="digits:test", out=out, **options)
    assert (request.settings.eps, request.settings.sigma) == strengths
