"""Names in a page's code are those that sphinx-codeautolink finds, in less time."""

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx_codeautolink.parse import parse_names

from press.ext.code_links import NamesOfPage

BLOCKS = [
    "from robustbook import scores as s, text\nimport torch",
    "def f(x):\n    global text\n    return s.accuracy(x, text.amplify)",
    "a = s.accuracy\nfor t in torch.eye(2):\n    a(t, t)",
    "s = 1",
    "s.accuracy, a.b, text.amplify",
]


def test_names_of_a_block_do_not_depend_on_what_was_read_before():
    names_of = NamesOfPage()
    for _ in range(2):  # another page with the same code
        block = nodes.literal_block("", "")
        page = new_document("page")
        page += block
        above, names = "", []
        for text in BLOCKS:
            with pytest.raises(SyntaxError):
                names_of(f"{above}1 +", block)
            length = above.count("\n")
            expected = [
                n for n in parse_names(above + text, block) if n.lineno > length
            ]
            new = [n for n in names_of(above + text, block) if n.lineno > length]
            assert new == expected
            names += new
            above += f"{text}\n"
        assert len(names) > 8
