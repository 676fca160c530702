"""The environments of Experiment 7: shortcuts, and ways around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook.datasets.diagvib._factors import Choice, Environment, Frozen
from robustbook.datasets.diagvib._setups import Setup, shifted

__all__ = ["OPPORTUNITIES", "co_occurrence", "opportunities"]

#: From only shortcuts to none: zero, one, two and three compositional generalization
#: opportunities (ZGO, CGO), and zero shortcut opportunities (ZSO).
OPPORTUNITIES: Final = ("ZGO", "1-CGO", "2-CGO", "3-CGO", "ZSO")

#: The digits of Experiment 7, in the order of its tables.
_DIGITS: Final = (7, 4, 9)
#: What each digit occurs with besides its own level: one more for each opportunity.
_MORE: Final = ((0, 1), (2, 0), (1, 2))
_LEARNED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "hue": (("blue", "red", "green"), ("yellow", "cyan", "magenta")),
        "position": (
            ("upper left", "center", "lower right"),
            ("lower center", "upper right", "center left"),
        ),
    }
)


def co_occurrence(setting: str) -> Tensor:
    """Return which digits occur with which levels of the learned factor.

    Parameters
    ----------
    setting : str
        One of :data:`OPPORTUNITIES`.

    Returns
    -------
    Tensor, shape (3, 3)
        Row i is the digit 7, 4 or 9, column j a level: true where they are seen
        together in training and validation.

    Raises
    ------
    ValueError
        If there is no such setting.

    Notes
    -----
    Source: thesis, section C.2.2; PA paper, Figure 12. The tables of 3-CGO and ZSO
    are pictures in the documents: the third opportunity here completes the pattern
    of the first two, digit 4 with the third level.

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

    Parameters
    ----------
    setting : str
        One of :data:`OPPORTUNITIES`.
    factor : str, default "hue"
        The factor that co-occurs with the class: "hue" or "position".

    Returns
    -------
    Setup
        Two source domains with different levels of that factor. Test 0 holds the
        combinations of both, test 1 those that neither has, and the further tests
        shift other factors as well. In ZSO there are no combinations left to test,
        and test 1 holds all.

    Raises
    ------
    ValueError
        If there is no such setting or factor.

    Notes
    -----
    Source: thesis, section C.2.2 and Table C.6, whose caption takes "CR" for "upper
    left"; here it is "center right".

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
            names = tuple(
                source[column]
                for source in levels
                for column in range(3)
                if table[row, column]
            )
            choice[digit] = names[0] if len(names) == 1 else names
        return choice

    base = Environment(hue="blue", lightness="bright", texture="tiles", scale="large")
    training = tuple(
        base.changed(**{factor: mapping(seen, [source])}) for source in sources
    )
    novel = base.changed(**{factor: mapping(unseen, sources)})
    other = {
        "hue": (("position", "center right"), ("scale", "small")),
        "position": (("scale", "small"), ("hue", "red")),
    }[factor]
    tests = (
        base.changed(**{factor: mapping(seen, sources)}),
        *shifted(novel, *other, ("lightness", "dark"), ("texture", "wood")),
    )
    return Setup(
        name=f"opportunities-{factor}-{setting}",
        shapes=_DIGITS,
        training=training,
        validation=Frozen({"ID": (training[0], training[1])}),
        tests=tests,
    )
