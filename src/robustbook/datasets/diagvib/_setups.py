"""The environments of the papers' experiments on choosing models, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from robustbook.datasets.diagvib._factors import (
    HUES,
    LIGHTNESSES,
    SCALES,
    TEXTURES,
    Choice,
    Environment,
    Frozen,
    original_position,
)

__all__ = [
    "CONFIGURED",
    "DISCRIMINABILITY",
    "SELECTION_HUE",
    "SELECTION_POSITION",
    "Difference",
    "Setup",
    "differences",
    "shifted",
]


@dataclass(frozen=True)
class Setup:
    """The environments of an experiment.

    Attributes
    ----------
    name : str
        What it is called.
    shapes : tuple of int
        The digits that are told apart.
    training : tuple of Environment
        The source domains.
    validation : mapping of str to (Environment, Environment)
        Pairs between which agreement is measured while training: "SD" twice the same
        domain, "ID" both source domains, "1F-MD" and "5F-MD" a source domain and one
        with one or five factors shifted, "OOD" two others.
    tests : tuple of Environment
        Number j has j more factors shifted than number 0.

    Notes
    -----
    Setups can be compared, hashed and pickled.

    Examples
    --------
    >>> for test in DISCRIMINABILITY.tests:
    ...     print(test)
    Environment(red, dark, blank, center, normal)
    Environment(blue, dark, blank, center, normal)
    Environment(blue, bright, blank, center, normal)
    Environment(blue, bright, blank, lower center, normal)
    Environment(blue, bright, blank, lower center, large)
    Environment(blue, bright, tiles, lower center, large)
    """

    name: str
    shapes: tuple[int, ...]
    training: tuple[Environment, ...]
    validation: Mapping[str, tuple[Environment, Environment]]
    tests: tuple[Environment, ...]

    def environments(self) -> dict[str, Environment]:
        """Return all environments by their part in the experiment.

        Returns
        -------
        dict of str to Environment
            Keys such as "training 0", "validation 1F-MD 1" and "test 5".
        """
        parts = {
            "training": self.training,
            **{f"validation {name}": pair for name, pair in self.validation.items()},
            "test": self.tests,
        }
        return {
            f"{part} {k}": environment
            for part, environments in parts.items()
            for k, environment in enumerate(environments)
        }


def shifted(first: Environment, *shifts: tuple[str, str]) -> tuple[Environment, ...]:
    """An environment, then one more for each factor that is shifted after another."""
    environments = [first]
    for factor, level in shifts:
        environments.append(environments[-1].changed(**{factor: level}))
    return tuple(environments)


def _pairs(
    source: Environment, **others: Environment | tuple[Environment, Environment]
) -> Mapping[str, tuple[Environment, Environment]]:
    """Validation pairs; where one environment is given, the source is the other."""
    return Frozen(
        {
            name.removeprefix("_").replace("_", "-"): (
                other if isinstance(other, tuple) else (source, other)
            )
            for name, other in others.items()
        }
    )


def _discriminability() -> Setup:
    tests = shifted(
        Environment(),
        ("hue", "blue"),
        ("lightness", "bright"),
        ("position", "lower center"),
        ("scale", "large"),
        ("texture", "tiles"),
    )
    return Setup(
        name="discriminability",
        shapes=(4, 9),
        training=tests[:2],
        validation=_pairs(tests[0], ID=tests[1]),
        tests=tests,
    )


def _selection_hue() -> Setup:
    red = Environment(scale="large")
    tests = shifted(
        red,
        ("hue", "green"),
        ("lightness", "bright"),
        ("texture", "tiles"),
        ("position", "upper left"),
        ("scale", "small"),
    )
    blue, magenta = red.changed(hue="blue"), red.changed(hue="magenta")
    return Setup(
        name="selection-hue",
        shapes=(1, 4, 7, 9),
        training=(red, blue),
        validation=_pairs(
            red,
            SD=red,
            ID=blue,
            _1F_MD=magenta,
            _5F_MD=tests[5],
            OOD=(red.changed(hue="yellow"), magenta),
        ),
        tests=tests,
    )


def _selection_position() -> Setup:
    first = Environment(hue="green", position="upper left", scale="large")
    tests = shifted(
        first,
        ("position", "center"),
        ("scale", "small"),
        ("hue", "red"),
        ("lightness", "bright"),
        ("texture", "tiles"),
    )
    # As printed: where the other two factors are shifted, the hue is back at green.
    printed = (*tests[:4], *(test.changed(hue="green") for test in tests[4:]))
    right = first.changed(position="upper right")
    return Setup(
        name="selection-position",
        shapes=(1, 4, 7, 9),
        training=(first, first.changed(position="lower right")),
        validation=_pairs(
            first,
            SD=first,
            ID=first.changed(position="lower right"),
            _1F_MD=right,
            _5F_MD=tests[5],
            OOD=(right, first.changed(position="lower left")),
        ),
        tests=printed,
    )


#: Which model is the more robust (Experiments 5a, 5b and 5c): thesis, Tables 4.6 and
#: C.1; PA paper, Table 2.
DISCRIMINABILITY: Final = _discriminability()
#: Which epoch to take, trained on two hues (Experiment 6): thesis, Tables 5.1, 5.2,
#: C.2 and C.4; PA paper, Table 3.
SELECTION_HUE: Final = _selection_hue()
#: Which epoch to take, trained on two positions (Experiment 6): thesis, Tables C.3
#: and C.5.
SELECTION_POSITION: Final = _selection_position()


# ----------------------------------------------------- as the configuration has it

#: Positions in the order of the original's list, by the names of that list.
_LISTED: Final = (
    "upper left",
    "center left",
    "lower left",
    "upper center",
    "center",
    "lower center",
    "upper right",
    "center right",
    "lower right",
)


def _decoded(vector: Sequence[int]) -> Environment:
    """An environment of the published configuration, as its pictures show it."""
    hue, lightness, texture, position, scale = vector
    return Environment(
        hue=tuple(HUES)[hue],
        lightness=tuple(LIGHTNESSES)[lightness],
        texture=TEXTURES[texture],
        position=original_position(_LISTED[position]),
        scale=tuple(SCALES)[scale],
    )


def _configured(
    name: str,
    shapes: tuple[int, ...],
    training: str,
    validation: Mapping[str, str],
    tests: str,
) -> Setup:
    def environments(digits: str) -> tuple[Environment, ...]:
        return tuple(_decoded([int(digit) for digit in env]) for env in digits.split())

    pairs: dict[str, tuple[Environment, Environment]] = {}
    for key, value in validation.items():
        first, second = environments(value)
        pairs[key] = (first, second)
    return Setup(
        name=name,
        shapes=shapes,
        training=environments(training),
        validation=Frozen(pairs),
        tests=environments(tests),
    )


#: The same three setups as the PA authors' published configuration has them, each
#: position where the original's pictures show it (:func:`original_position`).
CONFIGURED: Final[Mapping[str, Setup]] = MappingProxyType(
    {
        setup.name: setup
        for setup in (
            _configured(
                "discriminability",
                (4, 9),
                "03042 43042",
                {"ID": "03042 43042"},
                "03042 43042 42042 42072 42073 42173",
            ),
            _configured(
                "selection-hue",
                (1, 4, 7, 9),
                "00044 40044",
                {
                    "SD": "00044 00044",
                    "ID": "00044 40044",
                    "1F-MD": "00044 50044",
                    "5F-MD": "00044 23100",
                    "OOD": "10044 50044",
                },
                "00044 20044 23044 23144 23104 23100",
            ),
            _configured(
                "selection-position",
                (1, 4, 7, 9),
                "20084 20004",
                {
                    "ID": "20084 20004",
                    "1F-MD": "20084 20064",
                    "5F-MD": "20084 03140",
                    "OOD": "20064 20024",
                },
                "20084 20044 20040 00040 03040 03140",
            ),
        )
    }
)


@dataclass(frozen=True)
class Difference:
    """Where two setups give a factor other levels.

    Attributes
    ----------
    environment : str
        The environment's part in the experiment, such as "test 3".
    factor : str
        The factor.
    first, second : Choice
        Its levels in the first and in the second setup.
    """

    environment: str
    factor: str
    first: Choice
    second: Choice


def differences(first: Setup, second: Setup) -> list[Difference]:
    """Compare the environments that two setups have both.

    Parameters
    ----------
    first, second : Setup
        Two setups, such as one of ours and one of :data:`CONFIGURED`.

    Returns
    -------
    list of Difference
        One for each environment and factor that are not the same.

    Examples
    --------
    >>> differences(SELECTION_HUE, CONFIGURED["selection-hue"])
    []
    >>> changes = differences(DISCRIMINABILITY, CONFIGURED["discriminability"])
    >>> sorted({(one.factor, one.first, one.second) for one in changes})
    [('lightness', 'bright', 'brighter'), ('lightness', 'dark', 'bright'),
     ('scale', 'large', 'larger')]
    """
    return list(_differences(first.environments(), second.environments()))


def _differences(
    first: Mapping[str, Environment], second: Mapping[str, Environment]
) -> Iterator[Difference]:
    for part, environment in first.items():
        if part not in second:
            continue
        other = second[part]
        for factor in environment.differs_from(other):
            yield Difference(
                part, factor, getattr(environment, factor), getattr(other, factor)
            )
