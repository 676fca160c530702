"""Pictures of digits whose factors are under control: a world to shift.

A picture shows one handwritten digit on gray. Six factors make it: the digit (its
shape, which is the class), hue, lightness, texture, position and scale. An
:class:`Environment` says which levels the five others have, :func:`draw` draws scenes
from it, and :meth:`Scenes.images` makes their pictures, at any size. The environments
of the papers' experiments are here by name (:class:`Setup`).

The factors, their levels and intervals are those of DiagViB-6 (E. Eulig et al.,
ICCV 2021); code and textures are our own.
"""

from robustbook.datasets.diagvib._draws import draw, draw_all, every_level
from robustbook.datasets.diagvib._factors import (
    FACTORS,
    HUE_SPREAD,
    HUES,
    LIGHTNESSES,
    POSITIONS,
    SCALES,
    SHAPES,
    TEXTURES,
    Choice,
    Environment,
    original_position,
)
from robustbook.datasets.diagvib._render import texture
from robustbook.datasets.diagvib._scenes import Scenes
from robustbook.datasets.diagvib._setups import (
    CONFIGURED,
    DISCRIMINABILITY,
    OPPORTUNITIES,
    SELECTION_HUE,
    SELECTION_POSITION,
    Difference,
    Setup,
    co_occurrence,
    differences,
    opportunities,
)

__all__ = [
    "CONFIGURED",
    "DISCRIMINABILITY",
    "FACTORS",
    "HUES",
    "HUE_SPREAD",
    "LIGHTNESSES",
    "OPPORTUNITIES",
    "POSITIONS",
    "SCALES",
    "SELECTION_HUE",
    "SELECTION_POSITION",
    "SHAPES",
    "TEXTURES",
    "Choice",
    "Difference",
    "Environment",
    "Scenes",
    "Setup",
    "co_occurrence",
    "differences",
    "draw",
    "draw_all",
    "every_level",
    "opportunities",
    "original_position",
    "texture",
]
