"""Every number in the tables of the summary is that of a result."""

import re
from pathlib import Path

import pytest

from robustbook.label_free import ESTIMATES
from robustbook.studies.results import read_results

ROOT = Path(__file__).parents[1]
MAKERS = ["magika", "py3langid", "langdetect", "lingua"]
WORDS = {
    "estimate": "paired_accuracy",
    "estimate, isotonic": "paired_accuracy_isotonic",
    "same answers × accuracy": "same_answers_times_clean_accuracy",
    "class-wise confidence": "class_wise_confidence",
    "ATC, maximum": "atc_maximum",
    "ATC, entropy": "atc_entropy",
}


def tables(text):
    """Rows of Markdown tables, by the first word of the head and the name of a row."""
    found = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *lines = (
            [cell.strip() for cell in line.strip("| \n").split(" | ")]
            for line in block.splitlines()
        )
        rows = {re.sub(r" \{cite.*", "", name): cells for name, *cells in lines}
        found[head[0]] = head[1:], rows
    return found


@pytest.fixture(scope="module")
def page():
    return tables((ROOT / "book/paper.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("group", ["natural", "attack"])
def test_pictures_are_those_of_the_stored_rows(page, group):
    frame = read_results("label_free").frame(what="summary", statistic="error")
    values = frame[frame.group == group].pivot(
        index="score", columns="world", values="value"
    )
    worlds, rows = page[group]
    keys = {name: WORDS.get(name, name.replace(" ", "_")) for name in rows}
    assert set(keys.values()) == set(ESTIMATES), "no estimate is left out"
    for name, cells in rows.items():
        assert cells == [f"{values.loc[keys[name], w]:.3f}" for w in worlds]


def test_how_far_pairs_of_unlike_inputs_are_off_is_that_of_the_stored_rows():
    frame = read_results("label_free").frame(what="summary", statistic="bias")
    paired = frame.group.str.startswith("by ") & (frame.score == "paired_accuracy")
    off = 100 * frame[paired].value.abs()
    assert len(off) == 9
    assert (round(off.min()), round(off.max())) == (6, 19)
    text = " ".join((ROOT / "book/paper.md").read_text("utf-8").split())
    assert "off by six to nineteen points on average" in text
    best = read_results("label_free").frame(what="summary", statistic="error")
    best = best[best.world.isin(["heads", "PACS", "reviews"])]
    best = best[best.group.str.startswith("by ")]
    rows = best.loc[best.groupby(["world", "group"]).value.idxmin()]
    assert set(rows.score) == {"optimal_transport", "same_answers"}


def test_the_first_pages_say_what_was_measured():
    frame = read_results("label_free").frame(what="summary", statistic="error")
    frame = frame[frame.group.isin(["natural", "attack"])]
    ours = 100 * frame[frame.score == "paired_accuracy"].value
    asks = [
        *("confidence", "class_wise_confidence", "difference_of_confidences"),
        *("atc_maximum", "atc_entropy", "optimal_transport"),
    ]
    rivals = 100 * frame[frame.score.isin(asks)].value
    networks = read_results("label_free").frame(what="cell").network.nunique()
    said = {
        f"{ours.min():.1f} to {ours.max():.1f} points",
        f"{rivals.min():.0f} to {rivals.max():.0f}",
        f"{networks} networks",
    }
    for page in ("README.md", "book/intro.md"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert all(words in text for words in said), page


def test_deployed_classifiers_are_those_of_the_stored_rows(page):
    frame = read_results("deployed").frame()
    head, rows = page["deployed"]
    assert [name.lower() for name in head] == MAKERS
    keys = {name: WORDS.get(name, name.replace(" ", "_")) for name in rows}
    assert set(keys.values()) == set(ESTIMATES), "no estimate is left out"
    errors = frame[[*ESTIMATES]].sub(frame.accuracy, axis=0).abs()
    means = errors.groupby(frame.classifier).mean()
    for name, cells in rows.items():
        assert cells == [f"{means.loc[maker, keys[name]]:.3f}" for maker in MAKERS]
    gaps = frame.clean_confidence - frame.clean_accuracy
    errors = frame.paired_accuracy - frame.accuracy
    for name, values in (("confidence − accuracy", gaps), ("mean error", errors)):
        means = values.groupby(frame.classifier).mean()
        expected = [f"{means[maker]:+.3f}".replace("-", "−") for maker in MAKERS]
        assert page["on the source"][1][name] == expected
