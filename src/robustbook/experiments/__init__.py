"""Expensive experiments: each computes tidy rows and stores them with provenance.

``python -m robustbook.experiments NAME`` runs one and writes
``data/results/NAME.json``. A new experiment is a module with a function of its own
name, registered in ``__main__``.
"""
