"""The core of a process in drgn as a Target: the core file, with drgn's symbols beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.target import Symbol
from drgnext.expressions import value_of, value_of_variable

if TYPE_CHECKING:
    from drgn import Program


class CoreTarget(CoreFile):
    """Memory, threads and modules come from the core file itself, so that the answers are the same as without drgn."""

    def __init__(self, prog: Program, core: str, executable: Optional[str], sysroot: Optional[str]) -> None:
        self._prog = prog
        self.variables: Mapping[str, Any] = {}  # those of drgn's prompt
        super().__init__(core, executable, sysroot)

    def symbol_at(self, address: int) -> Optional[Symbol]:
        return super().symbol_at(address) or self._drgn_symbol(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        return super().lookup(name) or self._drgn_symbol(name)

    def evaluate(self, text: str) -> int:
        """Return the address that `text` means. It may be a drgn expression: `%whatis prog["head"].next`."""
        mask = (1 << self.arch.word * 8) - 1
        value = value_of_variable(text, self._prog, self.variables)
        if value is not None:
            return value & mask
        try:
            return super().evaluate(text)
        except UsageError as error:
            value = value_of(text, self._prog, self.variables)
            if value is None:
                raise error from None
            return value & mask

    def _drgn_symbol(self, what: Union[int, str]) -> Optional[Symbol]:
        """Return drgn's symbol, or None. drgn may have debugging information from elsewhere (debuginfod)."""
        try:
            found = self._prog.symbol(what)
        except (LookupError, UnicodeError):  # drgn takes names for UTF-8
            return None
        module = next((m.name for m in self.modules() if any(found.address in piece for piece in m.ranges)), "")
        return Symbol(found.name, found.address, found.size, module)
