"""The distributions of this environment that a package requires, in turn."""

from importlib.metadata import distribution

from packaging.requirements import Requirement


def required_by(package, extras=()):
    """Return what a distribution requires, with some of its extras, but not itself."""
    pending, visited = [(package, frozenset(extras))], {}
    while pending:
        current, extras = pending.pop()
        if (current.name, extras) in visited:
            continue
        visited[current.name, extras] = current
        for requirement in map(Requirement, current.requires or ()):
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({"extra": extra}) for extra in extras | {""}
            ):
                same = requirement.name == package.name
                other = package if same else distribution(requirement.name)
                pending.append((other, frozenset(requirement.extras)))
    return [*{d.name: d for d in visited.values() if d is not package}.values()]


def link(package, folder):
    """Link to each file and folder that a distribution has put beside others."""
    for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        place = folder / name
        if not place.exists():
            place.symlink_to(str(package.locate_file(name)))
