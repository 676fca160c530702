"""Attacks: one signature over the libraries that implement them.

Every attack is called as ``attack(model, images, labels=None, *, ...)`` and returns an
:class:`AttackResult`. Images and sizes of perturbations are in [0, 1]: an ℓ∞ size of
8/255 is eight gray levels. The model is any callable that returns logits; normalization
belongs inside it. An attack succeeds where the model is wrong in the end; an input on
which it is wrong already counts as a success of norm 0. Without labels, the model's
predictions on the clean images take their place.

FGSM, PGD and FMN run on foolbox, APGD, FAB and Square on pyautoattack; both come with
``pip install "robustbook[attacks]"``. Chapter 10 shows what each of them does.
"""

from robustbook.attacks._apgd import apgd
from robustbook.attacks._indicators import failure_indicators
from robustbook.attacks._minimal import fab, fmn
from robustbook.attacks._pgd import fgsm, pgd
from robustbook.attacks._result import AttackResult, smallest
from robustbook.attacks._square import square

__all__ = [
    "AttackResult",
    "apgd",
    "fab",
    "failure_indicators",
    "fgsm",
    "fmn",
    "pgd",
    "smallest",
    "square",
]
