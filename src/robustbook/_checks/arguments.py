"""Checks of numbers and arrays.

A message says what was expected, what was got, and how to mend it. No check of logits
allocates memory of the size of its input.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

#: Larger logits are refused: the sum of their squares could overflow.
LARGEST_LOGIT = 1e100
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
#: The remark on logits for which :func:`are_probabilities` is true.
PROBABILITIES = (
    "rows are not negative and sum to 1, as probabilities are; scored as logits they "
    "give another number than their logarithms; use logits or log-probabilities"
)

#: Arguments that :func:`as_tensor` takes.
ArrayLike = Tensor | npt.ArrayLike


def as_tensor(name: str, value: Any) -> Tensor:
    """Turn a tensor, NumPy array or nested list into a detached tensor."""
    if isinstance(value, Tensor):
        return value.detach()
    try:
        # Lists become float64; torch.as_tensor would round them to float32. Torch has
        # no negative strides, which the order of C does away with.
        array = np.asarray(value, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        with warnings.catch_warnings():
            # Torch warns of read-only memory, such as a memory map, which is only read.
            warnings.filterwarnings("ignore", "The given NumPy array is not writ")
            return torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError) as error:
        access = where_logits_are(value)
        raise TypeError(
            f"{name}: expected a torch tensor or a numeric NumPy array, got "
            f"{type(value).__name__} ({f'pass its {access}' if access else error})"
        ) from None


def where_logits_are(output: object) -> str:
    """Return how to access the logits in a model's output; "" if that is unknown."""
    if hasattr(output, "logits"):
        return ".logits"
    if isinstance(output, Mapping):
        return "['logits']"
    return "[0]" if isinstance(output, tuple) else ""


def as_real(name: str, value: Any) -> Tensor:
    """Return numbers as a float64 tensor; complex numbers and booleans are refused."""
    numbers = as_tensor(name, value)
    if numbers.is_complex() or numbers.dtype == torch.bool:
        raise TypeError(f"{name}: expected real numbers, got dtype {numbers.dtype}")
    return numbers.double()


def check_logits(
    name: str, value: Any, *, empty: bool = False, start: int = 0
) -> Tensor:
    """Return `value` as an (N, K) tensor of finite real logits; integers as float64.

    If `empty`, as for a process without samples, N may be 0 and K anything. `start` is
    the number of the first sample, for messages.
    """
    logits = as_tensor(name, value)
    if logits.dtype in _INTEGERS:
        logits = logits.double()
    if logits.dtype not in DTYPES:
        raise TypeError(
            f"{name}: expected floating-point logits of 16, 32 or 64 bits, got dtype "
            f"{logits.dtype}; pass real scores"
        )
    if logits.ndim == 2 and len(logits) == 0 and empty:
        return logits
    if logits.ndim != 2 or len(logits) == 0 or logits.shape[1] < 2:
        raise ValueError(
            f"{name}: expected shape (N, K), at least one sample by at least 2 "
            f"classes, got {tuple(logits.shape)}; for a single binary score z pass the "
            "two logits (0, z)"
        )
    _check_finite(name, logits, largest=LARGEST_LOGIT, start=start)
    return logits


def are_probabilities(rows: Any) -> bool:
    """Return whether the rows of an (N, K) tensor or array look like probabilities.

    Hard decisions, one-hot, do not: their score is the same either way.
    """
    alike = (rows >= 0).all() and (abs(rows.sum(1) - 1) < 1e-3).all()
    return bool(alike and ((rows > 0) & (rows < 1)).any())


def check_logit_pair(
    logits: Any,
    shifted_logits: Any,
    *,
    names: tuple[str, str] = ("logits", "shifted_logits"),
) -> tuple[Tensor, Tensor]:
    """Check two paired arrays of logits: each by itself, then against each other."""
    pair = check_logits(names[0], logits), check_logits(names[1], shifted_logits)
    check_paired(names, *pair)
    return pair


def check_views(*views: Any, empty: bool = False, start: int = 0) -> tuple[Tensor, ...]:
    """Check two or more arrays of the same samples under different conditions."""
    if len(views) < 2:
        raise TypeError(f"views: expected two or more arrays, got {len(views)}")
    named = list(zip(view_names(len(views)), views, strict=True))
    checked = [check_logits(*view, empty=empty, start=start) for view in named]
    for (name, _), view in zip(named, checked, strict=True):
        check_paired(("logits", name), checked[0], view)
    return tuple(checked)


def view_names(count: int) -> list[str]:
    """Return the names of the views of a sample, for messages."""
    names = ["logits", "shifted_logits", *(f"views[{v}]" for v in range(2, count))]
    return names[:count]


def check_paired(names: tuple[str, str], first: Any, second: Any) -> None:
    """Refuse arrays with different shapes."""
    shape, other = tuple(first.shape), tuple(second.shape)
    if shape != other:
        raise ValueError(
            f"{names[1]}: expected the shape of {names[0]}, {shape} (row i of both "
            f"must be the same sample), got {other}"
        )


def check_prior(prior: Any, num_classes: int, device: torch.device) -> Tensor | None:
    """Return the class prior as a float64 tensor of shape (K,), or None."""
    if prior is None:
        return None
    weights = as_real("prior", prior).to(device)
    if weights.shape != (num_classes,):
        raise ValueError(
            f"prior: expected shape ({num_classes},), one probability a class, got "
            f"{tuple(weights.shape)}"
        )
    total, lowest = math.fsum(weights.tolist()), float(weights.min())
    if not lowest >= 1e-100:
        raise ValueError(
            "prior: expected positive probabilities, of at least 1e-100, got "
            f"{lowest:g}; leave out classes that cannot occur"
        )
    # Single precision rounds the sum.
    if abs(total - 1.0) > 1e-6:
        raise ValueError(
            f"prior: expected probabilities that sum to 1, got a sum of {total:g}"
        )
    return weights / total


def check_real(
    name: str,
    value: Any,
    kind: str = "a number",
    fits: Callable[[float], bool] = lambda x: not math.isnan(x),
) -> float:
    """Return `value` as a float that fits; `kind` says in words which ones do."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected {kind}, got {value!r}") from None
    if not fits(number):
        raise ValueError(f"{name}: expected {kind}, got {number:g}")
    return number


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a positive finite float."""
    return check_real(
        name, value, "a positive finite number", lambda x: 0 < x < math.inf
    )


def check_bound(name: str, value: Any, *, norm: str = "linf") -> float:
    """Return a bound on the change of an image whose pixels are in [0, 1]."""
    number = check_positive(name, value)
    if norm == "linf" and number > 1:
        raise ValueError(
            f"{name}: expected at most 1, as pixels are in [0, 1], got {number:g}; "
            f"for {number:g} of 255 levels pass {number:g}/255"
        )
    return number


def check_non_negative(name: str, value: Any, *, infinite: bool = False) -> float:
    """Return `value` as a float of at least 0; infinity only if allowed."""
    kind = f"a {'' if infinite else 'finite '}number of at least 0"
    most = math.inf if infinite else sys.float_info.max
    return check_real(name, value, kind, lambda x: 0 <= x <= most)


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float in [0, 1]."""
    return check_real(name, value, "a number in [0, 1]", lambda x: 0 <= x <= 1)


def check_level(level: Any) -> float:
    """Return the coverage of an interval, below 1 by so much that it is finite."""
    return check_real("level", level, "a number in (0, 1)", lambda x: 0 < x < 1 - 1e-12)


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return `value` as an integer of at least `minimum`."""
    if not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {value}")
    return int(value)


def check_power_of_two(name: str, value: Any) -> int:
    """Return `value` as an integer that is a power of 2."""
    count = check_count(name, value)
    if count & (count - 1):
        raise ValueError(f"{name}: expected a power of 2, got {count}")
    return count


def check_choice(name: str, value: Any, choices: Iterable[str], *, of: str = "") -> str:
    """Return `value` if it is one of `choices`; `of` ends their list in the message."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(
            f"{name}: expected one of {', '.join(choices)}{of}; got {value!r}"
        )
    return value


def check_labels(
    name: str, value: Any, *, length: int, num_classes: int | None = None
) -> Tensor:
    """Return `value` as int64 labels of shape (length,); 2.0 counts as 2."""
    numbers = as_tensor(name, value)
    if numbers.shape != (length,):
        raise ValueError(
            f"{name}: expected shape ({length},), one label a sample, got "
            f"{tuple(numbers.shape)}"
        )
    labels = numbers.long()
    fractional = numbers[numbers != labels]  # NaN and infinity, too
    if len(fractional):
        entry = float(fractional[0])
        raise TypeError(f"{name}: expected integer labels, got {entry:g} among them")
    if num_classes is not None and length:
        low, high = (int(bound) for bound in labels.aminmax())
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"{name}: expected labels from 0 to {num_classes - 1}, got "
                f"{low if low < 0 else high}"
            )
    return labels


def check_features(name: str, value: Any) -> Tensor:
    """Return `value` as float64 features (N, D) up to 1e150; N and D are at least 1."""
    features = as_real(name, value)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"{name}: expected shape (N, D), samples by features, both at least 1, "
            f"got {tuple(features.shape)}; flatten feature maps: {name}.flatten(1)"
        )
    # The sum of many squares, too, must be finite.
    _check_finite(name, features, largest=1e150)
    return features


def check_feature_sets(features: Any, shifted_features: Any) -> tuple[Tensor, Tensor]:
    """Return two sets of features in one space, not necessarily paired, as float64."""
    first = check_features("features", features)
    second = check_features("shifted_features", shifted_features)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"shifted_features: expected {first.shape[1]} features a sample, as "
            f"features, got {second.shape[1]}"
        )
    return first, second


def _check_finite(
    name: str,
    values: Tensor,
    *,
    largest: float = sys.float_info.max,
    start: int = 0,
) -> None:
    """Refuse NaN, infinity, and numbers beyond the largest; name the first of them."""
    low, high = (float(bound) for bound in values.aminmax())
    if max(-low, high) <= largest:  # never true of NaN
        return
    row, *index = (~(values.double().abs() <= largest)).nonzero()[0].tolist()
    entry = float(values[(row, *index)])
    remedy = "remove such samples from both arrays or mend the model"
    if math.isfinite(entry):
        remedy = f"divide all by one constant, to be within ±{largest:g}"
    elif entry == -math.inf:
        remedy = "clip probabilities before their logarithm, or leave out the class"
    got = "NaN" if math.isnan(entry) else f"{entry:g}"
    place = (start + row, *index)
    raise ValueError(
        f"{name}: expected finite numbers, got {got} at index {place}; {remedy}"
    )
