"""What a distribution asks for in this environment, in turn."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement


def needed(itself: Distribution, extras: Iterable[str] = ()) -> list[Distribution]:
    """Return what a distribution requires, with some of its extras, but not itself."""
    pending, seen = [(itself, frozenset(extras))], {}
    while pending:
        one, extras = pending.pop()
        if (one.name, extras) in seen:
            continue
        seen[one.name, extras] = one
        for requirement in map(Requirement, one.requires or ()):
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({"extra": extra}) for extra in extras | {""}
            ):
                own = requirement.name == itself.name
                other = itself if own else distribution(requirement.name)
                pending.append((other, frozenset(requirement.extras)))
    return [*{one.name: one for one in seen.values() if one is not itself}.values()]
