"""Three lenses on one model: each against its own function, and what they cost."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from robustbook._store.provenance import running_code
from robustbook.agreement import posterior_agreement
from robustbook.attacks import pgd
from robustbook.average_case import linear_exact
from robustbook.corruptions import corrupt
from robustbook.datasets import load_dataset
from robustbook.lenses import CountedModel, three_lenses
from robustbook.lenses._result import DEFAULT_CORRUPTIONS, robust_share
from robustbook.margins import (
    input_margin,
    logit_margin,
    margin_consistency,
)
from robustbook.models import load_model, logits_of

QUICK = {"attack_steps": 5, "noise_samples": 50, "margin_images": 12}
QUICK |= {"eps": 0.1, "sigma": 0.2}


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", "test").subset(range(60))


@pytest.fixture(scope="module")
def model():
    return load_model("digits-cnn-s0")


@pytest.fixture(scope="module")
def lenses(model, data):
    return three_lenses(model, data.images, data.labels, **QUICK)


def test_each_lens_is_its_own_function(lenses, model, data):
    logits = logits_of(model, data.images)
    torch.testing.assert_close(lenses.logits, logits)
    assert list(lenses.agreements) == ["adversarial", "noise", *DEFAULT_CORRUPTIONS]
    for kind in DEFAULT_CORRUPTIONS:
        shifted = logits_of(model, corrupt(data.images, kind))
        expected = posterior_agreement(logits, shifted)
        assert lenses.agreements[kind].pa == pytest.approx(expected.pa, abs=1e-6)
    # The attack goes against the prediction, not against the label.
    attacked = pgd(model, data.images, eps=0.1, steps=5, seed=0)
    changed = attacked.adversarial.isfinite().all() and attacked.success
    assert torch.equal(lenses.changed("adversarial"), changed)
    assert torch.equal(lenses.logit_margins, logit_margin(logits))
    margins = input_margin(model, data.images[lenses.measured], seed=0)
    torch.testing.assert_close(lenses.margins, margins.margins)
    order = margin_consistency(lenses.logit_margins[lenses.measured], margins.margins)
    assert lenses.consistency == order


def test_average_case_is_exact_for_a_linear_model(data):
    linear = load_model("digits-linear-s0")
    layer = next(m for m in linear.modules() if isinstance(m, nn.Linear))
    options = {"sigma": 0.2, "noise_samples": 2000, "skip": ("agreement", "margins")}
    lenses = three_lenses(linear, data.images, **options)
    weights, bias = layer.weight.detach(), layer.bias.detach()
    exact = linear_exact(weights, bias, data.images.flatten(1), 0.2).probability
    off = (lenses.robustness.probability - exact) / lenses.robustness.standard_error
    assert float(off.abs().max()) < 4.5
    mean, error = lenses.mean_robustness
    assert abs(mean - float(exact.mean())) < 4 * error


@pytest.mark.filterwarnings("ignore:model. it names class")
def test_noise_is_not_clipped_and_the_mismatch_is_that_of_chance(data):
    def bright(images):
        # One pixel decides; it is 0 in every image, so a clipped noise keeps it.
        first = images[:, 0, 0, 0]
        return torch.stack([first, -first - 1e-9], dim=1)

    few = {"margin_images": 2, "attack_steps": 1, "noise_samples": 100}
    images, kinds = torch.zeros(400, 1, 2, 2), ("contrast",)
    lenses = three_lenses(bright, images, corruptions=kinds, **few)
    share = float(lenses.changed("noise").double().mean())
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / 400)
    kept, error = lenses.mean_robustness
    assert abs(kept - 0.5) < 5 * error


def test_passes_are_counted(lenses):
    for kind in ("clean", "noise", *DEFAULT_CORRUPTIONS):
        assert (lenses.passes[kind].forward, lenses.passes[kind].backward) == (1, 0)
    assert lenses.passes["adversarial"].backward == 5
    # Noise is drawn in blocks of 64.
    assert 64 <= lenses.passes["average-case"].forward < 67
    assert lenses.passes["average-case"].backward == 0
    margin = lenses.passes["input margin"]
    assert margin.forward > margin.backward > 20


def test_counting_leaves_results_and_gradients_alone():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    counted = CountedModel(model)
    inputs = torch.rand(5, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(inputs)[:, 0].sum(), inputs)
    _, passes = counted.count(
        lambda: torch.autograd.grad(counted(inputs)[:, 0].sum(), inputs), per=5
    )
    assert (passes.forward, passes.backward) == (1, 1)
    (again,) = torch.autograd.grad(counted(inputs)[:, 0].sum(), inputs)
    assert torch.equal(gradient, again)


def test_labels_change_accuracies_only(lenses, model, data):
    blind = three_lenses(model, data.images, **QUICK)
    assert blind.correct is None
    assert blind.robust_accuracy is None
    assert blind.as_dict()["accuracy"] is None
    for shift, agreement in lenses.agreements.items():
        assert blind.agreements[shift].pa == agreement.pa
    assert torch.equal(blind.robustness.probability, lenses.robustness.probability)
    assert blind.robust_share == lenses.robust_share
    correct = lenses.correct
    assert lenses.robust_accuracy.value <= float(correct.double().mean()) + 0.05


def test_shares_when_all_are_measured(lenses, model, data):
    everything = QUICK | {"margin_images": 60}
    whole = three_lenses(model, data.images, data.labels, **everything)
    assert sorted(whole.measured.tolist()) == list(range(60))
    far = torch.empty(60, dtype=torch.bool)
    far[whole.measured] = whole.margins > 0.1
    robust = far & ~whole.changed("adversarial")
    assert whole.robust_share.value == pytest.approx(float(robust.double().mean()))
    correct = whole.correct
    right = float((robust & correct).double().mean())
    assert whole.robust_accuracy.value == pytest.approx(right)
    low, high = whole.robust_share.interval
    assert 0 <= low < whole.robust_share.value < high <= 1
    # All images tell more than twelve of them.
    few = lenses.robust_share.interval
    assert high - low < few[1] - few[0]


def test_shares_of_few_margins_are_unbiased_and_their_intervals_hold():
    random = np.random.default_rng(0)
    values, covered, truth = [], 0, 0.62
    for _ in range(400):
        # Where the images come from, PGD misses a fifth of what the search finds.
        brittle = random.random(300) > truth
        missed = random.random(300) < 0.2
        withstood = torch.from_numpy(~brittle | missed)
        drawn = torch.from_numpy(random.permutation(300)[:40])
        bounds = torch.from_numpy(np.where(brittle, 0.05, 0.2))[drawn]
        share = robust_share(withstood, drawn, bounds, 0.1)
        values.append(share.value)
        covered += share.interval[0] <= truth <= share.interval[1]
    assert np.mean(values) == pytest.approx(truth, abs=4 * np.std(values) / 20)
    assert 0.92 <= covered / 400 <= 0.99


def test_scores_and_summaries(lenses):
    scores = lenses.scores()
    assert all(values.shape == (60,) for values in scores.values())
    assert all(values.dtype == torch.float64 for values in scores.values())
    assert int(scores["input margin"].isfinite().sum()) == 12
    domain, error = lenses.domain_agreement
    each = [lenses.agreements[kind].pa for kind in DEFAULT_CORRUPTIONS]
    assert domain == pytest.approx(np.mean(each))
    assert 0 < error < 0.3
    again = json.loads(json.dumps(lenses.as_dict()))
    assert again["agreement"]["noise"]["pa"] == lenses.agreements["noise"].pa
    assert again["settings"]["corruptions"] == list(DEFAULT_CORRUPTIONS)
    with pytest.raises(ValueError, match="one of adversarial, noise, shot_noise"):
        lenses.changed("snow")
    assert repr(lenses).startswith("ThreeLenses(60 images: adversarial ")
    assert repr(lenses).endswith(f", tau {lenses.consistency.tau:.2f})")


def test_the_same_seed_gives_the_same(lenses, model, data):
    again = three_lenses(model, data.images, data.labels, **QUICK)
    assert again.as_dict() == lenses.as_dict()
    other = three_lenses(model, data.images, seed=1, **QUICK)
    assert other.agreements["noise"].pa != lenses.agreements["noise"].pa
    assert other.agreements["contrast"].pa == lenses.agreements["contrast"].pa


def test_the_model_is_unchanged_afterwards(data):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    model[1].eval()
    model.train()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    three_lenses(model, data.images[:12], **QUICK)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    # One in float64 gets such images.
    wide = three_lenses(model.double(), data.images[:12].numpy(), **QUICK)
    assert wide.logits.dtype == torch.float64


@pytest.mark.parametrize("interrupted", [1, 7, 8])
def test_an_interrupted_call_goes_on(net, twelve, tmp_path, monkeypatch, interrupted):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    options = {"attack_steps": 2, "noise_samples": 8, "margin_images": 3}
    expected = three_lenses(net, twelve, **options)
    count, computed = CountedModel.count, []

    def counted(self, measure, *, per):
        if len(computed) == interrupted:
            raise KeyboardInterrupt
        computed.append(measure)
        return count(self, measure, per=per)

    monkeypatch.setattr(CountedModel, "count", counted)
    with pytest.raises(KeyboardInterrupt):
        three_lenses(net, twelve, resume=True, **options)
    interrupted = None
    for _ in range(2):
        resumed = three_lenses(net, twelve, resume=True, **options)
        assert len(computed) == 9  # each measure once
        assert resumed.as_dict() == expected.as_dict()
        assert torch.equal(resumed.margins, expected.margins)
        kept, fresh = (vars(each.robustness) for each in (resumed, expected))
        assert kept.keys() == fresh.keys()
        for field, value in fresh.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(kept[field], value)
            else:
                assert kept[field] == value
    # Other images and other settings are measured anew, and so is other code.
    code = []

    def noted(key, compute, **options):
        code.append(options["code"])
        return compute()

    with monkeypatch.context() as patch:
        patch.setattr("robustbook.lenses._resume.cached_arrays", noted)
        three_lenses(net, twelve, resume=True, **options)
    used = {"robustbook.attacks._pgd", "robustbook.margins._input_margin"}
    assert used <= running_code().closure(*code)
    computed.clear()
    three_lenses(net, 0.9 * twelve, resume=True, **options)
    assert len(computed) == 9
    three_lenses(net, twelve, resume=True, sigma=0.3, **options)
    assert len(computed) == 18


def test_a_constant_model_has_no_consistency():
    def constant(images):
        return images.flatten(1)[:, :3] * 0 + torch.tensor([1.0, 0.0, 0.0])

    few = {"margin_images": 4, "attack_steps": 2, "noise_samples": 20}
    with pytest.warns(UserWarning, match="it names class 0 for all 12 images"):
        lenses = three_lenses(constant, torch.rand(12, 1, 4, 4), **few)
    assert lenses.constant
    assert lenses.consistency is None
    assert lenses.robust_share.value == 1
    assert lenses.mean_robustness[0] == 1
    assert lenses.as_dict()["margins"]["tau"] is None


SMALL = {"attack_steps": 5, "noise_samples": 20, "margin_images": 4}
SMALL |= {"corruptions": ("motion_blur",)}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).eval()


@pytest.fixture
def twelve():
    return torch.rand(12, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def test_scaled_logits_have_the_same_agreement(net, twelve):
    # A cross-entropy without a gradient would find no adversarial image.
    plain = three_lenses(net, twelve, **SMALL)
    assert plain.agreements["adversarial"].mismatch > 0

    def scaled_by(factor):
        return three_lenses(lambda images: net(images) * factor, twelve, **SMALL)

    large = [scaled_by(256.0), scaled_by(2.0**100)]
    for scaled in large:
        for shift, agreement in plain.agreements.items():
            # The attack weighs classes by their probabilities: it differs a little.
            off = 0.1 if shift == "adversarial" else 1e-6
            assert scaled.agreements[shift].pa == pytest.approx(agreement.pa, abs=off)
        kept = scaled.robustness.probability
        torch.testing.assert_close(kept, plain.robustness.probability)
    first, second = (one.agreements["adversarial"].pa for one in large)
    assert first == pytest.approx(second, abs=1e-4)


def test_models_that_change_their_input_or_have_integer_parameters(net, twelve):
    kept = twelve.clone()
    in_place = three_lenses(lambda images: net(images.sub_(0.5)), twelve, **SMALL)
    assert torch.equal(twelve, kept)
    same = three_lenses(lambda images: net(images - 0.5), twelve, **SMALL)
    assert in_place.as_dict() == same.as_dict()

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = nn.Parameter(torch.zeros(1, dtype=torch.int8), False)
            self.net = net

        def forward(self, images):
            return self.net(images)

    counting = three_lenses(Counting(), twelve, **SMALL)
    assert counting.as_dict() == three_lenses(net, twelve, **SMALL).as_dict()


def test_the_order_and_the_batch_do_not_matter(net, twelve):
    kinds = {"corruptions": DEFAULT_CORRUPTIONS, "margin_images": 12}
    one = three_lenses(net, twelve, **SMALL | kinds)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    other = three_lenses(net, twelve[order], batch_size=5, **SMALL | kinds)
    parts = three_lenses(net, twelve, batch_size=5, **SMALL | kinds)
    torch.testing.assert_close(parts.shifted_logits, one.shifted_logits)
    assert torch.equal(parts.robustness.probability, one.robustness.probability)
    for kind in DEFAULT_CORRUPTIONS:
        pa, again = one.agreements[kind], other.agreements[kind]
        assert again.pa == pytest.approx(pa.pa, abs=1e-6)
        torch.testing.assert_close(again.per_sample, pa.per_sample[order])
    a, b = one.scores()["input margin"][order], other.scores()["input margin"]
    torch.testing.assert_close(a, b, rtol=0.01, atol=1e-4)


@pytest.mark.parametrize("left", ["agreement", "average-case", "margins"])
def test_a_lens_can_be_left_out(net, twelve, left):
    labels = net(twelve).argmax(dim=1)
    whole = three_lenses(net, twelve, labels, **SMALL)
    some = three_lenses(net, twelve, labels, skip=(left,), **SMALL)
    numbers, expected = (json.loads(json.dumps(x.as_dict())) for x in (some, whole))
    assert (some.agreements == {}) == (left == "agreement")
    assert (numbers["domain"] is None) == (left == "agreement")
    assert (numbers["average_case"] is None) == (left == "average-case")
    assert (some.margins is None) == (left == "margins")
    assert numbers["margins"]["measured"] == (0 if left == "margins" else 4)
    for name in ("average_case", "domain"):
        assert numbers[name] in (expected[name], None)
    assert set(some.passes) < set(whole.passes)
    assert set(some.scores()) < set(whole.scores())
    share, accuracy = some.robust_share, some.robust_accuracy
    assert accuracy == share  # all are classified correctly
    if left == "agreement":
        assert share.value == float((some.margins > 8 / 255).double().mean())
    if left == "margins":
        withstood = 1 - whole.agreements["adversarial"].mismatch
        assert share.value == pytest.approx(withstood)


def test_a_single_lens_and_a_warning_of_random_logits(net, twelve):
    some = three_lenses(net, twelve, skip="agreement, margins", **SMALL)
    assert some.robust_share is None
    assert some.agreements == {}
    assert some.margins is None
    for model in (
        lambda images: net(images) + torch.randn(len(images), 4),
        lambda images: net(images - images.mean(dim=0)),
    ):
        with pytest.warns(UserWarning, match="in a smaller batch"):
            three_lenses(model, twelve, **SMALL)


def test_invalid_logits_are_refused_at_once(net, twelve):
    blurred = corrupt(twelve, "motion_blur")

    for spoil, message in (
        (lambda logits: logits * torch.nan, "finite"),
        (lambda logits: logits[:, :3], "the 4 classes"),
    ):

        def spoiled(images, spoil=spoil):
            bad = torch.equal(images, blurred)
            return spoil(net(images)) if bad else net(images)

        with pytest.raises(ValueError, match=f"motion_blur: expected {message}"):
            three_lenses(spoiled, twelve, **SMALL)


ALL = ("agreement", "margins", "average-case")


@pytest.mark.parametrize(
    ("name", "values", "remedy"),
    [
        ("images", (torch.zeros(3, 1, 6, 6), torch.zeros(12, 6, 6)), ""),
        ("images", (2 * torch.ones(12, 1, 6, 6),), r"\[0, 1\]"),
        ("labels", (torch.zeros(5, dtype=torch.long),), ""),
        ("eps", (0,), ""),
        ("eps", (8,), "pass 8/255"),
        ("sigma", (-1,), ""),
        ("sigma", (25,), "pass 25/255"),
        ("severity", (0, 6), ""),
        ("corruptions", (("rain",), "snow", (), 3, [["snow"]]), "in a tuple"),
        ("margin_images", (1,), ""),
        ("skip", (ALL, "noise", 3), ""),
        ("model", (lambda images: images,), ""),
        ("model", (nn.Linear,), "call it first"),
        ("model", (nn.Linear(36, 4).half(),), "call model.float"),
    ],
)
def test_bad_input_is_named(net, twelve, name, values, remedy):
    for value in values:
        arguments = {"model": net, "images": twelve, **SMALL, name: value}
        with pytest.raises((TypeError, ValueError), match=f"^{name}: .*{remedy}"):
            three_lenses(arguments.pop("model"), arguments.pop("images"), **arguments)


def test_names_of_corruptions_may_be_an_array(net, twelve):
    names = np.array(["contrast", "motion_blur", "motion_blur"])
    lenses = three_lenses(net, twelve.half(), **SMALL | {"corruptions": names})
    assert lenses.settings.corruptions == ("contrast", "motion_blur")
    assert json.loads(json.dumps(lenses.as_dict()))["images"] == 12


def test_misclassified_images_never_count_as_robust(net, twelve):
    predicted = net(twelve).argmax(dim=1)
    half = torch.where(torch.arange(12) < 6, predicted, (predicted + 1) % 4)
    lenses = three_lenses(net, twelve, half, **SMALL | {"eps": 1e-6})
    assert lenses.robust_accuracy.value == pytest.approx(0.5)
    wrong = three_lenses(net, twelve, (predicted + 1) % 4, **SMALL).robust_accuracy
    alone = three_lenses(net, twelve, (predicted + 1) % 4, skip="agreement", **SMALL)
    assert alone.robust_accuracy.value == 0
    # All twelve are known to be wrong: Wilson's interval of none of twelve.
    assert (wrong.value, *wrong.interval) == pytest.approx((0, 0, 0.2425), abs=1e-3)
