"""Entries that the docstrings of average-case robustness share.

model : callable
    Returns logits (n, K) of inputs (n, ...); must be differentiable, but for
    :func:`monte_carlo` and :func:`softmax_proxy`.
x : Tensor or array, shape (N, ...)
    Inputs, float32 or float64, the dtype of the model's parameters.
sigma : float or sequence
    Standard deviations of the noise in every coordinate, in units of the input.
cdf : {"mvn", "mv_sigmoid"}, default "mvn"
    The normal distribution function, or the paper's stand-in.
label : Tensor or array, shape (N,), optional
    The class whose probability to estimate; the prediction by default.
points : int, default 128
    Points of each of 8 scrambles, from four classes on: standard errors of about 1e-4.
seed : int, default 0
    Seed of all that is drawn: noise and scrambles.
batch_size : int, default 256
    Inputs at once; the gradients of an input count as one each. Lower it where memory
    is short.
device : str or torch.device, optional
    Where to run; where the model is by default. Noise differs between devices.
UserWarning
    If the model is in training mode or does not tell classes apart, or `sigma` is
    lost in rounding.
TypeError
    If an argument is of another kind than described, model and inputs differ in
    dtype, or logits are not real numbers.
ValueError
    If shapes do not fit together, a value is out of range, or logits or gradients
    are not finite.
"""

from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)
