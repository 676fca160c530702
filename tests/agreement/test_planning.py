"""How many pairs a comparison needs, and intervals for pairs that come in groups."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustbook.agreement import (
    calibrate_beta,
    compare_agreement,
    interval_by_groups,
    paired_accuracy,
    pairs_needed,
    posterior_agreement,
)
from robustbook.cli import app


def two_models(samples, seed):
    """Clean logits, and those of two models under a mild and a stronger shift."""
    generator = torch.Generator().manual_seed(seed)
    clean, noise, other = 3 * torch.randn(3, samples, 4, generator=generator)
    return clean, clean + noise / 3, clean + noise / 4 + other / 3


def test_the_planned_number_of_pairs_finds_the_difference_in_four_of_five_studies():
    clean, mild, strong = two_models(40_000, 0)
    pilot = compare_agreement(clean, mild, clean, strong)
    deviation = pilot.standard_error * math.sqrt(len(clean))
    needed = pairs_needed(pilot.value, deviation)
    found = 0
    for seed in range(400):
        clean, mild, strong = two_models(needed, 1 + seed)
        low, _ = compare_agreement(clean, mild, clean, strong).interval
        found += low > 0
    # Binomial(400, 0.8) has a standard deviation of 0.02; three of them.
    assert needed < 400
    assert found / 400 == pytest.approx(0.8, abs=0.06)


def test_a_plan_follows_the_formula_of_the_two_sided_test():
    # (1.960 + 0.842)² = 7.849, and 1.960² / 2 = 1.92 for Student's quantile.
    assert pairs_needed(-0.1, 1.0) == math.ceil(784.9 + 1.92)
    assert pairs_needed(100.0, 1.0) == 2
    assert pairs_needed(0.1, 1.0, power=0.9) > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"difference": 0.0, "deviation": 1.0}, "difference: expected a positive"),
        ({"difference": 0.1, "deviation": math.nan}, "deviation"),
        ({"difference": 0.1, "deviation": 1.0, "power": 0.3}, "power: expected .* 0.5"),
        ({"difference": 0.1, "deviation": 1.0, "power": 1.0}, "power"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        pairs_needed(**words)


def patients(groups, seed):
    """Pairs of patients whose images shift by their own amount, in their own way."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 20, (groups,), generator=generator)
    number = torch.repeat_interleave(torch.arange(groups), sizes)
    strength, way = (
        torch.randn(groups, 1, generator=generator).exp(),
        torch.randn(groups, 4, generator=generator),
    )
    clean, noise = torch.randn(2, len(number), 4, generator=generator)
    shifted = 3 * clean + 2 * strength[number] * (noise + way[number])
    return 3 * clean, shifted, number


def test_intervals_by_groups_cover_where_others_do_not():
    generator = torch.Generator().manual_seed(1)
    source = 3 * torch.randn(4000, 4, generator=generator)
    labels = source.softmax(1).multinomial(1, generator=generator)[:, 0]
    calibration = calibrate_beta(source, labels)
    clean, shifted, _ = patients(4000, 0)
    truth = (
        posterior_agreement(clean, shifted).pa,
        paired_accuracy(clean, shifted, calibrated_on=calibration).value,
    )
    covered = np.zeros((2, 2))
    for seed in range(200):
        clean, shifted, number = patients(20, 2 + seed)
        agreement = posterior_agreement(clean, shifted)
        accuracy = paired_accuracy(clean, shifted, calibrated_on=calibration)
        both = agreement.interval(), accuracy.interval
        for row, (result, plain) in enumerate(
            zip((agreement, accuracy), both, strict=True)
        ):
            grouped = interval_by_groups(result, number).interval
            for column, (low, high) in enumerate((plain, grouped)):
                covered[row, column] += low <= truth[row] <= high
    # Binomial(200, 0.95): four sigma below the nominal level is 0.888.
    assert (covered[:, 1] / 200 >= 0.888).all()
    assert (covered[:, 0] / 200 < 0.888).all()


@pytest.mark.parametrize("estimate", ["agreement", "accuracy"])
def test_groups_that_are_alike_within_count_as_one_sample_each(estimate):
    clean, shifted = two_models(100, 5)[:2]

    def measured(*pair):
        if estimate == "agreement":
            return posterior_agreement(*pair)
        return paired_accuracy(*pair, calibrated_on=source)

    source = calibrate_beta(clean, clean.softmax(1).multinomial(1)[:, 0])
    alone = measured(clean, shifted)
    copies = measured(clean.repeat(7, 1), shifted.repeat(7, 1))
    grouped = interval_by_groups(copies, np.tile(np.arange(100), 7))
    assert grouped.num_groups == 100
    assert grouped.design_effect == pytest.approx(7, rel=0.01)
    assert grouped.standard_error == pytest.approx(alone.standard_error, rel=0.01)
    ends = alone.interval() if estimate == "agreement" else alone.interval
    assert grouped.interval == pytest.approx(ends, abs=0.01)


def test_unchanged_answers_count_once_a_group():
    answers = torch.eye(2).repeat(50, 1)
    result = posterior_agreement(answers, answers)
    grouped = interval_by_groups(result, torch.arange(100) // 10)
    tenth = posterior_agreement(answers[:10], answers[:10])
    assert grouped.interval[0] <= tenth.interval()[0] < result.interval()[0]


def test_groups_that_do_not_fit_are_refused():
    pair = two_models(20, 0)[:2]
    result = posterior_agreement(*pair)
    with pytest.raises(ValueError, match=r"groups: .* shape \(20,\), got .*\(19,\)"):
        interval_by_groups(result, np.arange(19))
    with pytest.raises(ValueError, match=r"two groups or more, .* got one"):
        interval_by_groups(result, np.zeros(20))
    clean = two_models(500, 0)[0]
    labels = clean.softmax(1).multinomial(1)[:, 0]
    calibration = calibrate_beta(clean, labels, level=0.9)
    accuracy = paired_accuracy(*pair, calibrated_on=calibration, level=0.9)
    with pytest.raises(ValueError, match=r"level: expected 0.9 .*, got 0.95"):
        interval_by_groups(accuracy, np.arange(20))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return ``robustbook`` in a folder with two models' logits and their groups."""
    monkeypatch.chdir(tmp_path)
    arrays = dict(zip(("clean", "mild", "strong"), two_models(60, 3), strict=True))
    arrays["groups"], arrays["same"] = torch.arange(60) // 3, torch.zeros(60).long()
    for name, array in arrays.items():
        np.save(f"{name}.npy", array.numpy())
    return lambda *words: CliRunner().invoke(app, words)


def test_score_prints_intervals_by_groups_and_a_plan(run):
    words = "score", "clean.npy", "mild.npy", "--groups", "groups.npy", "--plan", "0.1"
    numbers = json.loads(run(*words, "--json").stdout)
    result = posterior_agreement(np.load("clean.npy"), np.load("mild.npy"))
    expected = interval_by_groups(result, np.load("groups.npy"))
    (grouped,) = numbers["by_group"]
    assert grouped["interval"] == list(expected.interval)
    needed = pairs_needed(0.1, expected.standard_error * math.sqrt(2 * 60))
    assert numbers["pairs_needed"] == needed
    shown = run(*words).stdout
    assert "20 groups" in shown
    assert f"pairs to find 0.1 nats      {needed}" in shown

    # Of two models, the paired differences say how many.
    files = "clean.npy", "mild.npy", "clean.npy", "strong.npy"
    shown = run("compare", *files, "--plan", "0.1", "--json")
    pilot = compare_agreement(*map(np.load, files))
    needed = pairs_needed(0.1, pilot.standard_error * math.sqrt(60))
    assert json.loads(shown.stdout)["pairs_needed"] == needed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clean.npy", "mild.npy", "--plan", "0"], "--plan: expected a positive"),
        (["clean.npy", "mild.npy", "--groups", "same.npy"], "same.npy: expected two"),
        (["flat.npy", "flat.npy", "--plan", "0.1"], "spread of these logits: expected"),
        (["clean.npy", "mild.npy", "--groups", "names.npy"], "return_inverse=True"),
        (["clean.npy", "mild.npy", "--groups", "nan.npy"], "nan.npy: expected"),
    ],
)
def test_plans_and_groups_that_say_nothing_are_refused(run, words, message):
    count = len(np.load("clean.npy"))
    np.save("flat.npy", np.tile([1.0, 0.0], (count, 1)))
    np.save("names.npy", np.array(["a", "b"]).repeat(count)[::2])
    np.save("nan.npy", np.where(np.arange(count) < 3, np.nan, 1.0))
    result = run("score", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_most_probable_classes_alone_get_a_remark_or_are_refused(run):
    most = torch.from_numpy(np.load("clean.npy")).softmax(1).sort(1).values[:, 2:]
    np.save("most.npy", most.numpy())
    np.save("logarithms.npy", most.log().numpy())
    refused = run("score", "most.npy", "most.npy", "--probabilities")
    assert refused.exit_code == 2
    assert "alone are not enough, give all" in refused.stderr
    remark = run("score", "logarithms.npy", "logarithms.npy").stderr
    assert "most probable classes only" in remark
    assert run("score", "clean.npy", "mild.npy").stderr == ""
