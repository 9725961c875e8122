"""A core of a process in drgn as a Target: the bare core file, and beside its own names those that drgn knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from dmods.corefile import CoreFile
from dmods.errors import UsageError
from dmods.target import Symbol


class CoreTarget(CoreFile):
    """Memory, threads and modules come from the core file itself, so that the answers are the same as without drgn."""

    def __init__(self, prog: Any, core: str, executable: Optional[str], sysroot: Optional[str]) -> None:
        self._prog = prog
        self.variables: Mapping[str, Any] = {}  # the prompt's
        super().__init__(core, executable, sysroot)

    def symbol_at(self, address: int) -> Optional[Symbol]:
        return super().symbol_at(address) or self._drgn_symbol(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        return super().lookup(name) or self._drgn_symbol(name)

    def evaluate(self, text: str) -> int:
        """Also a drgn expression: `%whatis prog["head"].next`, or any variable of the prompt's."""
        try:
            return super().evaluate(text)
        except UsageError as error:
            value = _value(text, {"prog": self._prog, **self.variables})
            if value is None:
                raise error from None
            return value & ((1 << self.arch.word * 8) - 1)

    def _drgn_symbol(self, what: object) -> Optional[Symbol]:
        """drgn may have found debugging information elsewhere (separate files, debuginfod)."""
        try:
            found = self._prog.symbol(what)
        except LookupError:
            return None
        module = next((m.name for m in self.modules() if any(found.address in piece for piece in m.ranges)), "")
        return Symbol(found.name, found.address, found.size, module)


def _value(text: str, variables: Mapping[str, Any]) -> Optional[int]:
    """What the user's own expression is worth as an address; None where it is no expression that has one."""
    import drgn

    try:
        value = eval(text, dict(variables))  # what users type at a Python prompt is theirs
        if isinstance(value, drgn.Object):
            kind = value.type_.kind
            aggregate = kind in (drgn.TypeKind.STRUCT, drgn.TypeKind.UNION, drgn.TypeKind.CLASS, drgn.TypeKind.ARRAY)
            value = value.address_ if aggregate or kind == drgn.TypeKind.FUNCTION else value.value_()
        return value if isinstance(value, int) else None
    except Exception:  # noqa: BLE001 (theirs, too)
        return None
