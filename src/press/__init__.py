"""The runner behind ``make``: run, publish and check the chapters, build the site.

One direction of flow, no way back::

    notebooks/NN.md  ->  book/chapters/NN.ipynb  ->  the site  ->  notebooks/NN.ipynb
       (written)   publish     (executed)       site            (what readers open)

Each step is a function of a :class:`~press.layout.Chapter`, so that it works on any
folder laid out like the book. It knows no measure: it never imports ``robustbook``,
and ``robustbook`` never imports it.
"""

import sys

# nbformat brings jsonschema, and that this checker of foreign web addresses, if it is
# there: no notebook has one, and its import takes longer than all the others.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
