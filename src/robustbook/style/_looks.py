"""Colors, markers and labels: one look for each role and each model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: The palette of Okabe and Ito (2008), which people with any of the common forms of
#: color blindness can distinguish. The yellow is only for fills: on white, a line of it
#: is too light.
PALETTE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "black": "#000000",
        "orange": "#E69F00",
        "sky": "#56B4E9",
        "green": "#009E73",
        "yellow": "#F0E442",
        "blue": "#0072B2",
        "vermilion": "#D55E00",
        "purple": "#CC79A7",
        "gray": "#666666",
    }
)

# Color, marker and label of each role and each model, the same in every chapter.
# Models that share a figure differ in color and in marker, so that color is never the
# only cue; labels are for legends and tables, short enough for a phone.
_LOOKS: Final = """
clean                   | blue      | o
shifted                 | vermilion | s
pa                      | blue      | o
accuracy                | orange    | s
shifted_accuracy        | orange    | s
same_answer_rate        | green     | ^
bound                   | gray
adam                    | purple    | v
hard                    | sky       | D
confidence              | purple    | P
curve                   | black
muted                   | gray
undefended              | blue      | o
perfect                 | green     | o
constant                | sky       | s
random                  | vermilion | X
linear                  | orange    | s | logistic regression
cnn                     | blue      | o | CNN
cnn-noise               | green     | ^ | CNN, noise
cnn-adv                 | black     | v | CNN, PGD
preact-adv              | black     | v | PreAct, PGD
cnn-grad1e-4            | sky       | D | CNN, λ = 0.0001
cnn-grad1e-3            | sky       | D | CNN, λ = 0.001
cnn-grad1e-2            | sky       | D | CNN, λ = 0.01
cnn-grad1e-1            | sky       | D | CNN, λ = 0.1
cnn-grad1               | sky       | D | CNN, λ = 1
blocks                  | blue      | o | block CNN
blocks-adv              | black     | v | block CNN, PGD
cifar10-blocks-adv-s0+mirrored | vermilion | P | block CNN, PGD, mirrored
strided                 | orange    | s | strided CNN
strided-adv             | green     | ^ | strided CNN, PGD
strided-grad1e-4        | sky       | D | strided, λ = 0.0001
strided-grad1e-3        | sky       | D | strided, λ = 0.001
strided-grad1e-2        | sky       | D | strided, λ = 0.01
jpeg-rs                 | vermilion | X | JPEG + RS
resnet20                | blue      | o | undefended
resnet32                | blue      | o | ResNet-32
resnet44                | blue      | o | ResNet-44
resnet56                | blue      | o | ResNet-56
advertorch_lenet5_clean | blue      | o | LeNet-5, clean
captum_lenet            | vermilion | X | LeNet, clean
conv_small_nat          | sky       | D | small CNN, clean
marabou_small           | sky       | D | tiny CNN, clean
marabou_medium          | sky       | D | CNN, clean
marabou_large           | vermilion | X | large CNN, clean
advertorch_lenet5_adv   | green     | ^ | LeNet-5, adv
cnn_a_adv               | orange    | s | CNN-A, adv
cnn_a_adv4              | orange    | s | CNN-A, adv 4
cnn_a_adv_alt           | sky       | D | CNN-A, adv alt
cnn_a_mix               | orange    | s | CNN-A, mix
cnn_a_mix4              | sky       | D | CNN-A, mix 4
conv_small_pgd          | black     | v | small CNN, PGD
madry_tiny_adv          | black     | v | tiny CNN, PGD
resnet2b_adv            | green     | ^ | ResNet-2b, adv
resnet4b_adv            | green     | ^ | ResNet-4b, adv
kw                      | purple    | P | CNN, KW
oval_wide_kw            | purple    | P | wide CNN, KW
"""


def _column(number: int) -> dict[str, str]:
    """Return a column of the table by the names in the first one."""
    rows = [line.split("|") for line in _LOOKS.strip().splitlines()]
    return {r[0].strip(): r[number].strip() for r in rows if len(r) > number}


#: Color of each role and each model.
COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {name: PALETTE[color] for name, color in _column(1).items()}
)
#: Marker of each model, and of the roles that are drawn as points.
MARKERS: Final[Mapping[str, str]] = MappingProxyType(_column(2))
#: Name of each model in legends and tables.
LABELS: Final[Mapping[str, str]] = MappingProxyType(_column(3))

_DATASETS: Final = {
    "digits": "digits",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
_DATASET: Final = re.compile("^(digits|mnist|fashion(-mnist)?|cifar10)-")
_SEED: Final = re.compile(r"(?<=.)-s\d+$")


def color_of(name: str) -> str:
    """Return the color of a role or of a model, whatever its data set and seed.

    Parameters
    ----------
    name : str
        A role ("clean", "pa", ...) or a model name ("digits-cnn-s3"). A model
        behind a defense ("digits-cnn-s3+jpeg-rs") has the color of the defense.
        Another name is a KeyError.

    Examples
    --------
    >>> color_of("digits-cnn-s3") == COLORS["cnn"]
    True
    """
    return _reserved(COLORS, name, "color")


def marker_of(name: str) -> str:
    """Return the matplotlib marker of a role or of a model, as :func:`color_of`.

    Examples
    --------
    >>> marker_of("digits-linear")
    's'
    """
    return _reserved(MARKERS, name, "marker")


def label_of(name: str) -> str:
    """Return the name of a model, or of a data set, for legends and tables.

    Examples
    --------
    >>> label_of("digits-cnn-adv-s0"), label_of("cifar10-marabou_large+jpeg-rs")
    ('CNN, PGD', 'JPEG + RS')
    >>> label_of("cifar10")
    'CIFAR-10'
    """
    return _DATASETS.get(name) or _reserved(LABELS, name, "label")


def _reserved(table: Mapping[str, str], name: str, kind: str) -> str:
    """Look up a name, or what is left without data set, seed and defended model."""
    bare = _SEED.sub("", _DATASET.sub("", name.rpartition("+")[2]))
    for key in (name, bare):
        if key in table:
            return table[key]
    raise KeyError(
        f"no {kind} is reserved for {name!r}; known names: {', '.join(sorted(table))}"
    )
