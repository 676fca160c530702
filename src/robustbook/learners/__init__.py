"""Learning from several domains: ERM, IRM and LISA, and what each epoch is worth.

A learner is a loss over batches from several source domains. :func:`train_domains`
minimizes it, measures every epoch on validation pairs and test sets, keeps the weights
that are best by any criterion, and goes on where it was stopped.
"""

from ._history import EarlyStopping, History
from ._losses import ERM, IRM, LISA, Learner, cutmix, irm_penalty, mixup
from ._train import Measure, train_domains

__all__ = [
    "ERM",
    "IRM",
    "LISA",
    "EarlyStopping",
    "History",
    "Learner",
    "Measure",
    "cutmix",
    "irm_penalty",
    "mixup",
    "train_domains",
]
