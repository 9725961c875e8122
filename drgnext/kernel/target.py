"""A kernel, as its commands get it: drgn's program, made ready, and what is missing or wrong in the dump."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any, Optional

from dmods.errors import UserError
from drgnext.kernel import debuginfo, dumpfile


class Kernel:
    """``prog`` is the drgn.Program, with vmlinux's debugging information loaded."""

    pid: Optional[int] = None  # a kernel has none; dmods.render asks

    def __init__(self, prog: Any) -> None:
        """Raises UserError where no command could work: no vmlinux, no memory to speak of."""
        self.prog = prog
        self.path: Optional[str] = None if self.live else prog.core_dump_path
        self.notes: list[str] = []  # one line each
        if self.path is not None:
            self.notes += dumpfile.notes(self.path)
        debuginfo.require(prog)
        self._check_memory()
        self.notes += debuginfo.module_note(prog)

    @property
    def live(self) -> bool:
        """Whether it is running: no two reads are of the same moment."""
        from drgn import ProgramFlags

        return bool(self.prog.flags & ProgramFlags.IS_LIVE)

    def state(self) -> Hashable:
        """A value that changes whenever the kernel has moved, for what is cached. A live one never stands still."""
        return object() if self.live or self.path is None else os.path.realpath(self.path)

    def _check_memory(self) -> None:
        """Every kernel has this string, mapped by its own page tables."""
        import drgn

        try:
            banner = self.prog["linux_banner"].string_()
        except drgn.FaultError as error:
            raise unreadable(self, "the kernel itself", error) from None
        if not banner.startswith(b"Linux version "):
            raise UserError(
                "the dump's memory is not that of the kernel that it names",
                "was it changed after it was taken? Copy or take it again",
            )


def unreadable(kernel: Kernel, what: str, error: Exception) -> UserError:
    """For a drgn.FaultError that no command made a note of."""
    known = sorted(note for note in kernel.notes if note.startswith("the dump "))  # truncated, rather than filtered
    if not known:
        return UserError(f"the dump lacks {what}: {error}", "it is damaged, or was changed: copy or take it again")
    return UserError(f"the dump lacks {what}: it {known[0].partition('the dump ')[2]}", "copy or take it again, whole")
