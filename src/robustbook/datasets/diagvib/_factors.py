"""The factors, their levels, and environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Never

from robustbook._checks.arguments import check_choice

#: A value is drawn uniformly between these two.
Interval = tuple[float, float]

#: The sixth factor, shape: the digits that there are.
SHAPES: Final = tuple(range(10))

#: Hues in degrees; a hue is drawn within ``HUE_SPREAD`` degrees of them.
HUES: Final[Mapping[str, float]] = {
    hue: 60.0 * k
    for k, hue in enumerate(("red", "yellow", "green", "cyan", "blue", "magenta"))
}

#: Half the width of a hue's interval, in degrees.
HUE_SPREAD: Final = 15.0

#: Lightness (the L of HLS, at full saturation) of the dark and of the light end of
#: an object: two intervals for each level. A textured object has all colors between
#: the two ends; a blank one has the light end only.
LIGHTNESSES: Final[Mapping[str, tuple[Interval, Interval]]] = {
    "dark": ((0 / 11, 1 / 11), (4 / 11, 5 / 11)),
    "darker": ((2 / 11, 3 / 11), (6 / 11, 7 / 11)),
    "brighter": ((4 / 11, 5 / 11), (8 / 11, 9 / 11)),
    "bright": ((6 / 11, 7 / 11), (10 / 11, 11 / 11)),
}

#: Textures; "blank" is none.
TEXTURES: Final = ("blank", "tiles", "wood", "carpet", "bricks", "lava")

_THIRDS: Final = [(1 / 7, 2 / 7), (3 / 7, 4 / 7), (5 / 7, 6 / 7)]

#: Where the middle of the object is: the interval across (from left to right), then
#: the interval down (from top to bottom), in units of the image's side.
POSITIONS: Final[Mapping[str, tuple[Interval, Interval]]] = {
    "center" if row == column == "center" else f"{row} {column}": (across, down)
    for row, down in zip(("upper", "center", "lower"), _THIRDS, strict=True)
    for column, across in zip(("left", "center", "right"), _THIRDS, strict=True)
}

#: Factors by which the object is made larger.
SCALES: Final[Mapping[str, Interval]] = {
    "small": (1 / 1.45, 1 / 1.35),
    "smaller": (1 / 1.25, 1 / 1.15),
    "normal": (1 / 1.05, 1.05),
    "larger": (1.15, 1.25),
    "large": (1.35, 1.45),
}

#: The five factors that an environment sets, each with its levels.
FACTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "hue": tuple(HUES),
    "lightness": tuple(LIGHTNESSES),
    "texture": TEXTURES,
    "position": tuple(POSITIONS),
    "scale": tuple(SCALES),
}

#: The value of a factor in an environment: one level; levels that are drawn with equal
#: probability; or either of these for each digit, which ties the factor to the class.
Choice = str | tuple[str, ...] | Mapping[int, str | tuple[str, ...]]


def level_index(factor: str, level: str) -> int:
    """Return the position of a level in ``FACTORS``."""
    return FACTORS[factor].index(check_choice(factor, level, FACTORS[factor]))


def original_position(name: str) -> str:
    """Return the place at which the original generator draws a named position.

    The original takes the first of a position's two numbers, that of "left" and
    "right", for the row of the image: its pictures are the transposes of their names.
    Ours are where their names say. `name` is one of ``POSITIONS`` (another is a
    ValueError), and so is the result.

    Examples
    --------
    >>> original_position("center right"), original_position("upper left")
    ('lower center', 'upper left')
    """
    level_index("position", name)
    across, down = POSITIONS[name]
    return next(other for other, place in POSITIONS.items() if place == (down, across))


class Frozen(dict[Any, Any]):
    """A dictionary whose items cannot be set, so that it can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __setitem__(self, *_: object) -> Never:
        raise TypeError("this mapping does not change")

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return type(self), (dict(self),)


@dataclass(frozen=True)
class Environment:
    """A domain: which levels the five factors have.

    Attributes
    ----------
    hue, lightness, texture, position, scale : str, tuple of str, or mapping
        A level; several levels, drawn with equal probability; or a mapping from
        every digit to either of these, which makes the factor co-occur with the
        class: a shortcut.

    Raises
    ------
    ValueError
        If a level or a digit does not exist.

    Examples
    --------
    >>> red = Environment(hue="red", lightness="bright")
    >>> red
    Environment(red, bright, blank, center, normal)
    >>> red.changed(hue="blue", scale="large").differs_from(red)
    ('hue', 'scale')
    >>> shortcut = Environment(hue={4: "red", 9: ("green", "blue")})
    >>> shortcut.levels("hue", 9)
    ('green', 'blue')
    """

    hue: Choice = "red"
    lightness: Choice = "dark"
    texture: Choice = "blank"
    position: Choice = "center"
    scale: Choice = "normal"

    def __post_init__(self) -> None:
        for field in fields(self):
            choice = getattr(self, field.name)
            if isinstance(choice, Mapping):
                if not choice or not set(choice) <= set(SHAPES):
                    raise ValueError(
                        f"{field.name}: expected digits from 0 to 9 as keys, got "
                        f"{sorted(choice, key=str)}"
                    )
                items = choice.items()
                choice = Frozen({int(d): _plain(field.name, one) for d, one in items})
            else:
                choice = _plain(field.name, choice)
            object.__setattr__(self, field.name, choice)

    def __repr__(self) -> str:
        shown = (_shown(getattr(self, field.name)) for field in fields(self))
        return f"Environment({', '.join(shown)})"

    def levels(self, factor: str, shape: int) -> tuple[str, ...]:
        """Return the levels of a factor that a digit can have, all equally probable.

        ValueError if there is no such factor, or it is set for other digits only.
        """
        check_choice("factor", factor, FACTORS)
        choice: Choice = getattr(self, factor)
        if isinstance(choice, Mapping):
            if shape not in choice:
                raise ValueError(
                    f"{factor}: expected a level for the digit {shape}, got levels "
                    f"for {', '.join(map(str, choice))} only"
                )
            choice = choice[shape]
        return (choice,) if isinstance(choice, str) else tuple(choice)

    def changed(self, **levels: Choice) -> Environment:
        """Return this environment with the given factors at other levels."""
        return replace(self, **levels)

    def differs_from(self, other: Environment) -> tuple[str, ...]:
        """Return the factors that have other levels in another environment."""
        return tuple(
            name for name in FACTORS if getattr(self, name) != getattr(other, name)
        )


def _plain(factor: str, choice: Any) -> str | tuple[str, ...]:
    """A level or a tuple of levels; a set has no order, so no seed would fix it."""
    levels = (choice,) if isinstance(choice, str) else choice
    if (
        not isinstance(levels, (list, tuple))
        or not levels
        or len(set(map(str, levels))) < len(levels)
    ):
        raise ValueError(
            f"{factor}: expected a level, a tuple of different levels, or a mapping "
            f"from digits to these; got {choice!r}"
        )
    for level in levels:
        level_index(factor, level)
    return choice if isinstance(choice, str) else tuple(choice)


def _shown(choice: Any) -> str:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Mapping):
        pairs = (f"{digit}: {_shown(levels)}" for digit, levels in choice.items())
        return "{" + ", ".join(pairs) + "}"
    levels: Sequence[str] = choice
    return "|".join(levels)
