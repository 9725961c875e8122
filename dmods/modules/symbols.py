"""The symbols of a dead process's modules, read when a module is first asked about."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Optional

from dmods._engine import Lines, Symbols, elf_section
from dmods.base.named_tuple import NamedTuple
from dmods.modules.debuginfod import debuginfod_file
from dmods.modules.elf import Read
from dmods.modules.localfiles import open_local
from dmods.target import Module, Symbol

_MOST_NAMED = 1000  # symbols of a module that one text may mean
_MOST_WITH_PART = 1 << 18  # symbols of a module that have a part in their names
_MAX_UNPACKED = 1 << 28  # bytes of a .gnu_debugdata when unpacked: real ones stay under a few MB


class NamedSymbol(NamedTuple):
    """A symbol that a text may mean.

    ``exact``: the text is its whole name. ``minor``: it is a part that the compiler split off a function of that name
    (``.cold``), or an old version of it.
    """

    symbol: Symbol
    exact: bool
    minor: bool


class ModuleSymbols:
    """The symbols of all modules: the program first, then ``modules`` in their order. ``read`` reads the vdso.

    A separate file with debug information has the symbols of functions that a stripped program lacks. It is found as
    that of the source lines (``lines.SourceLines``): ``roots`` are folders such as /usr/lib/debug.
    """

    def __init__(
        self, modules: Sequence[Module], program: Optional[Module], read: Read, roots: Sequence[str] = ()
    ) -> None:
        self._modules = [*filter(None, [program]), *(module for module in modules if module is not program)]
        pieces = ((piece.start, piece.end, module) for module in modules for piece in module.ranges)
        self._ranges = sorted(pieces, key=lambda entry: entry[:2])
        self._starts = [start for start, _end, _module in self._ranges]
        self._read = read
        self._roots = list(dict.fromkeys(roots))
        self._tables: dict[int, Optional[Symbols]] = {}

    def module_at(self, address: int) -> Optional[Module]:
        """Return the module with a mapping that contains ``address``, or None."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ranges[index][1]:
            return None
        return self._ranges[index][2]

    def at(self, address: int) -> Optional[Symbol]:
        """Return the symbol at the address: see Target.symbol_at."""
        module = self.module_at(address)
        table = self.table(module) if module is not None else None
        found = table.at(address - module.bias) if table is not None and module is not None else None
        if found is None or module is None:
            return None
        name, start, size = found
        return Symbol(name, start + module.bias, size, module.name)

    def lookup(self, name: str) -> Optional[Symbol]:
        """Return the symbol of that name: see Target.lookup. ``module`name`` looks only in the modules of that name."""
        module, backquote, rest = name.rpartition("`")
        for one in self._modules:
            if backquote and one.name != module:
                continue
            table = self.table(one)
            found = table.lookup(rest) if table is not None else None
            if found is not None:
                return Symbol(rest, found[0] + one.bias, found[1], one.name)
        return None

    def named(self, text: str) -> list[NamedSymbol]:
        """Return the symbols that a text may mean, one for each address; [] where it means none.

        The text is a name as dmods shows it or as the symbol table has it, or the end of one: ``grow`` for
        ``ns::Class::grow(int)``. The first module with a symbol of exactly that name decides, in the order of
        ``lookup``. Otherwise every module's symbols are in the list. ``module`text`` asks that module only.
        """
        wanted, backquote, rest = text.rpartition("`")
        similar: list[NamedSymbol] = []
        for module in self._modules:
            if backquote and module.name != wanted:
                continue
            table = self.table(module)
            rows = table.named(rest, _MOST_NAMED) if table is not None else []
            found = [
                NamedSymbol(Symbol(name, address + module.bias, size, module.name), exact, minor)
                for name, address, size, exact, minor in rows
            ]
            if any(each.exact for each in found):
                return found
            similar.extend(found)
        return similar

    def with_part(self, parts: Sequence[str]) -> list[Symbol]:
        """Return the symbols with one of the parts in their mangled names: see Target.symbols_with."""
        found: list[Symbol] = []
        for module in self._modules:
            table = self.table(module)
            rows = table.with_part(list(parts), _MOST_WITH_PART) if table is not None else []
            found.extend(Symbol(name, address + module.bias, size, module.name) for name, address, size in rows)
        return found

    def table(self, module: Module) -> Optional[Symbols]:
        """Return the module's symbols, or None if no file has any. They are kept."""
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
        if identity is not None and len(identity) >= 4:
            below = os.path.join(".build-id", identity[:2], f"{identity[2:]}.debug")
            for path in (*(os.path.join(root, below) for root in self._roots), debuginfod_file(identity)):
                if path is not None and _is_of(path, identity):
                    return path
        return self._linked_file(module)

    def _linked_file(self, module: Module) -> Optional[str]:
        """Return the file that the module's .gnu_debuglink names, or None. The engine compares its checksum."""
        link = elf_section(module.file, ".gnu_debuglink") if module.file is not None else None
        name = os.fsdecode(link.split(b"\0")[0]) if link else ""
        if module.file is None or not name or "/" in name:
            return None
        folder = os.path.dirname(os.path.realpath(module.file))
        folders = [folder, os.path.join(folder, ".debug"), *(root + folder for root in self._roots)]
        if not any(os.path.isfile(os.path.join(each, name)) for each in folders):
            return None
        build_id = bytes.fromhex(module.build_id) if module.build_id is not None and module.problem is None else None
        found = Lines(module.file, self._roots, build_id).debug_file
        return found if found != module.file else None


def _is_of(path: str, build_id: str) -> bool:
    """Return whether the file belongs to a module with this build-id, as far as the file has one."""
    found = open_local(path)
    return found is not None and found.elf is not None and found.build_id in (None, build_id)


def _unpack(packed: bytes) -> Optional[bytes]:
    """Return the ELF file in a .gnu_debugdata section: xz-compressed, with the symbols that .dynsym lacks.

    See "MiniDebugInfo" in the gdb manual.
    """
    try:
        import lzma
    except ImportError:  # an optional part of Python
        return None
    try:
        return lzma.LZMADecompressor().decompress(packed, _MAX_UNPACKED)
    except lzma.LZMAError:
        return None
