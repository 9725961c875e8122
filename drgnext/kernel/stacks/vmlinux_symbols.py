"""The symbols of vmlinux, read once.

drgn compares all symbols of a file with each address that it is asked for, which takes 0.7 ms. Where one symbol alone
contains an address, there is no choice among several, and the answer is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods._engine import SoleSymbols

if TYPE_CHECKING:
    from drgn import Program

_FINDERS = ["elf"]  # drgn's own. Others (kallsyms, System.map) may have other symbols.


class VmlinuxSymbols:
    """The symbols of the vmlinux that drgn has loaded. The file is read when the first address is asked for."""

    def __init__(self, prog: Program) -> None:
        self._prog = prog
        self._read: Optional[tuple[Optional[SoleSymbols], int]] = None

    def at(self, address: int) -> Optional[tuple[str, int]]:
        """Return (name, address) of the symbol that contains the address of code. None: ask drgn."""
        symbols, bias = self._symbols()
        found = symbols.at(address - bias) if symbols is not None else None
        return (found[0], found[1] + bias) if found is not None else None

    def _symbols(self) -> tuple[Optional[SoleSymbols], int]:
        if self._read is None:
            self._read = self._load()
        return self._read

    def _load(self) -> tuple[Optional[SoleSymbols], int]:
        try:
            module = self._prog.main_module()
            path, loaded = module.debug_file_path, module.loaded_file_path
            if path is None or loaded not in (None, path) or self._prog.enabled_symbol_finders() != _FINDERS:
                return None, 0
            return SoleSymbols(path), int(module.debug_file_bias or 0)
        except (LookupError, AttributeError):  # drgn before 0.1.0 has no modules
            return None, 0
