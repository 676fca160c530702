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
from robustbook.datasets.diagvib._factors import (
    FACTORS as FACTORS,  # for studies, audits
)
from robustbook.datasets.diagvib._factors import LIGHTNESSES as LIGHTNESSES
from robustbook.datasets.diagvib._factors import POSITIONS as POSITIONS
from robustbook.datasets.diagvib._factors import Environment
from robustbook.datasets.diagvib._factors import original_position as original_position
from robustbook.datasets.diagvib._scenes import Scenes as Scenes
from robustbook.datasets.diagvib._setups import CONFIGURED as CONFIGURED
from robustbook.datasets.diagvib._setups import DISCRIMINABILITY as DISCRIMINABILITY
from robustbook.datasets.diagvib._setups import (
    OPPORTUNITIES,
    co_occurrence,
    opportunities,
)
from robustbook.datasets.diagvib._setups import SELECTION_HUE as SELECTION_HUE
from robustbook.datasets.diagvib._setups import SELECTION_POSITION as SELECTION_POSITION
from robustbook.datasets.diagvib._setups import Setup as Setup
from robustbook.datasets.diagvib._setups import differences as differences

__all__ = [
    "OPPORTUNITIES",
    "Environment",
    "co_occurrence",
    "draw",
    "draw_all",
    "every_level",
    "opportunities",
]
