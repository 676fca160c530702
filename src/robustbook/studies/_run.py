"""The old name of :mod:`robustbook.studies.run`."""

from robustbook.studies.run import (
    Row,
    Run,
    Setting,
    data_sum,
    decimals,
    one_thread,
    png,
    significant,
    small_network,
    with_keys,
)

__all__ = [
    "Row", "Run", "Setting", "data_sum", "decimals", "one_thread", "png",
    "significant", "small_network", "with_keys",
]  # fmt: skip
