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

from robustbook.training._defenses import defense
from robustbook.training._learners import ERM, IRM, LISA
from robustbook.training._learners import Learner as Learner  # and others, for studies
from robustbook.training._loop import History as History
from robustbook.training._losses import Loss as Loss
from robustbook.training._losses import add_gaussian_noise, adversarial_loss
from robustbook.training._losses import cross_entropy_loss as cross_entropy_loss
from robustbook.training._pairing import AttackedView as AttackedView
from robustbook.training._pairing import OtherDomain as OtherDomain
from robustbook.training._pairing import Pairing
from robustbook.training._recipes import GRADIENT_PENALTIES as GRADIENT_PENALTIES
from robustbook.training._recipes import RECIPES as RECIPES
from robustbook.training._train import train_classifier, train_domains

__all__ = [
    "ERM",
    "IRM",
    "LISA",
    "Pairing",
    "add_gaussian_noise",
    "adversarial_loss",
    "defense",
    "train_classifier",
    "train_domains",
]
