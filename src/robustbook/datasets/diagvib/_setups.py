"""The environments of the papers' experiments, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook.datasets.diagvib._factors import FACTORS, Choice, Environment, Frozen


@dataclass(frozen=True)
class Setup:
    """The environments of an experiment; setups can be compared, hashed and pickled.

    Attributes
    ----------
    name, shapes, training : str, tuple of int, tuple of Environment
        Its name, the digits that are its classes, and the source domains.
    validation : mapping of str to (Environment, Environment)
        Pairs between which agreement is measured while training: "SD" twice the same
        domain, "ID" both source domains, "1F-MD" and "5F-MD" a source domain and one
        with one or five factors shifted, "OOD" two others.
    tests : tuple of Environment
        Number j has j more factors shifted than number 0.

    Examples
    --------
    >>> for test in DISCRIMINABILITY.tests[:3]:
    ...     print(test)
    Environment(red, dark, blank, center, normal)
    Environment(blue, dark, blank, center, normal)
    Environment(blue, bright, blank, center, normal)
    """

    name: str
    shapes: tuple[int, ...]
    training: tuple[Environment, ...]
    validation: Mapping[str, tuple[Environment, Environment]]
    tests: tuple[Environment, ...]

    def environments(self) -> dict[str, Environment]:
        """Return all environments by their part in the experiment.

        Keys are such as "training 0", "validation 1F-MD 1" and "test 5".
        """
        validation = {f"validation {name}": x for name, x in self.validation.items()}
        parts = {"training": self.training, **validation, "test": self.tests}
        return {
            f"{part} {k}": environment
            for part, environments in parts.items()
            for k, environment in enumerate(environments)
        }


def _shifted(first: Environment, **shifts: str) -> tuple[Environment, ...]:
    """An environment, then one more for each factor that is shifted after another."""
    environments = [first]
    for factor, level in shifts.items():
        environments.append(environments[-1].changed(**{factor: level}))
    return tuple(environments)


def _setup(
    name: str,
    tests: Sequence[Environment],
    pairs: Mapping[str, tuple[Environment, Environment]],
) -> Setup:
    """A setup whose source domains are the pair "ID"."""
    shapes = (4, 9) if name == "discriminability" else (1, 4, 7, 9)
    return Setup(name, shapes, pairs["ID"], Frozen(pairs), tuple(tests))


def _discriminability() -> Setup:
    shifts = {"hue": "blue", "lightness": "bright", "position": "lower center"}
    tests = _shifted(Environment(), **shifts, scale="large", texture="tiles")
    return _setup("discriminability", tests, {"ID": (tests[0], tests[1])})


#: The validation pairs of the experiments on selection.
_PAIRS: Final = ("SD", "ID", "1F-MD", "5F-MD", "OOD")


def _selection_hue() -> Setup:
    red = Environment(scale="large")
    shifts = {"hue": "green", "lightness": "bright", "texture": "tiles"}
    tests = _shifted(red, **shifts, position="upper left", scale="small")
    hues = ("blue", "magenta", "yellow")
    blue, magenta, yellow = (red.changed(hue=hue) for hue in hues)
    pairs = (red, red), (red, blue), (red, magenta), (red, tests[5]), (yellow, magenta)
    return _setup("selection-hue", tests, dict(zip(_PAIRS, pairs, strict=True)))


def _selection_position() -> Setup:
    first = Environment(hue="green", position="upper left", scale="large")
    shifts = {"position": "center", "scale": "small", "hue": "red"}
    tests = _shifted(first, **shifts, lightness="bright", texture="tiles")
    # As printed: where the other two factors are shifted, the hue is back at green.
    printed = [*tests[:4], *(test.changed(hue="green") for test in tests[4:])]
    second = first.changed(position="lower right")
    right = first.changed(position="upper right")
    left = first.changed(position="lower left")
    others = first, second, right, tests[5]
    pairs = [*((first, other) for other in others), (right, left)]
    return _setup("selection-position", printed, dict(zip(_PAIRS, pairs, strict=True)))


#: Which model is the more robust (Experiments 5a, 5b and 5c): thesis, Tables 4.6 and
#: C.1; PA paper, Table 2.
DISCRIMINABILITY: Final = _discriminability()
#: Which epoch to take, trained on two hues (Experiment 6): thesis, Tables 5.1, 5.2,
#: C.2 and C.4; PA paper, Table 3.
SELECTION_HUE: Final = _selection_hue()
#: Which epoch to take, trained on two positions (Experiment 6): thesis, Tables C.3
#: and C.5.
SELECTION_POSITION: Final = _selection_position()


def _configured(name: str, tests: str, **validation: str) -> Setup:
    """A setup of the published configuration, as its pictures show it."""

    # The original lists positions by columns, and draws their transposes: by rows.
    def decoded(digits: str) -> list[Environment]:
        return [
            Environment(*(FACTORS[f][int(k)] for f, k in zip(FACTORS, v, strict=True)))
            for v in digits.split()
        ]

    pairs: dict[str, Any] = {k: tuple(decoded(v)) for k, v in validation.items()}
    return _setup(name, decoded(tests), pairs)


#: The same three setups as the PA authors' published configuration has them, each
#: position where the original's pictures show it (:func:`original_position`).
CONFIGURED: Final[Mapping[str, Setup]] = {
    setup.name: setup
    for setup in (
        _configured(
            "discriminability", "03042 43042 42042 42072 42073 42173", ID="03042 43042"
        ),
        _configured(
            "selection-hue",
            "00044 20044 23044 23144 23104 23100",
            **{"SD": "00044 00044", "ID": "00044 40044", "1F-MD": "00044 50044"},
            **{"5F-MD": "00044 23100", "OOD": "10044 50044"},
        ),
        _configured(
            "selection-position",
            "20084 20044 20040 00040 03040 03140",
            **{"ID": "20084 20004", "1F-MD": "20084 20064"},
            **{"5F-MD": "20084 03140", "OOD": "20064 20024"},
        ),
    )
}


@dataclass(frozen=True)
class Difference:
    """Where, such as in "test 3", two setups give a factor other levels."""

    environment: str
    factor: str
    first: Choice
    second: Choice


def differences(first: Setup, second: Setup) -> list[Difference]:
    """List where environments that two setups have both are not the same.

    Examples
    --------
    >>> differences(SELECTION_HUE, CONFIGURED["selection-hue"])
    []
    >>> changes = differences(DISCRIMINABILITY, CONFIGURED["discriminability"])
    >>> sorted({(c.factor, c.first, c.second) for c in changes})
    [('lightness', 'bright', 'brighter'), ('lightness', 'dark', 'bright'),
     ('scale', 'large', 'larger')]
    """
    others = second.environments()
    return [
        Difference(part, factor, getattr(env, factor), getattr(others[part], factor))
        for part, env in first.environments().items()
        if part in others
        for factor in env.differs_from(others[part])
    ]


#: From only shortcuts to none: zero, one, two and three compositional generalization
#: opportunities (ZGO, CGO), and zero shortcut opportunities (ZSO).
OPPORTUNITIES: Final = ("ZGO", "1-CGO", "2-CGO", "3-CGO", "ZSO")

#: The digits of Experiment 7, in the order of its tables.
_DIGITS: Final = (7, 4, 9)
#: Further levels with which each digit occurs, one more for each opportunity.
_MORE: Final = ((0, 1), (2, 0), (1, 2))
_LEARNED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "hue": (("blue", "red", "green"), ("yellow", "cyan", "magenta")),
    "position": (
        ("upper left", "center", "lower right"),
        ("lower center", "upper right", "center left"),
    ),
}


def co_occurrence(setting: str) -> Tensor:
    """Return which digits occur with which levels of the learned factor.

    Source: thesis, section C.2.2; PA paper, Figure 12. The tables of 3-CGO and ZSO are
    pictures there: the third opportunity here completes the pattern of the first two.

    `setting` is one of :data:`OPPORTUNITIES`; another is a ValueError.

    Returns
    -------
    Tensor, shape (3, 3)
        Row i is the digit 7, 4 or 9, column j a level: true where they are seen
        together in training and validation.

    Examples
    --------
    >>> co_occurrence("1-CGO").int()
    tensor([[1, 1, 0],
            [0, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    check_choice("setting", setting, OPPORTUNITIES)
    if setting == "ZSO":
        return torch.ones(3, 3, dtype=torch.bool)
    table = torch.eye(3, dtype=torch.bool)
    for row, column in _MORE[: OPPORTUNITIES.index(setting)]:
        table[row, column] = True
    return table


def opportunities(setting: str, *, factor: str = "hue") -> Setup:
    """Return the environments of Experiment 7: a factor that gives the class away.

    Source: thesis, section C.2.2 and Table C.6, whose caption takes "CR" for "upper
    left"; here it is "center right".

    Parameters
    ----------
    setting : str
        One of :data:`OPPORTUNITIES`; another is a ValueError, as is another factor.
    factor : {"hue", "position"}, default "hue"
        The factor that co-occurs with the class.

    Returns
    -------
    Setup
        Two source domains with different levels of that factor. Test 0 holds the
        combinations of both, test 1 those that neither has (in ZSO all), and the
        further tests shift other factors as well.

    Examples
    --------
    >>> zgo = opportunities("ZGO")
    >>> zgo.training[0]
    Environment({7: blue, 4: red, 9: green}, bright, tiles, center, large)
    >>> zgo.tests[1].levels("hue", 7)
    ('red', 'green', 'cyan', 'magenta')
    """
    check_choice("factor", factor, _LEARNED)
    seen = co_occurrence(setting)
    unseen = ~seen if not bool(seen.all()) else seen
    sources = _LEARNED[factor]

    def mapping(table: Tensor, levels: Sequence[tuple[str, ...]]) -> Choice:
        choice: dict[int, str | tuple[str, ...]] = {}
        for row, digit in enumerate(_DIGITS):
            names = [domain[k] for domain in levels for k in range(3) if table[row, k]]
            choice[digit] = names[0] if len(names) == 1 else tuple(names)
        return choice

    base = Environment(hue="blue", lightness="bright", texture="tiles", scale="large")
    first, second = (
        base.changed(**{factor: mapping(seen, [kept])}) for kept in sources
    )
    novel = base.changed(**{factor: mapping(unseen, sources)})
    other = {"position": "center right", "scale": "small"}
    if factor == "position":
        other = {"scale": "small", "hue": "red"}
    both = base.changed(**{factor: mapping(seen, sources)})
    tests = (both, *_shifted(novel, **other, lightness="dark", texture="wood"))
    name, pair = f"opportunities-{factor}-{setting}", (first, second)
    return Setup(name, _DIGITS, pair, Frozen({"ID": pair}), tests)
