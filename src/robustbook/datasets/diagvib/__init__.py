"""Pictures of digits whose factors are under control: a world to shift.

A picture shows one handwritten digit on gray. Six factors make it: the digit (its
shape, which is the class), hue, lightness, texture, position and scale. An
:class:`Environment` says which levels the five others have, :func:`draw` draws scenes
from it, and ``Scenes.images`` makes their pictures, at any size. The environments
of the papers' experiments are here by name (``Setup``).

The factors, their levels and intervals are those of DiagViB-6 (E. Eulig et al.,
ICCV 2021); code and textures are our own.
"""

from robustbook.datasets.diagvib._draws import draw, draw_all, every_level
from robustbook.datasets.diagvib._factors import FACTORS as FACTORS
from robustbook.datasets.diagvib._factors import (
    LIGHTNESSES,
    POSITIONS,
    Environment,
    original_position,
)
from robustbook.datasets.diagvib._render import texture
from robustbook.datasets.diagvib._scenes import Scenes as Scenes
from robustbook.datasets.diagvib._setups import (
    CONFIGURED,
    DISCRIMINABILITY,
    OPPORTUNITIES,
    SELECTION_HUE,
    SELECTION_POSITION,
    Difference,
    co_occurrence,
    differences,
    opportunities,
)
from robustbook.datasets.diagvib._setups import Setup as Setup

__all__ = [
    "CONFIGURED",
    "DISCRIMINABILITY",
    "LIGHTNESSES",
    "OPPORTUNITIES",
    "POSITIONS",
    "SELECTION_HUE",
    "SELECTION_POSITION",
    "Difference",
    "Environment",
    "co_occurrence",
    "differences",
    "draw",
    "draw_all",
    "every_level",
    "opportunities",
    "original_position",
    "texture",
]
