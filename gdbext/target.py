"""A core in gdb as a Target: the core file, with gdb's symbols beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.corefile.target import CoreFile
from dmods.target import Symbol
from gdbext import names


class CoreTarget(CoreFile):
    """A core that gdb has loaded.

    Memory, threads and modules come from the core file, so answers match those without gdb.
    """

    @property
    def debug_roots(self) -> Sequence[str]:
        """Return the folders of gdb, then those of dmods without gdb."""
        return [*names.debug_roots(), *super().debug_roots]

    def symbol_at(self, address: int) -> Optional[Symbol]:
        """Return the symbol at the address, or None: from the files first, else from gdb."""
        return super().symbol_at(address) or names.symbol_at(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        """Return the global symbol of that name, or None: from the files first, else from gdb."""
        return super().lookup(name) or names.lookup(name)

    def evaluate(self, text: str) -> int:
        """Return the address that a user means by the text. Raises UsageError."""
        return names.address(text, self.arch.word, super().evaluate, super().symbol_at)
