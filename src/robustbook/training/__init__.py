"""Training: of one classifier, on several domains, and the recipes of our checkpoints.

:func:`train_classifier` minimizes a loss over one data set. :func:`train_domains`
minimizes a learner over batches from several source domains, measures every epoch on
validation pairs and test sets and keeps the weights that are best by any criterion.
Both run the same loop, and go on where they were stopped.

``python -m robustbook.training digits`` trains every digits model with every
training seed and writes ``data/checkpoints``; ``mnist``, ``fashion-mnist`` and
``cifar10`` do so for the larger data sets, and ``--models NAME`` trains one model
only and leaves the others as they are. ``cifar10-adversarial`` takes hours. When a
command is cut off, the same one goes on after the last full epoch. On one machine with
one version of torch the result is the same to the last bit; elsewhere the rounding
of sums may differ, which moves weights in their last digits.
"""

from robustbook.training._history import EarlyStopping, History
from robustbook.training._learners import (
    ERM,
    IRM,
    LISA,
    Learner,
    cutmix,
    irm_penalty,
    mixup,
)
from robustbook.training._losses import (
    Loss,
    add_gaussian_noise,
    adversarial_loss,
    cross_entropy_loss,
    gradient_norm_loss,
)
from robustbook.training._recipes import (
    GRADIENT_PENALTIES,
    RECIPES,
    LongTraining,
    Recipe,
)
from robustbook.training._train import Measure, train_classifier, train_domains

__all__ = [
    "ERM",
    "GRADIENT_PENALTIES",
    "IRM",
    "LISA",
    "RECIPES",
    "EarlyStopping",
    "History",
    "Learner",
    "LongTraining",
    "Loss",
    "Measure",
    "Recipe",
    "add_gaussian_noise",
    "adversarial_loss",
    "cross_entropy_loss",
    "cutmix",
    "gradient_norm_loss",
    "irm_penalty",
    "mixup",
    "train_classifier",
    "train_domains",
]
