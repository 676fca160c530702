"""The runner behind ``make``: sync, run, publish and check the chapters.

One direction of flow, no way back::

    notebooks/NN.md  ->  book/chapters/NN.ipynb  ->  the site  ->  notebooks/NN.ipynb
       (written)   publish     (executed)       site            (what readers open)

Each step is a function of a :class:`~press.layout.Chapter`, so that it works on any
folder laid out like the book. It knows no measure: it never imports ``robustbook``,
and ``robustbook`` never imports it.
"""
