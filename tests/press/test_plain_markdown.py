"""A resolved page in the Markdown that every notebook program shows."""

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from docutils.utils import new_document
from sphinx_exercise.nodes import solution_node
from sphinx_proof.nodes import proof_node, theorem_node

from press.ext.plain_markdown import PlainMarkdown, expand_macros
from press.ext.text import bind_punctuation

PAGE = PlainMarkdown(
    "https://book.example/book/chapters/04_kernel.html",
    {
        "theorem": {"thm": (4, 2)},
        "displaymath": {"eq": (4, 1)},
        "figure": {"f": (4, 3)},
    },
    {"PA": r"\operatorname{PA}", "kl": ["D(#1 | #2)", 2]},
)


def markdown(text):
    """What becomes of reStructuredText."""
    parts = PAGE.cells(publish_doctree(text, settings_overrides={"report_level": 5}))
    return "\n\n".join(map(str, parts))


def cell(index):
    return nodes.container(nb_element="cell_code", cell_index=index)


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        "emphasis": ("*so* **bold** ``code``", "*so* **bold** `code`"),
        "formulas": (r":math:`\PA \le 1`", r"$\operatorname{PA} \le 1$"),
        "signs that mean something": (r"5 \* 3 < 2 $", r"5 \* 3 &lt; 2 \$"),
        "lists": ("- a\n- b", "- a\n- b"),
        "numbers": ("1. a\n\n   b\n2. c", "1. a\n\n   b\n\n2. c"),
        "quotations": ("a\n\n  b", "a\n\n> b"),
        "links": (
            "`x <03.html#y>`_",
            "[x](https://book.example/book/chapters/03.html#y)",
        ),
        "code": ("::\n\n  x = 1", "```\nx = 1\n```"),
        "boxes": (".. admonition:: Here\n\n   So.", "> **Here**\n>\n> So."),
        "pictures": (
            ".. image:: a.png\n   :alt: A line",
            "![A line](https://book.example/book/chapters/a.png)",
        ),
        "code with backticks": ("``a`b``", "``a`b``"),
    }.values(),
    ids=lambda value: None,
)
def test_what_text_becomes(text, wanted):
    assert markdown(text) == wanted


def test_a_bar_in_a_table_is_no_border():
    table = markdown(
        "====  =============\n a     b\n====  =============\nx|y   "
        ":math:`|x|`\n====  =============\n"
    )
    assert table == "| a | b |\n| --- | --- |\n| x\\|y | $\\vert x\\vert $ |"


ALIGNED = r"\begin{align} x &= 1 \\ y &= 2 \end{align}"
MATH = nodes.math("", "x \\in\n[0, 1]")
PASTED = nodes.Text("fewer in\n"), nodes.inline("", "1"), nodes.Text(". But")
LEMMA = {"ids": ["thm"], "realtype": "lemma", "countertype": "theorem"}
BOUNDS = nodes.title("", " (Bounds)"), nodes.section("", nodes.paragraph("", "So."))


@pytest.mark.parametrize(
    ("node", "wanted"),
    {
        "a space in an address": (
            nodes.paragraph("", "", nodes.reference("", "x", refuri="a b.html")),
            "[x](https://book.example/book/chapters/a%20b.html)",
        ),
        "a formula is one line with its number": (
            nodes.math_block("", "\\kl{p}{q} \\\\\n&= 0", ids=["eq"]),
            r"$$\begin{aligned} D(p | q) \\ &= 0 \end{aligned} \tag{4.1}$$",
        ),
        "a formula with an environment": (
            nodes.math_block("", ALIGNED, nowrap=True),
            ALIGNED,
        ),
        "a formula in a quotation is one line": (
            nodes.block_quote("", nodes.paragraph("", "", MATH)),
            r"> $x \in [0, 1]$",
        ),
        "a number that a line begins with begins no list": (
            nodes.paragraph("", "", *PASTED),
            "fewer in\n1\\. But",
        ),
        "a theorem is a quotation with its number": (
            theorem_node("", *BOUNDS, **LEMMA),
            "> **Lemma 4.2 (Bounds).**\n>\n> So.",
        ),
    }.values(),
    ids=lambda value: None,
)
def test_what_a_block_becomes(node, wanted):
    assert PAGE.cells(nodes.section("", node)) == [wanted]


def test_macros_take_groups_and_single_signs():
    macros = {"kl": ["D(#1, #2)", 2], "k": "K"}
    written = expand_macros(r"\kl{p_{1}} q + \k_2 + \kappa", macros)
    assert written == r"D(p_{1}, q) + K_2 + \kappa"


@pytest.mark.parametrize(("length", "folded"), [(400, False), (450, True)])
def test_long_proofs_are_folded(length, folded):
    words = nodes.paragraph(
        "", "", nodes.emphasis("", "Proof."), nodes.Text(" x" * length)
    )
    (text,) = PAGE.cells(nodes.section("", proof_node("", nodes.admonition("", words))))
    assert text.startswith("<details>") == folded
    assert "∎" in text


def test_code_cells_part_the_text_and_captions_follow_them():
    code = cell(7)
    figure = nodes.figure("", nodes.image(), nodes.caption("", "It falls."), ids=["f"])
    code += nodes.container("", figure)
    first, after = nodes.paragraph("", "Before."), nodes.paragraph("", "After.")
    assert PAGE.cells(nodes.section("", first, code, after)) == [
        "Before.",
        7,
        "**Figure 4.3.** It falls.\n\nAfter.",
    ]


def test_what_the_page_refers_to_itself_has_an_anchor():
    title = nodes.section("", nodes.title("", "So"), ids=["so", "sec"])
    formula = nodes.math_block("", "x", ids=["eq"])
    links = [nodes.reference("", name, refid=name) for name in ("sec", "eq", "far")]
    page = nodes.section("", title, formula, nodes.paragraph("", "", *links))
    assert PAGE.cells(page) == [
        '# <a id="sec"></a>So\n\n<a id="eq"></a>\n\n$$x \\tag{4.1}$$\n\n'
        f"[sec](#sec)[eq](#eq)[far]({PAGE.address}#far)"
    ]


@pytest.mark.parametrize(
    ("before", "parts"),
    [
        (nodes.paragraph("", "a"), ['a\n\n<a id="f"></a>', 7, ""]),
        (cell(6), [6, 7, '<a id="f"></a>\n\n']),
    ],
)
def test_a_link_to_a_figure_leads_above_its_cell_if_text_stands_there(before, parts):
    code = cell(7)
    code += nodes.figure("", nodes.image(), nodes.caption("", "So."), ids=["f"])
    link = nodes.paragraph("", "", nodes.reference("", "x", refid="f"))
    parts[-1] += "**Figure 4.3.** So.\n\n[x](#f)"
    assert PAGE.cells(nodes.section("", before, code, link)) == parts


def test_what_has_no_markdown_is_an_error():
    with pytest.raises(NotImplementedError, match="no Markdown for <line_block"):
        PAGE.cells(nodes.section("", nodes.line_block()))


def test_punctuation_keeps_its_place_among_equal_texts():
    document = new_document("page")
    content = (nodes.emphasis("", "x"), nodes.Text(", with "), nodes.math("", "a"))
    again = (nodes.Text(", with "), nodes.math("", "b"), nodes.Text("."))
    document += nodes.paragraph("", "", *content, *again)
    bind_punctuation(None, document)
    assert document.astext() == "x, with a, with b."


def test_works_cited_stay_apart_from_a_list_before_them_and_lose_their_hook():
    page = publish_doctree("- a")
    hook = nodes.reference("", "\N{LEFTWARDS ARROW WITH HOOK}", refuri="book.html")
    entry = nodes.paragraph("", "", nodes.Text("Buhmann, 2010. "), hook)
    works = nodes.bullet_list("", nodes.list_item("", entry))
    works["classes"] = ["chapter-references"]
    page += works
    assert PAGE.cells(page) == ["- a\n\n*Works cited*\n\n- Buhmann, 2010."]


def test_a_solution_that_begins_with_code_says_whose_it_is():
    title = nodes.title("", "Solution to Exercise 1")
    body = nodes.section("", cell(3), nodes.paragraph("", "so"))
    page = nodes.section("", solution_node("", title, body))
    label, code, text = PAGE.cells(page)
    assert (label, code) == ("*Solution to Exercise 1, in code:*", 3)
    assert "<summary>Solution to Exercise 1</summary>\n\nso" in text
