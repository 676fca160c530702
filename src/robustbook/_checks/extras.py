"""Packages that only an extra brings: the error where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Say in one line which extra brings what the imports inside do not find.

    >>> with extra("report"):
    ...     import jinjer
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: jinjer is not installed; pip install "robustbook[report]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        raise ModuleNotFoundError(
            f'{package} is not installed; pip install "robustbook[{name}]"',
            name=package,
        ) from error
