"""A kernel, as its commands get it: drgn's program, made ready, and what is missing or wrong in the dump."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Optional


class Kernel:
    """``prog`` is the drgn.Program, with vmlinux's debugging information loaded."""

    pid: Optional[int] = None  # a kernel has none; dmods.render asks

    def __init__(self, prog: Any) -> None:
        """Raises UserError where no command could work: no vmlinux, an unknown machine."""
        self.prog = prog
        self.path: Optional[str] = None if self.live else prog.core_dump_path
        self.notes: list[str] = []  # one line each

    @property
    def live(self) -> bool:
        """Whether it is running: no two reads are of the same moment."""
        from drgn import ProgramFlags

        return bool(self.prog.flags & ProgramFlags.IS_LIVE)

    def state(self) -> Hashable:
        """A value that changes whenever the kernel has moved, for what is cached. A live one never stands still."""
        return object() if self.live else self.path
