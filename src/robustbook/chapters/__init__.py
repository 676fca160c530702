"""The runner behind `make`: sync, run and check the chapters of the book."""
