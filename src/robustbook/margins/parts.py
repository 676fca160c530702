"""Parts of the measures of margins, for those who examine them."""

from robustbook.margins._accuracy import tune_threshold
from robustbook.margins._consistency import concordance, ranks

__all__ = ["concordance", "ranks", "tune_threshold"]
