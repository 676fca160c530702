"""A throwaway book of one or two small chapters."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from press.layout import Chapter
from press.source import sync

HEAD = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

"""

COMPLETE = """\
(ch-01)=
# Small

:::{{admonition}} What you will be able to do
Add.
:::

```{{code-cell}} python
:tags: [parameters, hide-input]

profile = "quick"
seed = 0
device = "auto"
```

We add.

```{{code-cell}} python
{body}
```

```{{code-cell}} python
:tags: [remove-cell, test]

assert 1 + 1 == 2
```

## Key takeaways

It adds.

## Exercises

:::{{exercise}}
:label: ex-01-one
Add one.
:::

:::{{solution}} ex-01-one
:class: dropdown
One.
:::

````{{exercise-start}}
:label: ex-01-two
````
Add two.
````{{exercise-end}}
````

:::{{solution-start}} ex-01-two
:class: dropdown
:::
Two.
:::{{solution-end}}
:::

## What the source papers say, and where we differ

Nothing.

## References

None.
"""

MakeBook = Callable[..., Chapter]


def complete(body: str = "print(profile, seed)") -> str:
    """Return the text of a chapter that has all its parts."""
    return HEAD + COMPLETE.format(body=textwrap.dedent(body).strip())


@pytest.fixture
def make_book(tmp_path: Path) -> MakeBook:
    """Return a function that writes a book of one chapter, in step."""

    def make(body: str = "print(profile, seed)", *, text: str | None = None) -> Chapter:
        (tmp_path / "notebooks").mkdir(exist_ok=True)
        (tmp_path / "intro.md").write_text("# Preface\n")
        (tmp_path / "_toc.yml").write_text(
            "format: jb-book\nroot: intro\nchapters:\n"
            "  - file: book/chapters/01_small\n"
        )
        chapter = Chapter(tmp_path, "01_small")
        chapter.source.write_text(text or complete(body), encoding="utf-8")
        sync(chapter)
        return chapter

    return make
