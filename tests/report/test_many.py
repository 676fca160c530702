"""Many models on the same images: a row each, paired, and why one has none."""

import json
import math

import numpy as np
import pytest
import torch

from robustbook._comparison import paired_means, paired_rates
from robustbook.agreement import symmetric_channel_capacity
from robustbook.lenses import three_lenses
from robustbook.models import load_model
from robustbook.report import read_images
from robustbook.report._many import read_models

NETS = """
import torch
def broken():
    raise RuntimeError("no weights")
def stopped():
    raise KeyboardInterrupt
def small():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
def likely():
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.Softmax(dim=1)
    )
def constant():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    for values in model.parameters():
        torch.nn.init.zeros_(values)
    return model
"""
LIST = """
# Of the book, and mine.
digits-linear        # the first that can be measured
no-such-model

own_nets:broken
own_nets:small
digits-cnn-adv-s0
"""


@pytest.fixture
def run(command, tmp_path):
    """Return the command line in a folder with a list of models."""
    (tmp_path / "models.txt").write_text(LIST)
    shared = ["--data=digits:test", "--images=12", "--skip=average-case,margins"]
    return lambda *words, engine="local:1": command(*words, *shared, "--engine", engine)


def test_models_are_compared_on_the_same_images_and_failures_have_reasons(run):
    result = run("compare", "models.txt", "--json")
    assert result.exit_code == 1, result.output
    numbers = json.loads(result.stdout)
    assert numbers["reference"] == "digits-linear"
    rows = {row["model"]: row for row in numbers["models"]}
    lines = [line.split("#")[0].strip() for line in LIST.splitlines()]
    assert [*rows] == [name for name in lines if name]
    reasons = {name: row["error"] for name, row in rows.items() if "error" in row}
    assert [*reasons] == ["no-such-model", "own_nets:broken", "own_nets:small"]
    assert "expected a model" in reasons["no-such-model"]
    assert "no weights" in reasons["own_nets:broken"]
    assert "3 classes, but digits:test has 10" in reasons["own_nets:small"]

    # The same, measured by hand.
    images = read_images("digits:test").draw(12, seed=0)
    options = {"skip": ("average-case", "margins"), "batch_size": 64}
    linear, adversarial = (
        three_lenses(load_model(name).eval(), images.images, images.labels, **options)
        for name in ("digits-linear", "digits-cnn-adv-s0")
    )
    measured = rows["digits-cnn-adv-s0"]["measures"]
    under_attack = adversarial.agreements["adversarial"].pa
    assert measured["PA, attack"]["value"] == pytest.approx(under_attack)
    noise = [one.agreements["noise"].per_sample for one in (adversarial, linear)]
    # Not one answer changed; of a dozen images, three in another dozen may.
    unseen = math.log(10) - symmetric_channel_capacity(3 / 12, 10)
    expected = paired_means(*noise, unseen)
    got = measured["PA, noise"]["difference"]
    assert got["value"] == pytest.approx(expected.value, abs=1e-12)
    assert got["interval"] == pytest.approx(expected.interval, abs=1e-12)
    rates = paired_rates(adversarial.correct, linear.correct)
    assert measured["accuracy"]["difference"]["interval"] == list(rates.interval)
    assert rows["digits-linear"]["measures"]["accuracy"]["difference"] is None


def test_the_page_has_a_row_for_each_model(run, tmp_path, monkeypatch):
    first = run("compare", "models.txt")
    assert first.exit_code == 1, first.output
    assert "digits-cnn-adv-s0" in first.stdout
    assert "own_nets:broken: not measured: " in first.stdout

    def measured(*_, **__):
        raise AssertionError("measured again")

    method = "robustbook.lenses._evaluator.Evaluator.shifted_logits"
    monkeypatch.setattr(method, measured)
    result = run("report", "models.txt", "--out=page.html", "--json=all.json")
    assert result.exit_code == 1, result.output
    assert result.stdout == "page.html: 2 of 5 models\n"
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('<th scope="row">') == 5
    assert page.count("not measured: ") == 3
    assert "http" not in page.replace("https://robustness-measured.github.io", "")
    assert json.loads((tmp_path / "all.json").read_text())["models"][0]["measures"]


def test_an_interrupted_list_keeps_the_models_so_far(run, tmp_path, monkeypatch):
    (tmp_path / "models.txt").write_text("digits-linear\nown_nets:stopped\n")
    result = run("compare", "models.txt")
    assert result.exit_code == 130
    assert "interrupted; the same command continues" in result.stderr

    def measured(*_, **__):
        raise AssertionError("measured again")

    method = "robustbook.lenses._evaluator.Evaluator.shifted_logits"
    monkeypatch.setattr(method, measured)
    (tmp_path / "models.txt").write_text("digits-linear\n")
    assert run("compare", "models.txt").exit_code == 0


@pytest.mark.filterwarnings("default")
def test_remarks_name_the_model_and_failures_keep_the_order(run, tmp_path):
    (tmp_path / "models.txt").write_text(
        "own_nets:small\ndigits-linear\nown_nets:constant\nown_nets:broken\n"
        "own_nets:likely\n"
    )
    result = run("compare", "models.txt")
    remarks = (
        "own_nets:constant: it names class 0 for all",
        "own_nets:likely: rows are not negative and sum to 1",
    )
    for remark in remarks:
        assert f"robustbook: {remark}" in result.stderr
        assert remark in result.stdout
    assert result.stdout.index("own_nets:small: not") < result.stdout.index(
        "own_nets:broken: not"
    )


@pytest.mark.slow
def test_several_processes_give_the_numbers_of_one(run, tmp_path, monkeypatch):
    numbers = []
    for engine in ("local:1", "local:2"):
        monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path / engine))
        result = run("compare", "models.txt", "--json", engine=engine)
        numbers.append(json.loads(result.stdout))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected different models, one a line; got none"),
        ("# nothing\n", "expected different models, one a line; got none"),
        ("a\nb\na # again\n", "one a line; got a twice"),
    ],
)
def test_invalid_lists_of_models_are_refused(tmp_path, text, said):
    (tmp_path / "models.txt").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_models(tmp_path / "models.txt")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "models.txt", "--out=p.html", "--minutes=1"], "--minutes: for one"),
        (["report", "models.txt", "--out=p.html", "--calibrate=digits"], "--calibra"),
        (["compare", "models.txt", "b.npy"], "expected four files"),
        (["compare", "models.txt", "--labels=y.npy"], "--labels: for four files"),
        (["compare", "models.txt", "--tol=0.1"], "--tol: for four files"),
        (["compare", "a", "b", "c", "d"], "--data: for a list of models"),
        (["report", "none.txt", "--out=p.html"], "none.txt: expected a text file"),
    ],
)
def test_options_that_do_not_fit_many_models_are_refused(run, words, said):
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_paired_means_are_those_of_the_differences():
    one, other = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 1.0, 1.0])
    difference = paired_means(one, other)
    assert difference.value == pytest.approx(4 / 3)
    error = np.std([0, 1, 3], ddof=1) / 3**0.5
    assert difference.standard_error == pytest.approx(error)
    half = 4.302653 * error  # Student's t of two degrees of freedom
    assert difference.interval == pytest.approx((4 / 3 - half, 4 / 3 + half))
    assert paired_means(one, one, 0.2).interval == (-0.2, 0.2)


@pytest.mark.parametrize(
    ("model", "status", "said"),
    [
        ("digits-linear", 0, "page.html: 1 of 1 models\n"),
        ("own_nets:broken", 1, "no model could be measured: own_nets:broken: "),
    ],
)
def test_the_command_succeeds_where_all_models_are_measured(
    run, tmp_path, model, status, said
):
    (tmp_path / "models.txt").write_text(f"{model}\n")
    result = run("report", "models.txt", "--out=page.html")
    assert result.exit_code == status
    assert said in result.output
