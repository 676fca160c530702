"""A bar that moves with every evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from robustbook.agreement._search import Step


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Step], None] | None]:
    """What the search calls after each step, while a bar shows value and gap."""
    if not shown:
        yield None
        return
    from tqdm import tqdm

    with tqdm(unit=" evaluations", desc="agreement") as bar:

        def show(step: Step) -> None:
            gap = step.upper - step.lower
            bar.set_postfix_str(f"PA {step.lower:.6g}, gap {gap:.1e}", refresh=False)
            bar.update()

        yield show
