"""What is found out once of a process, or of a kernel, and asked for by one command after the other."""

from __future__ import annotations

from collections.abc import Hashable
from functools import wraps
from typing import Any, Callable, Protocol, TypeVar


class Moving(Protocol):
    """Whatever has a state: see ``Target.state``."""

    def state(self) -> Hashable:
        """A value that changes whenever it has moved."""


Of = TypeVar("Of", bound=Moving)
Found = TypeVar("Found")

# It is kept by the target itself: the answers lead back to it, so that a dictionary of them elsewhere, with weak keys
# or not, would keep every core that was ever opened.
_MEMORY = "_kept"


def kept(find: Callable[[Of], Found]) -> Callable[[Of], Found]:
    """``find``, asked once for each state of what it is asked of."""

    @wraps(find)
    def ask(target: Of) -> Found:
        memory: dict[Callable[..., Any], tuple[Hashable, Any]] = vars(target).setdefault(_MEMORY, {})
        state = target.state()
        known = memory.get(find)
        if known is None or known[0] != state:
            known = memory[find] = (state, find(target))
        found: Found = known[1]
        return found

    return ask


def forget(target: Moving) -> None:
    """All that was found out of it is looked for anew when it is asked for again."""
    vars(target).pop(_MEMORY, None)
