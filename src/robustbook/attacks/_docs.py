"""Entries that the docstrings of attacks, margins and lenses share.

model : callable
    Returns logits (n, K) of images (n, ...) in [0, 1]; usually a module in
    evaluation mode. It gets copies, so it may work in place; its parameters and
    their gradients are left alone.
images : Tensor or ndarray, shape (N, ...)
    Images in [0, 1], float32 or float64, the dtype of the model's parameters.
labels : Tensor or ndarray, shape (N,), optional
    True classes, integers from 0 to K - 1; the model's predictions by default.
eps : float
    Largest size of the perturbation, in [0, 1] pixel units.
targets : int, optional
    Go for this many of the likeliest other classes, one after the other, and keep
    the smallest perturbation; all of them if there are fewer. Untargeted by default.
bisections : int, default 0
    Halvings of the way back to the clean image in the end, as by
    :func:`bisect_result`.
norm : {"linf", "l2"}, default "linf"
    What size and distance mean: the largest change of a pixel, or the root of the
    sum of squares.
skip_errors : bool, default True
    Leave inputs as they are on which the model is wrong already.
batch_size : int, default 256
    Images at once; the result does not depend on it, rounding apart.
seed : int, default 0
    Seed for models that draw random numbers; the search itself draws none.
progress : bool, default True
    Show a progress bar, on a terminal.
device : str or torch.device, optional
    Where to run, "auto" for a CUDA device if there is one; where the model is by
    default. The result is where the images are.
TypeError
    If images or logits are no floating-point numbers, the model and the images
    differ in dtype, or the labels are not integers.
ValueError
    If shapes do not match, a label is no class, a logit is NaN or infinite on a
    clean or attacked image, or an option is out of range.
ModuleNotFoundError
    If foolbox or pyautoattack is not installed: ``robustbook[attacks]`` has them.
UserWarning
    If the model is in training mode, or pixels are outside [0, 1].
"""

from robustbook._docs import SharedDocs

DOCS = SharedDocs(__doc__)
