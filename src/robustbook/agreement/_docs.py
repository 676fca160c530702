"""Entries that the docstrings of the solver share.

logits, shifted_logits : Tensor or array, shape (N, K)
    Logits of the clean and of the shifted inputs, row i of both from the same sample.
*more : Tensor or array, shape (N, K), optional
    Logits of the same samples under further conditions: views three, four, and so on.
group : torch.distributed.ProcessGroup, optional
    Where each process passes its own samples: the group of all of them.
prior : Tensor or array, shape (K,), optional
    Class prior, positive, summing to 1. Uniform if left out.
tol : float, default 1e-9
    Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.
TypeError
    If an argument is of another kind than described.
ValueError
    If shapes or sizes do not fit together, or a value is out of range.
ConnectionError
    If a process of the group is gone, or took longer than the group's timeout.
CertificateError
    If the gap cannot be closed to `tol`; the message says where.
"""

from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)
