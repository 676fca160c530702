"""Classifiers, real and made up, under shifts."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from robustbook.deployed import Sample, load_classifier, measure_shifts
from robustbook.deployed._classifiers import CLASSIFIERS, Classifier
from robustbook.deployed._shifts import BYTE_SHIFTS
from robustbook.label_free import ESTIMATES, SCORES

needs_extra = pytest.mark.skipif(
    any(find_spec(name) is None for name in CLASSIFIERS),
    reason='needs the extra: pip install "robustbook[deployed]"',
)


def made_up(count=3000, seed=0):
    """Files whose first bytes are the logits of what they are, which the toy reads.

    Upper case turns the letters into others, whose logits are lower.
    """
    random = np.random.default_rng(seed)
    letters = random.integers(97, 123, size=(count, 3)).astype(np.uint8)
    chance = _softmax(letters)
    labels = [random.choice(3, p=row) for row in chance]
    contents = tuple(row.tobytes() + b"\n" * 300 for row in letters)
    return Sample(contents, tuple("abc"[label] for label in labels))


def _softmax(letters):
    weights = np.exp((letters % 32) / 6.0)
    return weights / weights.sum(1, keepdims=True)


def _read(contents):
    return _softmax(np.array([[*content[:3]] for content in contents]))


TOY = Classifier(
    "toy", ("a", "b", "c", "never"), lambda x: np.pad(_read(x), ((0, 0), (0, 1)))
)


def test_rows_hold_what_they_promise():
    sample, names = made_up(), ["upper case", "10 % of bytes replaced"]
    with pytest.warns(UserWarning, match=r"^toy: 25% of its probabilities are 0"):
        rows = measure_shifts(sample, TOY, shifts=names)
    assert [row["shift"] for row in rows] == names
    for row in rows:
        assert set(row) >= {*ESTIMATES, *SCORES, "accuracy", "low", "high", "beta"}
        assert row["samples"] == 1500
        assert row["beta"] == pytest.approx(1, abs=0.15)
        assert row["paired_accuracy"] == pytest.approx(row["accuracy"], abs=0.04)
    kept, damaged = rows
    assert kept["same_answers"] == 1
    assert damaged["accuracy"] < kept["accuracy"]


@pytest.mark.filterwarnings("ignore:toy")
def test_the_labels_of_the_shifted_half_change_the_accuracy_alone():
    sample = made_up()
    (row,) = measure_shifts(sample, TOY, shifts=["upper case"])
    labels = np.array(sample.labels)
    labels[np.random.default_rng([0, 1]).permutation(len(sample))[1500:]] = "c"
    changed = Sample(sample.contents, tuple(labels.tolist()))
    (other,) = measure_shifts(changed, TOY, shifts="upper case")
    assert row.pop("accuracy") != other.pop("accuracy")
    assert row == other


@pytest.mark.filterwarnings("ignore:toy.*are 0")
def test_a_rising_curve_mends_what_one_temperature_cannot():
    """A classifier that is always equally sure, and right by chance in one half."""
    random = np.random.default_rng(0)
    contents = (b"a", b"b") * 2000
    labels = tuple(str(random.choice(["a", x.decode()])) for x in contents)

    def probabilities(contents):
        sure = {b"a": (0.999, 0.001, 0), b"b": (0.01, 0.99, 0)}
        return np.array([sure[content] for content in contents])

    skewed = Classifier("toy", ("a", "b", "never"), probabilities)
    (row,) = measure_shifts(Sample(contents, labels), skewed, shifts="no line ends")
    assert row["accuracy"] == pytest.approx(0.75, abs=0.03)
    assert row["paired_accuracy_isotonic"] == pytest.approx(0.75, abs=0.03)


@pytest.mark.filterwarnings("ignore:toy")
def test_labels_that_the_classifier_lacks_are_left_out_and_named():
    sample = made_up(400)
    more = Sample((*sample.contents, b"aaa"), (*sample.labels, "strange"))
    with pytest.warns(UserWarning, match="1 of 401 contents .* left out: strange"):
        rows = measure_shifts(more, TOY, shifts=["upper case"])
    assert rows == measure_shifts(sample, TOY, shifts=["upper case"])
    with pytest.raises(ValueError, match="labels that toy knows, got strange"):
        measure_shifts(Sample((b"aaa",), ("strange",)), TOY)
    with pytest.raises(ValueError, match="labels that toy knows, got an empty sample"):
        measure_shifts(Sample((), ()), TOY)
    with pytest.raises(ValueError, match="shifts: expected one of first 200"):
        measure_shifts(sample, TOY, shifts=["capitals"])


@pytest.mark.filterwarnings("ignore:toy.*are 0")
def test_forty_files_to_calibrate_are_few_and_three_are_refused():
    with pytest.warns(UserWarning, match="^toy: calibration: 40 samples leave β"):
        (row,) = measure_shifts(made_up(80), TOY, shifts="upper case")
    (more,) = measure_shifts(made_up(3000), TOY, shifts="upper case")
    assert row["samples"] == 40
    assert row["high"] - row["low"] > 2 * (more["high"] - more["low"])
    with pytest.raises(ValueError, match=r"four contents or more, .* got 3 whose"):
        measure_shifts(made_up(3), TOY)


@pytest.mark.filterwarnings("ignore:toy")
def test_what_a_classifier_returns_is_checked():
    sample = made_up(100)
    as_list = Classifier("toy", TOY.labels, lambda x: TOY.probabilities(x).tolist())
    assert measure_shifts(sample, as_list, shifts="upper case") == measure_shifts(
        sample, TOY, shifts="upper case"
    )
    narrow = Classifier("toy", TOY.labels, _read)
    with pytest.raises(
        ValueError, match=r"toy: .* shape \(100, 4\), .* got \(100, 3\)"
    ):
        measure_shifts(sample, narrow)
    logits = Classifier("toy", TOY.labels, lambda x: 9 * TOY.probabilities(x))
    with pytest.raises(ValueError, match="sum to 1"):
        measure_shifts(sample, logits)


def test_a_missing_extra_is_one_line(monkeypatch):
    for name in CLASSIFIERS:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ModuleNotFoundError) as error:
            load_classifier(name)
        remedy = f'{name} is not installed; pip install "robustbook[deployed]"'
        assert str(error.value) == remedy
    with pytest.raises(ValueError, match="name: expected one of magika, py3langid"):
        load_classifier("file")


@needs_extra
def test_magika_answers_as_its_own_package_does():
    import magika

    files = [
        b"import os\n\n\ndef f(x):\n    return os.path.join(x)\n" * 5,
        b"  \n<svg xmlns='http://www.w3.org/2000/svg'><path d='M0 0'/></svg>\n\n" * 200,
        b"\x7fELF" + bytes(range(256)) * 9,
        b"# Title\n\nSome *text* with a [link](x).\n" * 40,
    ]
    classifier = load_classifier("magika")
    own = magika.Magika()
    for content in files:
        (row,) = classifier.probabilities([content])
        answer = own.identify_bytes(content).dl
        assert classifier.labels[row.argmax()] == answer.label
        assert row.sum() == pytest.approx(1, abs=1e-5)
    assert classifier.probabilities([]).shape == (0, len(classifier.labels))
    sample = Sample(25 * tuple(files), 25 * ("python", "svg", "elf", "markdown"))
    (row,) = measure_shifts(sample, classifier, shifts=[*BYTE_SHIFTS][:1])
    assert row["samples"] == 50
    assert 0 < row["paired_accuracy"] <= 1


@needs_extra
@pytest.mark.parametrize("name", ["py3langid", "langdetect", "lingua"])
def test_languages_are_named_and_the_same_each_time(name):
    classifier = load_classifier(name)
    texts = [
        "Der Fehler ist leider noch nicht behoben worden.",
        "Inténtalo mañana, porque el archivo que buscas ya no existe.",
        "请求的页面在此服务器上不存在。",
        "",
        "12345",
    ]
    table = classifier.probabilities(texts)
    answers = [classifier.labels[row.argmax()] for row in table]
    assert answers[:3] == ["de", "es", "zh"]
    assert table.sum(1) == pytest.approx(np.ones(5))
    # Lingua sums on several threads.
    np.testing.assert_allclose(classifier.probabilities(texts), table, rtol=1e-12)
