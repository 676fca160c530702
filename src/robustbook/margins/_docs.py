"""Entries that the docstrings of margins share.

logit_margin : Tensor or array, shape (N,)
    Margins that are free: of logits, or any score that is large where decisions are
    robust.
input_margin : Tensor or array, shape (N,)
    Measured margins, at least 0; ``inf`` where no attack found another class.
correct : Tensor or array, shape (N,)
    Whether predictions are right, bool.
features : Tensor or array, shape (N, D)
    Of the penultimate layer, say.
weight : Tensor or array, shape (K, D)
    Weights of the linear head.
eps : float
    The bound, in the units of `input_margin`: a decision is robust if its margin is
    larger.
level : float, default 0.95
    Coverage of each interval, in (0, 1).
resamples : int, default 1000
    For intervals by the bootstrap.
seed : int, default 0
    For what is drawn at random.
TypeError, ValueError
    If shapes or types do not match, an entry is NaN, or an option is out of range.
"""

from robustbook._docs import SharedDocs
from robustbook.attacks.engine import DOCS as ATTACKS

DOCS = SharedDocs(__doc__)
DOCS.entries = {**ATTACKS.entries, **DOCS.entries}
