"""The kernel's static per-CPU variables: each CPU has its own copy, at the symbol's address and the CPU's offset.

On x86-64 their symbols began at 0 up to 6.14. From 6.15 on they are ordinary addresses in the image, as on other
machines (arch/x86/kernel/vmlinux.lds.S). The kernel copies what is there for each CPU, and frees it after boot.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.slabs.caches import cpu_offsets
from drgnext.kernel.stacks.code import symbol_range

if TYPE_CHECKING:
    from drgn import Program

_WORD = (1 << 64) - 1
_ENDS = ("__per_cpu_start", "__per_cpu_end")


class PerCpuVariable(NamedTuple):
    """A place in a per-CPU variable: its name, the bytes of the variable, and (CPU, address) of each CPU's own."""

    name: str
    size: int
    addresses: list[tuple[int, int]]


class PerCpuSymbols:
    """The static per-CPU variables of one kernel, by name and by address."""

    def __init__(self, prog: Program) -> None:
        self._prog = prog
        self._start, self._end = symbol_range(prog, *_ENDS) or (0, 0)

    @cached_property
    def _shifts(self) -> list[tuple[int, int]]:
        from drgn.helpers.linux.cpumask import for_each_possible_cpu

        return list(zip(for_each_possible_cpu(self._prog), cpu_offsets(self._prog))) if self._end else []

    def variable(self, text: str) -> Optional[PerCpuVariable]:
        """Return the variable that a symbol, or symbol+offset, means, or None if it is no per-CPU variable."""
        base, plus, more = text.partition("+")
        try:
            symbol = self._prog.symbol(base)
            offset = int(more, 0) if plus else 0
        except (LookupError, ValueError):
            return None
        address = int(symbol.address)
        if not self._start <= address < self._end or base in _ENDS:
            return None
        found = [(cpu, (address + offset + shift) & _WORD) for cpu, shift in self._shifts]
        return PerCpuVariable(text, int(symbol.size), found)

    def at(self, address: int) -> Optional[tuple[str, int]]:
        """Return (name, or name+0xoffset, and CPU) of the variable that an address lies in, or None."""
        for cpu, shift in self._shifts:
            at = (address - shift) & _WORD
            if self._start <= at < self._end:
                return self._name(at), cpu
        return None

    def _name(self, at: int) -> str:
        """Return the name for the address of a symbol. Where these begin at 0, drgn looks none up by its address."""
        index = bisect_right(self._symbols, (at, chr(0x10FFFF))) - 1
        if index < 0:
            return f"offset {at - self._start:#x}"
        start, name = self._symbols[index]
        return f"{name}+{at - start:#x}" if at > start else name

    @cached_property
    def _symbols(self) -> list[tuple[int, str]]:
        found = ((int(one.address), one.name) for one in self._prog.symbols())
        return sorted((at, name) for at, name in found if self._start <= at < self._end and name not in _ENDS)
