"""The runner behind ``make``: sync, run, publish and check the chapters.

One direction of flow, no way back::

    notebooks/NN.md  ->  notebooks/NN.ipynb  ->  book/chapters/NN.ipynb
        (written)      sync      (no outputs)   publish     (executed)

Each step is a function of a :class:`~press.layout.Chapter`, so that it works on any
folder laid out like the book. It knows no measure: it never imports ``robustbook``,
and ``robustbook`` never imports it.
"""
