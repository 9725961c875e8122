"""A root with a name, and its rank."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass

# The ranks that the engine knows. Stacks follow: outermost frames first, because inner frames borrow from outer ones.
RANK_OWN, RANK_DATA, RANK_FRAME = 0, 1, 2
RANK_NO_FRAME = 1 << 20  # a stack whose frames are not known
RANK_REGISTER = 1 << 21


@dataclass(frozen=True)
class Root:
    """A root with a name.

    ``kind`` is one of these: "python" (a variable of CPython, a module or a class), "variable" (it has a symbol),
    "data" (a module's, without a symbol), "frame", "stack" (its frames are not known), "register", "thread-local",
    "mapping", "allocator" (malloc's own words), "leaked" (no root: the leaked blocks). ``address`` is where it begins;
    None for registers and the like. ``alike`` is a name that means the same in other cores and in other runs: it has no
    address and no tid. "": the name itself does.
    """

    name: str
    kind: str
    address: Optional[int] = None
    module: Optional[str] = None
    tid: Optional[int] = None
    alike: str = ""
    variable: Optional[str] = None  # the local variable of a frame, where debug information knows it
    frame: Optional[int] = None  # its number in the thread's stack; 0 is the innermost
    where: Optional[str] = None  # "file:line function" of a frame of Python

    @property
    def key(self) -> str:
        """Return the name without addresses."""
        return self.alike or self.name
