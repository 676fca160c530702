"""The page of claims: what it shows, how it is searched, where its links lead."""

import re

from press.claims import VERDICTS, WEIGHTS, is_test, read_ledger
from press.layout import list_chapters
from press.source import read_source

from .conftest import REPOSITORY, ROOT, in_browser


def test_the_ledger_shows_every_claim_and_its_evidence(site):
    page = site.pages["book/claims.html"]
    ledger = read_ledger(ROOT)
    claims, titles = ledger.claims, {d.id: d.title for d in ledger.documents}
    blocks = page.soup.select("article div.claim")
    assert [block["id"] for block in blocks] == [claim.anchor for claim in claims]
    for block, claim in zip(blocks, claims, strict=True):
        assert block.select_one(".claim-verdict").get_text() == claim.answer
        assert block.select_one(".claim-weight").get_text().strip() == claim.weight
        place = block.select_one(".claim-place").get_text().strip()
        assert place.startswith(f"{titles[claim.document]}, {claim.place}")
        folded = block.select_one("details")
        assert folded.select_one(".claim-quote").get_text().strip().endswith(")")
        evidence = folded.select(".claim-evidence")
        links = [link["href"] for box in evidence for link in box.select("a")]
        tests = [href for href in links if href.startswith(f"{REPOSITORY}/blob/")]
        assert len(tests) == len(claim.evidence), claim.id
        assert len(links) >= 2 * len(claim.evidence), claim.id
        assert "glue" not in block.get_text()
    total = page.soup.select("article table tbody tr")[-1].select("td")
    counted = [sum(claim.weight == weight for claim in claims) for weight in WEIGHTS]
    assert [int(cell.get_text()) for cell in total[1:]] == [*counted, len(claims)]
    core = [claim.verdict for claim in claims if claim.weight == "core"]
    text = " ".join(page.soup.select_one("article").get_text().split())
    assert f"has {len(claims)} claims of {len(titles)} documents" in text
    assert f"Of the {len(core)} at their core, {core.count(VERDICTS[0])} hold" in text
    first = page.soup.select("article .claims-first li a")
    assert [link["href"] for link in first] == [f"#claim-{id}" for id in ledger.first]


def test_a_link_of_the_ledger_leads_to_a_claim(site):
    sources = map(read_source, list_chapters(ROOT))
    cells = {s.place(i): c for s in sources for i, c in enumerate(s.notebook.cells)}
    page = site.pages["book/claims.html"]
    pattern = re.compile(r".*/(notebooks/\w+\.md)\?plain=1#L(\d+)")
    for link in page.soup.select(".claim-evidence a[href*='/blob/']"):
        match = pattern.fullmatch(link["href"])
        assert match, link["href"]
        assert is_test(cells[f"{match[1]}:{match[2]}"]), link["href"]


@in_browser
def test_the_ledger_is_searched_and_filtered(visit):
    tab = visit("book/claims.html", formulas=False)
    every = tab.locator("div.claim").count()
    shown = tab.locator("div.claim:visible")
    refuted = tab.locator("div.claim.claim-refuted").count()
    both = tab.locator("div.claim.claim-refuted.weight-core").count()
    assert 0 < both < refuted < every == shown.count()
    tab.get_by_label("Document").select_option("of-margin")
    assert shown.count() == tab.locator("div.claim.of-margin").count() > 0
    tab.get_by_label("Chapter").select_option("in-35")
    assert shown.count() == tab.locator("div.claim.of-margin.in-35").count() > 0
    tab.get_by_role("button", name="Show all").click()
    tab.get_by_label("Verdict").select_option("claim-refuted")
    assert shown.count() == refuted
    tab.get_by_label("Weight").select_option("weight-core")
    assert shown.count() == both
    assert f"{both} of {every}" in tab.locator(".claims-filter output").inner_text()
    form = tab.locator("form.claims-filter")
    form.get_by_label("Search").fill("CONCAVE  kernel")
    assert tab.locator("#claim-paper-concave").is_visible()
    assert 0 < shown.count() < both
    form.get_by_role("button", name="Show all").click()
    for letter, name in ("β", "beta"), ("σ", "sigma"):
        form.get_by_label("Search").fill(letter)
        signs = shown.count()
        form.get_by_label("Search").fill(name)
        assert shown.count() >= signs > 0
    form.get_by_label("Search").fill("theorem 3")
    apart = shown.count()
    form.get_by_label("Search").fill('"theorem 3"')
    assert 0 < shown.count() < apart
    for text in shown.all_text_contents():
        assert re.search(r"theorem\s+3(?!\.?\d)", text.lower())
    form.get_by_label("Search").fill("")
    tab.get_by_label("Verdict").select_option("claim-refuted")
    # A link from a chapter shows and unfolds its claim whatever is chosen.
    hidden = tab.locator("div.claim.claim-holds").first
    finding = hidden.locator(".claim-finding")
    assert not hidden.is_visible()
    tab.evaluate("id => { location.hash = id }", hidden.get_attribute("id"))
    finding.wait_for(state="visible", timeout=10000)
    tab.get_by_role("button", name="Show all").click()
    tab.wait_for_function(
        "n => document.querySelectorAll('.claim-hidden').length === n", arg=0
    )
    assert shown.count() == every


@in_browser
def test_the_ledger_unfolds_without_a_script(visit):
    tab = visit("book/claims.html", formulas=False, java_script_enabled=False)
    first = tab.locator("div.claim").first
    assert not first.locator(".claim-quote").is_visible()
    first.locator("summary").click()
    assert first.locator(".claim-quote").is_visible()
    assert not tab.locator("form.claims-filter").is_visible()
