"""Entries that the docstrings of average-case robustness share.

model : callable
    Returns logits (n, K) of inputs (n, ...). It must be differentiable, except for
    :func:`monte_carlo` and :func:`softmax_proxy`.
images : Tensor or array, shape (N, ...)
    Inputs of any range, float32 or float64, the dtype of the model's parameters.
sigma : float or sequence
    Standard deviations of the noise in every coordinate, in units of the input.
cdf : {"mvn", "mv_sigmoid"}, default "mvn"
    The normal distribution function, or the paper's substitute for it.
labels : Tensor or array, shape (N,), optional
    The classes whose probability to estimate; the predictions by default.
points : int, default 128
    Points in each of 8 scrambles, which are used for four classes or more: the standard
    errors are about 1e-4.
seed : int, default 0
    Seed of the noise and of the scrambles.
batch_size : int, default 256
    Inputs in a batch, where each gradient counts as an input. Lower it if memory is
    short; apart from rounding, the result does not depend on it.
device : str or torch.device, optional
    Where to run; by default where the model is. Noise differs between devices.
UserWarning
    If the model is in training mode or does not separate classes, or `sigma` is lost in
    rounding.
TypeError
    If an argument is of another kind than described, model and inputs differ in
    dtype, or logits are not real numbers.
ValueError
    If shapes do not fit together, a value is out of range, or logits or gradients
    are not finite.
"""

from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)
