"""The symbols and types of a kernel's modules, out of its memory.

Each struct module has a symbol table (struct mod_kallsyms). The kernel's BPF part keeps a copy of each module's types
in the list btf_modules (kernel/bpf/btf.c, since 5.11). They go on behind the types of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods._engine import KernelSymbols, btf_answers, btf_counts
from dmods.base.dataclass import dataclass
from drgnext.kernel.dump.own_types.proofs import read_memory

if TYPE_CHECKING:
    from drgn import Program

_MOST = 10_000
_MOST_SYMBOLS = 1 << 20
_LARGEST_TYPES = 64 << 20
# Bytes of all modules together.
_LARGEST = 256 << 20
_LONGEST_NAME = 512
_SYMBOL = 24  # Elf64_Sym
_ASKED = [
    *("OFFSET(module.list)", "OFFSET(module.name)", "LENGTH(module.name)", "OFFSET(module.kallsyms)"),
    *("OFFSET(mod_kallsyms.symtab)", "OFFSET(mod_kallsyms.num_symtab)", "OFFSET(mod_kallsyms.strtab)"),
    *("OFFSET(mod_kallsyms.typetab)", "OFFSET(list_head.next)"),
    *("OFFSET(btf_module.list)", "OFFSET(btf_module.module)", "OFFSET(btf_module.btf)"),
    *("OFFSET(btf.data)", "OFFSET(btf.data_size)", "OFFSET(btf.start_id)", "OFFSET(btf.start_str_off)"),
]


@dataclass(frozen=True)
class Loaded:
    """A module. ``symbols`` and ``btf`` are None where the dump lacks them, or the module has none."""

    name: str
    symbols: Optional[KernelSymbols]
    btf: Optional[bytes]


def loaded_modules(prog: Program, symbols: KernelSymbols, btf: bytes) -> list[Loaded]:
    """Return the modules that the kernel's list has. A damaged list ends where it is damaged."""
    return list(_Reader(prog, symbols, btf).all())


class _Reader:
    """Reads structures by the offsets that the kernel's types have."""

    def __init__(self, prog: Program, symbols: KernelSymbols, btf: bytes) -> None:
        self._prog = prog
        self._symbols = symbols
        self._offsets = dict(zip(_ASKED, btf_answers(btf, _ASKED)))
        self._counts = btf_counts(btf)
        self._left = _LARGEST

    def all(self) -> Iterator[Loaded]:
        name_at, length = self._at("module.name"), self._offsets["LENGTH(module.name)"] or 0
        if name_at is None:
            return
        types = self._types()
        for module in self._list("modules", "module.list"):
            name = self._read(module + name_at, length).partition(b"\0")[0].decode("ascii", "backslashreplace")
            yield Loaded(name, self._table(module), types.get(module))

    def _at(self, member: str) -> Optional[int]:
        return self._offsets[f"OFFSET({member})"]

    def _read(self, address: int, size: int) -> bytes:
        size = min(size, self._left)
        data = read_memory(self._prog, address, size) if size > 0 else b""
        self._left -= len(data)
        return data

    def _word(self, structure: int, member: str, size: int = 8) -> int:
        """Return a member that is a pointer or a number; 0 where the structure or the dump lacks it."""
        offset = self._at(member)
        data = self._read(structure + offset, size) if offset is not None else b""
        return int.from_bytes(data, "little") if len(data) == size else 0

    def _list(self, head: str, link: str) -> Iterator[int]:
        """Yield the structures of a list, up to where it ends, leads back to itself, or is damaged."""
        found, offset = self._symbols.addresses(head), self._at(link)
        if len(found) != 1 or offset is None:
            return
        seen = {found[0]}
        node = self._word(found[0], "list_head.next")
        while node and node not in seen and len(seen) <= _MOST:
            seen.add(node)
            yield node - offset
            node = self._word(node, "list_head.next")

    def _table(self, module: int) -> Optional[KernelSymbols]:
        table = self._word(module, "module.kallsyms")
        count = self._word(table, "mod_kallsyms.num_symtab", 4) if table else 0
        if not 0 < count <= _MOST_SYMBOLS:
            return None
        entries = self._read(self._word(table, "mod_kallsyms.symtab"), count * _SYMBOL)
        entries = entries[: len(entries) // _SYMBOL * _SYMBOL]
        if not entries:
            return None
        last = max(memoryview(entries).cast("I")[:: _SYMBOL // 4])
        names = self._read(self._word(table, "mod_kallsyms.strtab"), min(last, _LARGEST) + _LONGEST_NAME)
        symbols = KernelSymbols.of_module(entries, names, self._at("mod_kallsyms.typetab") is None)
        return symbols if len(symbols) else None

    def _types(self) -> dict[int, bytes]:
        """Return the types of each module that has some, by the address of its struct module."""
        found: dict[int, bytes] = {}
        for one in self._list("btf_modules", "btf_module.list"):
            module, btf = self._word(one, "btf_module.module"), self._word(one, "btf_module.btf")
            size = self._word(btf, "btf.data_size", 4) if btf else 0
            behind = self._word(btf, "btf.start_id", 4), self._word(btf, "btf.start_str_off", 4)
            # They must go on behind the kernel's types that are known here.
            if not 0 < size <= _LARGEST_TYPES or behind != self._counts:
                continue
            data = self._read(self._word(btf, "btf.data"), size)
            if len(data) == size:
                found[module] = data
        return found
