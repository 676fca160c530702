"""What a distribution asks for in this environment, in turn."""

from importlib.metadata import distribution

from packaging.requirements import Requirement


def needed(itself, extras=()):
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


def link(found, folder):
    """Link to each file and folder that a distribution has put beside others."""
    for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        place = folder / name
        if not place.exists():
            place.symlink_to(str(found.locate_file(name)))
