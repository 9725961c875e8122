"""A core in gdb as a Target: the bare core file, and beside its own symbols those that gdb has found."""

from __future__ import annotations

from typing import Optional

from dmods.corefile import CoreFile
from dmods.target import Symbol
from gdbext import names


class CoreTarget(CoreFile):
    """Memory, threads and modules come from the core file itself, so that the answers are the same as without gdb."""

    def symbol_at(self, address: int) -> Optional[Symbol]:
        return super().symbol_at(address) or names.symbol_at(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        return super().lookup(name) or names.lookup(name)

    def evaluate(self, text: str) -> int:
        value = names.evaluate(text, self.arch.word)
        return super().evaluate(text) if value is None else value
