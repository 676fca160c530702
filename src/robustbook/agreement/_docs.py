"""Entries that the docstrings of agreement share.

logits, shifted_logits : Tensor or array, shape (N, K)
    Logits of the clean and of the shifted inputs, row i of both from the same
    sample. Any floating-point type; CPU or CUDA. Log-probabilities do as well:
    a constant added to the logits of one sample changes nothing.
*more : Tensor or array, shape (N, K), optional
    Logits of the same samples under further conditions: views three, four, and so on.
group : torch.distributed.ProcessGroup, optional
    Where each process passes its own samples: the group of all of them, such as
    ``torch.distributed.group.WORLD`` once it is initialized. All must call; all get the
    same numbers, or the same error. Shards may be unequal, or empty: shape (0, K).
prior : Tensor or array, shape (K,), optional
    Class prior, positive, summing to 1. Uniform if left out. Under another one, a
    model that says nothing scores J(0) > 0, and a perfect one may score no more.
    Chapter 26 shows when a prior is of use.
tol : float, default 1e-9
    Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.
    Double precision allows about 1e-11, times K / 1000 for many classes.
level : float, default 0.95
    Coverage of the interval, strictly between 0 and 1.
probabilities : bool, default False
    Whether the arrays hold probabilities, as of scikit-learn or a web service, of which
    logarithms are taken; a 0 counts as 1e-12, with a warning.
norms : Tensor or array, shape (N,), optional
    Size of each perturbation, at least 0 or ``inf`` (not attacked with success).
    Samples are shifted in this order, ties as they come; without, at random.
seed : int, default 0
    Seed of the random order.
features : Tensor or array, shape (N, d)
    Of the clean inputs: coordinates in which closeness is meant (Euclidean), such
    as the penultimate layer.
shifted_features : Tensor or array, shape (M, d)
    Of the shifted inputs.
labels, shifted_labels : Tensor or array, shapes (N,) and (M,), optional
    If given (both), only samples of the same class are paired.
ax : matplotlib.axes.Axes, optional
    Where to draw; a new figure by default.
figure : matplotlib.figure.Figure
    It is shown by pyplot, unless `ax` was given.
axes : matplotlib.axes.Axes
    For more lines and titles.
TypeError, ValueError
    If the arrays do not fit together, or no class is in both.
TypeError
    If logits are no floating-point numbers, or an argument is of another kind
    than described.
ValueError
    If shapes or sizes do not fit together, or a value is out of range; for NaN
    and infinity the first index is named.
ConnectionError
    If a process of the group is gone, or took longer than the group's timeout.
CertificateError
    If the gap cannot be closed to `tol`; the message says where.
ImportError
    If matplotlib or pandas is not installed: ``robustbook[plot]`` has them.
"""

from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)
