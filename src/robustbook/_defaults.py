"""Defaults that three_lenses, the report and the command line share.

Nothing heavy is imported: the command line shows them in its help.
"""

from typing import Final

#: Names of the lenses.
LENSES: Final = ("agreement", "average-case", "margins")

#: Radius of the attack (ℓ∞), for pixels in [0, 1].
EPS: Final = 8 / 255
#: Standard deviation of the Gaussian noise.
SIGMA: Final = 0.1
#: Severity of the corruptions, from 1 to 5.
SEVERITY: Final = 3
#: Steps of PGD.
ATTACK_STEPS: Final = 40
#: Noisy copies of each image for average-case robustness.
NOISE_SAMPLES: Final = 256
#: Images whose input margins are measured.
MARGIN_IMAGES: Final = 100
#: Images of a report that names neither their number nor a time.
REPORT_IMAGES: Final = 200


def parse_skip(skip: object, *, name: str = "skip") -> tuple[str, ...]:
    """Return the lenses to leave out: from "margins,agreement" or from names.

    A ValueError if one of them is no lens, or if all are left out.
    """
    words = [skip] if isinstance(skip, str) else skip or ()
    if not hasattr(words, "__iter__"):
        raise ValueError(f"{name}: expected names of lenses, got {skip!r}")
    names = [part.strip() for word in words for part in str(word).split(",")]
    skipped = tuple(dict.fromkeys(part for part in names if part))
    unknown = [part for part in skipped if part not in LENSES]
    if unknown or len(skipped) == len(LENSES):
        got = repr(unknown[0]) if unknown else "all of them"
        raise ValueError(
            f"{name}: expected one or two of {', '.join(LENSES)}; got {got}"
        )
    return skipped
