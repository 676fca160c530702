"""Training of classifiers, on one data set or several domains; our recipes.

:func:`train_classifier` minimizes a loss over one data set, :func:`train_domains` a
learner over batches from several source domains, measured after every epoch. Both go on
where they were stopped.

``python -m robustbook.training digits`` trains every digits model with every
training seed and writes ``data/checkpoints``; so do ``mnist``, ``fashion-mnist``,
``cifar10`` and ``cifar10-adversarial``, which takes hours; ``--models NAME`` leaves the
others as they are. On one machine with one version of torch the result is the same to
the last bit; elsewhere weights may differ in their last digits.
"""

from robustbook.training._defenses import DEFENSES, defense
from robustbook.training._learners import ERM, IRM, LISA, Learner, irm_penalty
from robustbook.training._loop import History
from robustbook.training._losses import (
    Loss,
    add_gaussian_noise,
    adversarial_loss,
    cross_entropy_loss,
    gradient_norm_loss,
)
from robustbook.training._pairing import AttackedView, OtherDomain, Pairing
from robustbook.training._recipes import (
    GRADIENT_PENALTIES,
    RECIPES,
    LongTraining,
    Recipe,
)
from robustbook.training._train import Measure, train_classifier, train_domains

__all__ = [
    "DEFENSES", "ERM", "GRADIENT_PENALTIES", "IRM", "LISA", "RECIPES", "AttackedView",
    "History", "Learner", "LongTraining", "Loss", "Measure", "OtherDomain", "Pairing",
    "Recipe", "add_gaussian_noise", "adversarial_loss", "cross_entropy_loss", "defense",
    "gradient_norm_loss", "irm_penalty", "train_classifier", "train_domains",
]  # fmt: skip
