"""The kernel's structures, read word by word at offsets from debug information. Damaged ones end lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.cached_memory import Pages

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import Memmap

MOST_CPUS = 8192
_MOST_LINKS = 1 << 20  # of one list


class Structures:
    """The structures of one kernel."""

    def __init__(self, prog: Program, memmap: Memmap) -> None:
        self.prog = prog
        self.memory = Pages(memmap.read)
        self._offsets: dict[str, int] = {}
        self._known: set[int] = set()  # structures that were seen

    def new(self, structure: int) -> bool:
        """Return whether a structure is there, and seen for the first time."""
        if not structure or structure in self._known:
            return False
        self._known.add(structure)
        return True

    def has(self, member: str) -> bool:
        """Return whether this kernel has a member (struct.member)."""
        try:
            self.offset(member)
        except LookupError:
            return False
        return True

    def offset(self, member: str) -> int:
        """Return the offset of ``struct NAME.MEMBER``, in bytes. Raises LookupError if it does not exist."""
        from drgn import offsetof

        known = self._offsets.get(member)
        if known is None:
            name, _dot, path = member.partition(".")
            known = self._offsets[member] = int(offsetof(self.prog.type(name), path))
        return known

    def size(self, name: str) -> int:
        """Return the size of ``struct NAME`` in bytes. Raises LookupError if it does not exist."""
        size = self.prog.type(name).size
        if size is None:
            raise LookupError(f"{name} is only declared")
        return size

    def variable(self, name: str) -> int:
        """Return the address of a variable. Raises LookupError if it does not exist."""
        address = self.prog[name].address_
        if address is None:
            raise LookupError(f"{name} has no address")
        return int(address)

    def value(self, name: str) -> int:
        """Return the value of a variable of 8 bytes, 0 if the dump lacks it. Raises LookupError."""
        return self.memory.word(self.variable(name)) or 0

    def word(self, structure: int, member: str) -> int:
        """Return a member of 8 bytes. Return 0 if there is no structure, or the dump lacks it."""
        return (self.memory.word(structure + self.offset(member)) or 0) if structure else 0

    def number(self, structure: int, member: str) -> int:
        """Return a member of 4 bytes, signed. Return 0 if there is no structure, or the dump lacks it."""
        return self.number_at(structure + self.offset(member)) if structure else 0

    def number_at(self, address: int) -> int:
        """Return 4 bytes, signed. Return 0 if the dump lacks them."""
        data = self.memory.read(address, 4)
        return int.from_bytes(data, "little", signed=True) if len(data) == 4 else 0

    def linked(self, head: int, link: int = 0) -> Iterator[int]:
        """Yield the structures of a ``struct list_head``; ``link`` is the offset of the link in them.

        The list ends where it is damaged.
        """
        at, seen = self.memory.word(head), {head}
        while at and at not in seen and len(seen) < _MOST_LINKS:
            seen.add(at)
            yield at - link
            at = self.memory.word(at)

    def xarray(self, root: int) -> Iterator[int]:
        """Yield the pointers in a ``struct xarray``, by its address. Each level must be lower than the one above."""
        todo = [(self.word(root, "struct xarray.xa_head"), 64)]
        shift, slots = self.offset("struct xa_node.shift"), self.offset("struct xa_node.slots")
        most = self.prog.type("struct xa_node").member("slots").type.length or 64  # XA_CHUNK_SIZE
        nodes = 0
        while todo and nodes < _MOST_LINKS:
            entry, above = todo.pop()
            if entry & 3 == 0:
                if entry:
                    yield entry
                continue
            node = entry - 2
            level = (self.memory.read(node + shift, 1) or b"\xff")[0]
            # include/linux/xarray.h: nodes have the lowest bits 10; small numbers with these bits are marks.
            if entry & 3 == 2 and entry > 4096 and level < above:
                nodes += 1
                todo += [(self.memory.word(node + slots + 8 * slot) or 0, level) for slot in reversed(range(most))]

    def cpus(self) -> int:
        """Return the number of CPUs that are possible. Raises LookupError."""
        return min(max(self.number_at(self.variable("nr_cpu_ids")), 1), MOST_CPUS)

    def processes(self) -> Iterator[int]:
        """Yield the leader of each process, without the idle task. The list ends where it is damaged."""
        link = self.offset("struct task_struct.tasks")
        yield from self.linked(self.variable("init_task") + link, link)


def address_of(prog: Program, name: str) -> Optional[int]:
    """Return the address of a variable, or None if this kernel has none."""
    from drgn import FaultError

    try:
        return int(prog[name].address_of_().value_())
    except (LookupError, FaultError, ValueError):
        return None
