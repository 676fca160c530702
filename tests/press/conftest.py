"""A throwaway book of one or two small chapters."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from press.layout import Chapter
from press.pairs import pair_text
from press.source import read_source, write_whole

HEAD = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

"""

COMPLETE = """\
(ch-accuracy)=
# Small

:::{{admonition}} You are here
You will add.
:::

```{{code-cell}} python
:tags: [parameters]

profile = "quick"
seed = 0
device = "auto"
```

We add.

```{{code-cell}} python
{body}
```

```{{code-cell}} python
:tags: [remove-cell]

def claim(said, holds):
    data = {{"text/plain": said}}
    display(data, raw=True, metadata={{"robustbook_claim": holds}})


claim("One and one make two.", 1 + 1 == 2)
```

## Key takeaways

It adds.

## Exercises

:::{{exercise}}
:label: ex-accuracy-one
Add one.
:::

:::{{solution}} ex-accuracy-one
:class: dropdown
One.
:::

````{{exercise-start}}
:label: ex-accuracy-two
````
Add two.
````{{exercise-end}}
````

:::{{solution-start}} ex-accuracy-two
:class: dropdown
:::
Two.
:::{{solution-end}}
:::

## References

None.
"""

ROOT = Path(__file__).resolve().parents[2]

MakeBook = Callable[..., Chapter]


def complete(body="print(profile, seed)"):
    """Return the text of a chapter that has all its parts."""
    return HEAD + COMPLETE.format(body=textwrap.dedent(body).strip())


def book_in(folder):
    """Return a function that writes a book of one chapter, in step."""

    def make(body="print(profile, seed)", *, text=None):
        (folder / "notebooks").mkdir(exist_ok=True)
        (folder / "intro.md").write_text("# Preface\n")
        (folder / "_toc.yml").write_text(
            "format: jb-book\nroot: intro\nchapters:\n"
            "  - file: book/chapters/01_small\n"
        )
        chapter = Chapter(folder, "01_small")
        chapter.source.write_text(text or complete(body), encoding="utf-8")
        write_pair(chapter)
        return chapter

    return make


def write_pair(chapter):
    """Write the notebook that the site would make; return its text."""
    source = read_source(chapter)
    page = [
        index if cell.cell_type == "code" else cell.source
        for index, cell in enumerate(source.notebook.cells)
        if "remove-cell" not in cell.metadata.get("tags", [])
    ]
    text = pair_text(source, page)
    write_whole(chapter.pair, text)
    return text


@pytest.fixture
def make_book(tmp_path):
    """A book in a folder of its own."""
    return book_in(tmp_path)
