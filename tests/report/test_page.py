"""The page: what it says, that it stands alone, and who can read it."""

import dataclasses
import datetime
import html
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from robustbook.agreement import paired_accuracy
from robustbook.datasets import load_dataset
from robustbook.lenses import three_lenses
from robustbook.models import load_model
from robustbook.report import Report, read_report
from robustbook.report import _words as words
from robustbook.report._page import write_files
from robustbook.report._request import parse_eps

ROOT = Path(__file__).parents[2]
IMAGES = load_dataset("digits", "test").images[:40]
LABELS = load_dataset("digits", "test").labels[:40]
SMALL = {"attack_steps": 3, "noise_samples": 30, "margin_images": 12, "progress": False}
VOID = {"meta", "img", "br", "base", "path", "use"}


def constant(images):
    """The same class for everything."""
    return torch.tensor([1.0, 0.0]) + 0 * images.flatten(1).sum(1, keepdim=True)


@pytest.fixture(scope="module")
def seen():
    return three_lenses(load_model("digits-linear"), IMAGES, LABELS, **SMALL)


@pytest.fixture(scope="module")
def report(seen):
    return Report(
        seen,
        images=IMAGES,
        positions=list(range(100, 140)),
        model="digits-linear",
        data="digits:test",
        date="2026-11-22",
        device="cpu",
        seconds=12.34,
    )


@pytest.fixture(scope="module")
def unmoved():
    with pytest.warns(UserWarning, match="it names class 0"):
        return three_lenses(constant, IMAGES, **SMALL)


@pytest.fixture(scope="module")
def calibrated(seen):
    """A page with the estimated accuracy, and the estimates."""
    test, model = load_dataset("digits", "test"), load_model("digits-linear")
    source = model(test.images[40:]).detach(), test.labels[40:]
    page = Report(
        seen, images=IMAGES, calibrated_on=source, calibration_data="digits:test"
    )
    return page, {
        shift: paired_accuracy(seen.logits, logits, calibrated_on=source)
        for shift, logits in seen.shifted_logits.items()
    }


class Outline(HTMLParser):
    """Elements in order, and whether every one is closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.faults, self.text = [], [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.faults.append(f"{tag} says an attribute twice")
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.faults.append(f"</{tag}> after {self.open[-1:]}")

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_numbers_can_be_read_back(report, seen, tmp_path):
    found = read_report(report.html)
    assert found == report.numbers
    # A mark of byte order is no hindrance.
    (tmp_path / "page.html").write_text(report.html, encoding="utf-8-sig")
    for source in (tmp_path / "page.html", "\ufeff" + report.html):
        assert read_report(source) == report.numbers
    named = {"model": "digits-linear", "date": "2026-11-22", "seconds": 12.3}
    assert named.items() <= found.items()
    assert set(found["versions"]) == {"robustbook", "torch", "Python"}
    for key, value in seen.as_dict().items():
        assert json.loads(json.dumps(value)) == found[key], key


def test_infinite_and_missing_numbers_are_strict_json(unmoved):
    found = read_report(Report(unmoved).html)
    assert found["agreement"]["noise"]["beta"] == "inf"
    assert float(found["agreement"]["noise"]["beta"]) == math.inf
    assert found["margins"]["tau"] is None
    assert found["accuracy"] is None


def test_the_table_shows_the_numbers(report, seen):
    text = " ".join(Outline(report.html).text)
    for found in seen.agreements.values():
        assert f"{found.pa:.3f}" in text
        assert "{:.3f}–{:.3f}".format(*found.interval()) in text
        assert f"{100 * found.mismatch:.1f}\xa0%" in text
    assert f"{100 * seen.robust_share.value:.1f}\xa0%" in text
    images = dict.fromkeys(seen.passes, 40) | {"input margin": 12}
    total = sum(images[name] * cost.forward for name, cost in seen.passes.items())
    assert f"{round(total):,} forward".replace(",", "\N{NARROW NO-BREAK SPACE}") in text
    assert words.mean_interval(0.5, 1.0) == "0.0–100.0\xa0%"
    passes = seen.passes["input margin"]
    ending = f"<td>{passes.forward:.0f} + {passes.backward:.0f}</td></tr>"
    rows = [row for row in report.html.splitlines() if row.endswith(ending)]
    assert len(rows) == 1
    assert "τ of logit margins" in rows[0]


@pytest.mark.parametrize("labels", [True, False])
def test_a_calibration_adds_the_estimated_accuracy(calibrated, seen, labels):
    page, estimates = calibrated
    if not labels:
        page = dataclasses.replace(page, lenses=dataclasses.replace(seen, labels=None))
    outline = Outline(page.html)
    assert outline.faults == []
    text = " ".join(outline.text)
    stored = read_report(page.html)["accuracy_estimates"]
    true = (seen.shifted_logits["noise"].argmax(1) == LABELS).double().mean()
    assert stored["shifts"]["noise"]["accuracy"] == (float(true) if labels else None)
    for shift, estimate in estimates.items():
        assert words.percent(estimate.value) in text
        assert words.interval(*estimate.interval) in text
        assert stored["shifts"][shift]["interval"] == list(estimate.interval)
    row = rf"<td class=.share.>{words.percent(float(true))} <small>"
    assert bool(re.search(row, page.html)) == labels
    assert (", and true." in text) == labels
    assert "556 labeled images of digits:test, none of them measured: β = " in text


def test_two_pages_of_the_same_numbers_are_the_same(seen):
    one, two = (Report(seen, images=IMAGES).html for _ in range(2))
    assert one == two
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", one)
    assert ">Made<" not in one


def test_other_pages_are_refused(tmp_path):
    other = tmp_path / "other.html"
    other.write_text('<!DOCTYPE html><script id="numbers">{"a": 1}</script>')
    said = r"other\.html: expected a page of robustbook report"
    with pytest.raises(ValueError, match=said):
        read_report(other)
    with pytest.raises(ValueError, match="found none"):
        read_report("<p>nothing</p>")
    with pytest.raises(FileNotFoundError):
        read_report(tmp_path / "none.html")
    other.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=said):
        read_report(other)


def test_headers_accept_paths_dates_and_arrays(seen):
    text = Report(
        seen,
        images=IMAGES.numpy(),
        positions=torch.arange(100, 140),
        model=Path("net.pt"),
        data="café.npz",
        date=datetime.date(2026, 11, 22),
    ).html
    named = {"model": "net.pt", "data": "café.npz", "date": "2026-11-22"}
    assert named.items() <= read_report(text).items()
    assert "Image 1" in text


def sentences(page):
    """Return the sentence of each card."""
    found = re.findall('<p class="sentence">(.*?)</p>', page.html, re.DOTALL)
    return [html.unescape(sentence) for sentence in found]


def test_the_summary_follows_from_the_numbers(report, seen):
    worst = min(seen.agreements, key=lambda shift: seen.agreements[shift].pa)
    first, second, third = sentences(report)
    assert words.shift_name(worst) in first
    assert words.percent(seen.agreements[worst].mismatch) in first
    assert words.percent(float(seen.robustness.probability.mean())) in second
    count = int((seen.robustness.probability < 0.9).sum())
    assert f"{count} of {len(seen)} images less often than nine times in ten" in second
    assert "8/255" in third
    assert f"τ = {seen.consistency.tau:.2f}" in third
    for sentence in (first, second, third):
        assert sentence.endswith(".")
        assert not re.search(r"\. [A-Z]", sentence)  # one sentence
        assert f". {html.escape(sentence)}" in report.html  # of its figure


def test_the_page_says_that_nothing_changed(unmoved):
    text = " ".join(Outline(Report(unmoved, images=IMAGES).html).text)
    for said in (
        "None of the 7 shifts changes a prediction on any of 40 images",
        "none of 40 images less often than nine times in ten",
        "an order of margins is not defined",
        "names class 0 for all 40 images",
        "no variation seen",
        "Of 12 images no attack changed the prediction",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("interval", "meaning"),
    [
        ((0.2, 0.5), "so the smaller logit margin is a warning"),
        ((-0.1, 0.4), "which may be chance"),
        ((-0.6, -0.2), "so logit margins mislead"),
    ],
)
def test_tau_is_read_by_its_interval_and_equal_shifts_are_so_called(
    seen, interval, meaning
):
    order = dataclasses.replace(seen.consistency, interval=interval)
    same = dict.fromkeys(seen.agreements, seen.agreements["noise"])
    changed = dataclasses.replace(seen, consistency=order, agreements=same)
    agreement, _, margins = sentences(Report(changed))
    assert meaning in margins
    assert "costs most (not significantly more than any other)" in agreement


def test_shifts_that_may_cost_as_much_are_named(seen):
    noise, signs = seen.agreements["noise"], 1 - 2.0 * (torch.arange(40) % 2)
    rows = dict.fromkeys(seen.agreements, noise.per_sample - 1 + 0.1 * signs)
    rows |= {"fog": noise.per_sample - 2, "contrast": noise.per_sample - 1.9 + signs}
    agreements = {
        shift: dataclasses.replace(noise, per_sample=each, pa=float(each.mean()))
        for shift, each in rows.items()
    }
    changed = dataclasses.replace(seen, agreements=agreements)
    assert words.costliest_first(changed)[1] == ["contrast"]
    (agreement, *_) = sentences(Report(changed))
    assert "fog costs most (not significantly more than contrast): there" in agreement


def test_bounds_are_numbers_or_fractions():
    for text, bound in {"8/255": 8 / 255, "0.03": 0.03, " 1 ": 1.0}.items():
        assert parse_eps(text) == bound
    assert [words.eps_in_words(eps) for eps in (8 / 255, 0.3)] == ["8/255", "0.3"]


@pytest.mark.parametrize("text", ["", "eight", "0", "-1/255", "1/0", "2", "nan", "inf"])
def test_other_bounds_are_refused(text):
    hint = "got 2; for 2 of 255 levels pass 2/255" if text == "2" else ""
    with pytest.raises(ValueError, match=f"--eps: expected .*{hint}"):
        parse_eps(text)


@pytest.mark.parametrize("left", ["agreement", "average-case", "margins"])
def test_a_page_of_two_lenses_leaves_out_the_third(left):
    model = load_model("digits-linear")
    lenses = three_lenses(model, IMAGES, LABELS, skip=(left,), **SMALL)
    text = Report(lenses, images=IMAGES).html
    page = Outline(text)
    assert page.faults == []
    title, shown = words.TITLES[left], " ".join(" ".join(page.text).split())
    assert f"Left out {title}" in shown
    assert not {"None", "nan"} & {*shown.split()}
    assert text.count('class="card"') == len(page.all("svg")) == 2
    reading = text.partition('id="read"')[2]
    read = [title for title in words.TITLES.values() if f"<h3>{title}<" in reading]
    assert read == [other for other in words.TITLES.values() if other != title]
    assert [p.get("class") for p in page.all("ol")].count("thumbs") == 2


def test_nothing_is_loaded(report):
    page = Outline(report.html)
    assert 'class="warning"' not in report.html
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "object", "embed"}
        for name in {"src", "srcset", "data", "poster"} & {*attributes}:
            assert str(attributes[name]).startswith("data:image/png;base64,")
        if "href" in attributes and tag != "a":
            assert str(attributes["href"]).startswith("#")
    assert [script["type"] for script in page.all("script")] == ["application/json"]
    assert not re.search(r"url\((?!#)|@import", report.html)
    links = [str(a["href"]) for a in page.all("a")]
    assert report.html.count("http") == len(links)
    assert all(link.startswith(words.BOOK) for link in links)


def test_its_links_lead_into_the_book(report):
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["html"]["baseurl"] == words.BOOK
    names = re.findall(r"book/chapters/(\w+)\.html", report.html)
    assert len(names) >= 10
    for name in names:
        assert (ROOT / "notebooks" / f"{name}.md").is_file(), name


def test_it_is_well_formed(report, unmoved):
    for text in (report.html, Report(unmoved).html):
        page = Outline(text)
        assert page.faults == []
        names = [a["id"] for _, a in page.elements if "id" in a]
        assert len(set(names)) == len(names)
        used = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"|labelledby="([^"]*)"', text)
        assert {one for found in used for one in found if one} <= set(names)
        assert any(title for *_, title in used)
        assert text.startswith("<!DOCTYPE html>")


def test_names_are_escaped(seen):
    name = '</script><script>alert("&")</script>'
    text = Report(seen, model=name, data="a<b>").html
    page = Outline(text)
    assert page.faults == []
    assert len(page.all("script")) == 1
    assert read_report(text)["model"] == name
    assert name in "".join(page.text)
    framed = Report(seen, model=name)._repr_html_()
    assert len(Outline(framed).elements) == 1


def test_a_notebook_shows_it_in_a_frame(report):
    ((tag, attributes),) = Outline(report._repr_html_()).elements
    assert tag == "iframe"
    assert attributes["title"] == "Robustness report: digits-linear"
    assert {*attributes} == {"title", "srcdoc", "onload", "style"}
    assert str(attributes["onload"]).count("'") == 4
    page = str(attributes["srcdoc"])
    assert read_report(page) == report.numbers
    # Links open beside the book, not inside of the frame.
    assert '<base target="_parent">' in page
    assert "<base" not in report.html


def test_it_works_with_a_screen_reader(report):
    page = Outline(report.html)
    assert page.elements[0] == ("html", {"lang": "en"})
    assert page.all("title")
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert len(page.all("img")) == 24
    assert all(re.match(r"Image 1\d\d, pred", str(a["alt"])) for a in page.all("img"))
    assert len(page.all("svg")) == 3
    for figure in page.all("svg"):
        assert figure["role"] == "img"
        assert len(str(figure["aria-label"])) > 60
    assert len(page.all("caption")) == len(page.all("table")) == 2
    assert all(cell["scope"] in {"col", "row"} for cell in page.all("th"))
    # What scrolls can be reached by keyboard, and says what it is.
    for box in page.all("div"):
        if box.get("class") == "wide":
            assert box["tabindex"] == "0"
            assert box["aria-label"]


def luminance(color):
    """Relative luminance by WCAG 2."""
    parts = (part / 255 for part in bytes.fromhex(color[1:]))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return 0.05 + np.dot([0.2126, 0.7152, 0.0722], linear)


def test_its_colors_have_enough_contrast(report):
    themes = re.findall(r"--paper.*?--link: #\w+", report.html, flags=re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        colors = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        least = {"ink": 7, "muted": 4.5, "link": 4.5, "blue": 3, "orange": 3}
        for ink, ground in itertools.product(least, ("paper", "tint")):
            one, other = luminance(colors[ink]), luminance(colors[ground])
            assert max(one, other) / min(one, other) >= least[ink], (ink, ground)


def test_images_without_colors_are_not_shown_and_large_ones_become_small(seen):
    for images in (None, IMAGES.expand(-1, 2, -1, -1)):
        assert Outline(Report(seen, images=images).html).all("img") == []
    large = torch.rand(40, 3, 224, 112, generator=torch.Generator().manual_seed(0))
    page = Report(seen, images=large).html
    assert len(page) < 1_000_000
    assert len(Outline(page).all("img")) == 24


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": IMAGES[:39]}, "images: expected the 40 that were"),
        ({"images": IMAGES, "positions": [1, 2]}, "positions: expected the 40"),
        ({"images": IMAGES * 255}, "images"),
    ],
)
def test_invalid_arguments_of_a_report_are_refused(seen, change, message):
    with pytest.raises(ValueError, match=message):
        Report(**{"lenses": seen, **change})


@pytest.mark.parametrize(("moves", "kept"), [(0, ["page", "json"]), (1, ["json"])])
def test_no_new_numbers_stand_beside_an_old_page(tmp_path, monkeypatch, moves, kept):
    """Interrupted before the first file is moved, and before the second is."""
    paths = {name: tmp_path / name for name in ("page", "json")}
    for path in paths.values():
        path.write_text("old")
    replace, done = Path.replace, []

    def interrupted(self, target):
        if len(done) == moves:
            raise KeyboardInterrupt
        done.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files({paths["page"]: "new", paths["json"]: "new"})
    assert [name for name, path in paths.items() if path.read_text() == "old"] == kept
    assert {*tmp_path.iterdir()} == {*paths.values()}


def test_a_link_stays_and_its_file_is_written(seen, tmp_path):
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "link.html", tmp_path / "real" / "page.html"
    link.symlink_to(real)
    assert Report(seen).write(link) == link
    assert link.is_symlink()
    assert read_report(real)["images"] == 40


def pages_in_print(page, folder, browser):
    """How many sheets of A4 Chromium prints."""
    pypdf = pytest.importorskip("pypdf")
    path = page.write(folder / "page.html")
    tab = browser.new_page()
    tab.goto(path.as_uri())
    tab.pdf(path=folder / "page.pdf", prefer_css_page_size=True)
    tab.close()
    return len(pypdf.PdfReader(folder / "page.pdf").pages)


@pytest.mark.chromium
def test_a_report_prints_on_one_sheet(unmoved, report, calibrated, tmp_path, browser):
    assert pages_in_print(report, tmp_path, browser) == 1
    long = "robustbench:cifar10/Linf/Wang2023Better_WRN-70-16_with_a_long_name"
    page = dataclasses.replace(report, model=long, data=f"{long}.npz")
    assert pages_in_print(page, tmp_path, browser) == 1
    assert pages_in_print(Report(unmoved, images=IMAGES), tmp_path, browser) == 1
    assert pages_in_print(calibrated[0], tmp_path, browser) == 1
