"""The symbols of a dead process's modules, read when a module is first asked about."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Optional

from dmods._engine import Symbols, elf_section
from dmods.elf import Read
from dmods.target import Module, Symbol

_MAX_UNPACKED = 1 << 28  # bytes of a .gnu_debugdata when unpacked: real ones stay under a few MB


class ModuleSymbols:
    """Names are looked up in ``program``, then in ``modules`` as they are ordered. ``read`` gives the vdso's bytes."""

    def __init__(
        self, modules: Sequence[Module], program: Optional[Module], read: Read, sysroot: Optional[str] = None
    ) -> None:
        self._modules = [*filter(None, [program]), *(module for module in modules if module is not program)]
        pieces = ((piece.start, piece.end, module) for module in modules for piece in module.ranges)
        self._ranges = sorted(pieces, key=lambda entry: entry[:2])
        self._starts = [start for start, _end, _module in self._ranges]
        self._read = read
        self._sysroot = sysroot or "/"
        self._tables: dict[int, Optional[Symbols]] = {}

    def module_at(self, address: int) -> Optional[Module]:
        """The module with a mapping that holds ``address``."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ranges[index][1]:
            return None
        return self._ranges[index][2]

    def at(self, address: int) -> Optional[Symbol]:
        """See Target.symbol_at."""
        module = self.module_at(address)
        table = self.table(module) if module is not None else None
        found = table.at(address - module.bias) if table is not None and module is not None else None
        if found is None or module is None:
            return None
        name, start, size = found
        return Symbol(name, start + module.bias, size, module.name)

    def lookup(self, name: str) -> Optional[Symbol]:
        """See Target.lookup. ``module`name`` looks in the modules of that name only."""
        module, backquote, rest = name.rpartition("`")
        for one in self._modules:
            if backquote and one.name != module:
                continue
            table = self.table(one)
            found = table.lookup(rest) if table is not None else None
            if found is not None:
                return Symbol(rest, found[0] + one.bias, found[1], one.name)
        return None

    def table(self, module: Module) -> Optional[Symbols]:
        """The module's symbols; None where no file has any. Kept."""
        key = module.start
        if key not in self._tables:
            self._tables[key] = self._load(module)
        return self._tables[key]

    def _load(self, module: Module) -> Optional[Symbols]:
        files = [path for path in (module.file, self._debug_file(module)) if path is not None]
        blobs: list[bytes] = []
        if module.file is None and module.path == "[vdso]":
            blobs.append(self._read(module.start, min(module.end - module.start, 1 << 20)))
        elif len(files) == 1 and module.file is not None:
            packed = elf_section(module.file, ".gnu_debugdata")
            blobs.extend(filter(None, [_unpack(packed) if packed else None]))
        return Symbols(files, blobs) if files or blobs else None

    def _debug_file(self, module: Module) -> Optional[str]:
        identity = module.build_id
        if identity is None or len(identity) < 4:
            return None
        path = os.path.join(self._sysroot, "usr/lib/debug/.build-id", identity[:2], f"{identity[2:]}.debug")
        return path if os.path.isfile(path) else None


def _unpack(packed: bytes) -> Optional[bytes]:
    """A .gnu_debugdata section: an xz-compressed ELF file of the symbols that .dynsym lacks (gdb manual,
    "MiniDebugInfo")."""
    try:
        import lzma
    except ImportError:  # an optional part of Python
        return None
    try:
        return lzma.LZMADecompressor().decompress(packed, _MAX_UNPACKED)
    except lzma.LZMAError:
        return None
