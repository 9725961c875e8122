"""A kernel as commands get it: drgn's program, prepared, and notes on what the dump lacks."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from dmods.corefile.kdumps import KNOWN_MACHINES
from dmods.errors import UserError
from drgnext.dump_path import dump_path
from drgnext.kernel.dump import debuginfo
from drgnext.kernel.dump.dumpfile import PART, REASSEMBLE, dump_file_notes, is_cut_kdump
from drgnext.kernel.dump.given_files import unused
from drgnext.kernel.dump.lost_pages import lost_slab_pages, maybe_lost_slab_pages
from drgnext.kernel.dump.native_reader import read_natively

if TYPE_CHECKING:
    from drgn import Program


class Kernel:
    """A kernel dump or a live kernel. ``prog`` is the drgn.Program, with the debug information of vmlinux loaded."""

    pid: Optional[int] = None  # a kernel has no pid; dmods.output.render reads this

    def __init__(self, prog: Program, bare: bool = False, new_files: bool = False) -> None:
        """Prepare the program. Raises UserError if no command could work: no vmlinux, or no readable memory.

        With ``bare`` these are no errors: ``lacking`` has what is missing then. ``new_files``: the command names files
        that drgn has not seen.
        """
        self.prog = prog
        self.variables: Mapping[str, Any] = {}  # those of drgn's prompt
        self.path: Optional[str] = None if self.live else dump_path(prog)
        self._check_machine()
        self.notes: list[str] = []  # one line each
        if self.path is not None:
            self.notes += dump_file_notes(self.path)
        self.once: list[str] = []  # those of them that a session prints once
        self.told: set[str] = set()  # those that it has printed
        self.lacking: Optional[UserError] = None
        self.typed = False  # whether vmlinux is there
        debuginfo.load(prog, new_files)
        self.unused = unused(prog)  # a line for each file of the user's that is of no use
        self.lost_pages = False  # whether makedumpfile left out pages of slabs by mistake
        try:
            debuginfo.require(prog, self.unused)
        except UserError as error:
            self._note(maybe_lost_slab_pages(prog, self.path))
            if not bare:
                raise
            self.lacking = error
            return
        self.typed = True
        if self.path is not None and is_cut_kdump(self.path):
            read_natively(prog, self.path)
        try:
            self._check_memory()
        except UserError as error:
            self.notes += self.unused
            if not bare:
                raise
            self.lacking = error
            return
        lost = None if self.path is None else lost_slab_pages(prog, self.path)
        self.lost_pages = lost is not None
        self._note(lost)
        if self.lost_pages and self.unused:
            self.unused = unused(prog, lost_pages=True)
        self.notes += self.unused
        self.once = debuginfo.short_note(prog)
        self.notes += self.once

    def _note(self, note: Optional[str]) -> None:
        self.notes += [note] if note is not None else []

    @property
    def live(self) -> bool:
        """Return whether the kernel is running. Then two reads are never of the same moment."""
        from drgn import ProgramFlags

        return bool(self.prog.flags & ProgramFlags.IS_LIVE)

    def state(self) -> Hashable:
        """Return a value that changes whenever the kernel has run, for caches.

        A live kernel gets a new value each time.
        """
        return object() if self.live or self.path is None else os.path.realpath(self.path)

    def _check_machine(self) -> None:
        """Raise UserError for a 32-bit kernel."""
        from drgn import PlatformFlags

        platform = self.prog.platform
        if platform is not None and not platform.flags & PlatformFlags.IS_64_BIT:
            raise UserError(
                f"{self.path or 'this'} is the dump of a 32-bit kernel ({platform.arch.name.lower()}), which dmods "
                "does not know",
                KNOWN_MACHINES,
            )

    def _check_memory(self) -> None:
        """Raise UserError if the kernel's banner cannot be read. Every kernel maps it by its own page tables."""
        import drgn

        try:
            banner = self.prog["linux_banner"].string_()
        except drgn.FaultError as error:
            raise unreadable(self, "the kernel itself", error) from None
        if not banner.startswith(b"Linux version "):
            raise UserError(
                "the dump's memory does not belong to the kernel that it names",
                "the dump may have changed since: copy or take it again",
            )


def unreadable(kernel: Kernel, what: str, error: Exception) -> UserError:
    """Return the UserError for a drgn.FaultError that no command turned into a note."""
    # The sort puts "the dump is one part", then "the dump is truncated", before "the dump was filtered".
    known = sorted(note for note in kernel.notes if note.startswith("the dump "))
    if known and known[0].startswith(PART):
        return UserError(
            f"the dump lacks {what}: it {known[0].partition('the dump ')[2].partition('; ')[0]}", REASSEMBLE
        )
    if not known:
        return UserError(
            f"the dump lacks {what}: {error}", "the dump is damaged, or was changed: copy or take it again"
        )
    return UserError(f"the dump lacks {what}: it {known[0].partition('the dump ')[2]}", "copy or take it again, whole")
