"""The error for a missing package that an extra installs."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra if an import inside the block does not find a package.

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
