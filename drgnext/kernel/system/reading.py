"""Follow the kernel's lists, trees and tables in a dump that may be damaged.

drgn's own helpers follow a damaged list for ever. Here each walk has a bound and stops where it meets an address again.
A structure that the dump lacks costs a note, and the rest of the answer stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.dump.cut_lists import CutLists, linked_backwards

if TYPE_CHECKING:
    from drgn import Object, Program

    from drgnext.kernel.dump.target import Kernel

MOST = 1 << 24  # members of one list
_MOST_NODES = 1 << 22  # of one red-black tree


class Reader:
    """The kernel's memory and types, and notes on what could not be read. A command makes one."""

    def __init__(self, kernel: Kernel) -> None:
        """Prepare to read the kernel."""
        from drgn import FaultError

        self.kernel = kernel
        self.prog: Program = kernel.prog
        self.memory = Pages(_kernel_only(self.prog.read), FaultError)
        self._notes: list[str] = []
        self._cut = CutLists()
        self._lost: dict[str, tuple[int, str]] = {}
        self._offsets: Optional[dict[int, int]] = None  # of per-CPU memory, by CPU

    @property
    def notes(self) -> list[str]:
        """Return what the dump lacks, one line each."""
        lost = [
            f"{count} {what} cannot be read (the first: {first})"
            if count > 1
            else f"1 of the {what} cannot be read ({first})"
            for what, (count, first) in sorted(self._lost.items())
        ]
        return [*self._notes, *self._cut.notes, *lost]

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self._notes:
            self._notes.append(text)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Count a structure as one of ``what`` ("sockets") that cannot be read, instead of raising drgn's errors."""
        import drgn

        try:
            yield
        except (
            drgn.FaultError,
            drgn.OutOfBoundsError,
            LookupError,
            AttributeError,
            ValueError,
            OverflowError,
        ) as error:
            count, first = self._lost.get(what, (0, str(error)))
            self._lost[what] = (count + 1, first)

    def symbol(self, name: str) -> Optional[Object]:
        """Return the variable of that name, or None if this kernel does not have it."""
        try:
            return self.prog[name]
        except LookupError:
            return None

    def constant(self, name: str) -> Optional[int]:
        """Return the value of an enumerator, or None if this kernel does not have it."""
        try:
            return int(self.prog.constant(name))
        except LookupError:
            return None

    def has(self, structure: str, member: str) -> bool:
        """Return whether a structure ("struct rq", or a typedef of one) of this kernel has the member."""
        from drgn import TypeKind

        try:
            type_ = self.prog.type(structure)
            while type_.kind == TypeKind.TYPEDEF:
                type_ = type_.type
            return type_.has_member(member)
        except LookupError:
            return False

    def has_of_module(self, structure: str, member: str) -> bool:
        """Return the same of a structure of a module. If need be, it takes the types that the dump carries (BTF)."""
        from drgnext.kernel.dump.debuginfo import release
        from drgnext.kernel.dump.given_files import own_files
        from drgnext.kernel.dump.own_types.carried import add_types, stands_for_vmlinux

        if self.has(structure, member) or stands_for_vmlinux(self.prog):
            return self.has(structure, member)
        return add_types(self.prog, release(self.prog), own_files()) and self.has(structure, member)

    def has_member(self, value: Object, member: str) -> bool:
        """Return whether a structure of the dump has the member."""
        from drgn import TypeKind

        type_ = value.type_
        while type_.kind == TypeKind.TYPEDEF:
            type_ = type_.type
        return bool(type_.has_member(member))

    def pointer(self, structure: str, address: int) -> Object:
        """Return ``(structure *)address``."""
        from drgn import Object

        return Object(self.prog, f"{structure} *", address)

    def offset(self, structure: str, member: str) -> int:
        """Return the offset of a member ("list", "mnt.mnt_sb"). Raises LookupError."""
        from drgn import offsetof

        return int(offsetof(self.prog.type(structure), member))

    def linked(self, head: int, what: str) -> Iterator[int]:
        """Yield the addresses of the ``struct list_head`` in a list, without its head. ``what`` is for a note.

        Where the dump lacks a part of it, the nodes behind that part follow, as far as the links back lead.
        """
        at = self.memory.word(head)
        seen = {head}
        while at != head:
            if at is None:
                self.damaged(f"the list of {what}", head, None)
                yield from linked_backwards(self.memory, head, seen, MOST)
                return
            if at in seen or len(seen) > MOST:
                self.damaged(f"the list of {what}", head, at)
                return
            seen.add(at)
            yield at
            at = self.memory.word(at)

    def hashed(self, first: int, what: str) -> Iterator[int]:
        """Yield the addresses of the nodes of a hlist, a bit-locked one (hlist_bl) or one with nulls, from its first.

        An odd address ends a list with nulls. The lowest bit of a bit-locked head must be cleared before.
        """
        at: Optional[int] = first
        seen: set[int] = set()
        while at and not at & 1:
            if at in seen or len(seen) > MOST:
                self.damaged(f"the list of {what}", first, at)
                return
            seen.add(at)
            following = self.memory.word(at)
            if following is None:
                self.damaged(f"the list of {what}", first, None)
                return
            yield at
            at = following

    def tree(self, root: Object, what: str) -> Iterator[int]:
        """Yield the addresses of the ``struct rb_node`` in a red-black tree (``struct rb_root``), in order."""
        left, right = self.offset("struct rb_node", "rb_left"), self.offset("struct rb_node", "rb_right")
        start = root.rb_node.value_()
        seen: set[int] = set()
        above: list[int] = []
        at: Optional[int] = start
        while at or above:
            while at:
                if at in seen or len(seen) > _MOST_NODES:
                    self.damaged(f"the tree of {what}", start, at)
                    return
                seen.add(at)
                above.append(at)
                at = self.memory.word(at + left)
                if at is None:
                    self.damaged(f"the tree of {what}", start, None)
            node = above.pop()
            yield node
            at = self.memory.word(node + right)

    def objects(self, structure: str, member: str, nodes: Iterable[int]) -> Iterator[Object]:
        """Yield pointers to the structures whose ``member`` is at each address."""
        from drgn import Object

        offset = self.offset(structure, member)
        pointer = self.prog.pointer_type(self.prog.type(structure))
        for node in nodes:
            yield Object(self.prog, pointer, (node - offset) & 0xFFFFFFFFFFFFFFFF)

    def members(self, head: int, structure: str, member: str, what: str) -> Iterator[Object]:
        """Yield pointers to the structures on a ``struct list_head`` list, from the address of its head."""
        return self.objects(structure, member, self.linked(head, what))

    def text(self, address: int, most: int = 4096) -> str:
        """Return the C string at the address, at most ``most`` bytes of it. It is "" if the dump lacks it."""
        found = b""
        while address and len(found) < most and b"\0" not in found:
            piece = self.memory.read(address + len(found), min(64, most - len(found)))
            if not piece:
                break
            found += piece
        return found.partition(b"\0")[0].decode(errors="backslashreplace")

    def string(self, value: Object, most: int = 4096) -> str:
        """Return the C string that a ``char *`` points to, or that is in a ``char []``."""
        from drgn import TypeKind

        address = value.address_ if value.type_.kind == TypeKind.ARRAY else value.value_()
        return self.text(address or 0, most)

    def cpus(self) -> list[int]:
        """Return the numbers of all possible CPUs. A panic takes the others offline, so online ones are too few."""
        return list(self._cpu_offsets())

    def _cpu_offsets(self) -> dict[int, int]:
        """Return what to add to a per-CPU pointer, for each possible CPU."""
        from drgn.helpers.linux.cpumask import for_each_possible_cpu

        if self._offsets is None:
            table = self.symbol("__per_cpu_offset")  # a kernel without SMP has no such symbol
            cpus = list(for_each_possible_cpu(self.prog))
            self._offsets = {cpu: int(table[cpu]) if table is not None else 0 for cpu in cpus}
        return self._offsets

    def percpu(self, pointer: Object, cpu: int) -> Object:
        """Return a CPU's instance of what a per-CPU pointer points to."""
        from drgn.helpers.linux.percpu import per_cpu_ptr

        return per_cpu_ptr(pointer, cpu)

    def percpu_variable(self, name: str, cpu: int) -> Object:
        """Return a CPU's instance of a per-CPU variable. Raises LookupError."""
        from drgn.helpers.linux.percpu import per_cpu

        return per_cpu(self.prog[name], cpu)

    def parts(self, pointer: int, size: int) -> Iterator[bytes]:
        """Yield each possible CPU's instance of what a per-CPU pointer points to: fewer bytes if the dump lacks some.

        A machine may have hundreds of CPUs and thousands of counters. So they are read without drgn's objects.
        """
        for offset in self._cpu_offsets().values():
            yield self.memory.read((pointer + offset) & 0xFFFFFFFFFFFFFFFF, size)

    def counter(self, value: Object) -> int:
        """Return the exact value of a ``struct percpu_counter``, with the parts of all possible CPUs."""
        total, counters = int(value.count), value.counters.value_()
        for part in self.parts(counters, 4) if counters else ():
            if len(part) < 4:
                self.note("the dump lacks parts of counters that each CPU has: numbers of pages may be wrong")
            total += int.from_bytes(part, "little", signed=True)
        return total

    def function(self, address: int) -> str:
        """Return the name of the function or variable at the address, else the address in hex."""
        try:
            symbol = self.prog.symbol(address)
        except LookupError:
            return f"{address:#x}"
        offset = address - symbol.address
        return symbol.name if not offset else f"{symbol.name}+{offset:#x}"

    def damaged(self, what: str, start: int, at: Optional[int]) -> None:
        """Note that a walk stopped early: where it had been before, or (None) where the dump lacks memory."""
        if at is None:
            self._cut.add(what, start)
        else:
            self.note(f"{what} at {start:#x} is damaged (it leads to {at:#x} again): the rest is missing")


def number(value: Object) -> int:
    """Return the value of an integer, or of an atomic_t or atomic_long_t."""
    from drgn import TypeKind

    type_ = value.type_
    while type_.kind == TypeKind.TYPEDEF:
        type_ = type_.type
    return int(value.counter) if type_.kind == TypeKind.STRUCT else int(value)


def flat(array: Object) -> list[int]:
    """Return the integers of an array, or of an array of arrays, in the order of memory.

    BTF writes an array of arrays as one array.
    """
    from drgn import TypeKind

    if array.type_.kind != TypeKind.ARRAY:
        return [int(array)]
    return [value for each in array for value in flat(each)]


def _kernel_only(read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """Return ``read``, restricted to kernel addresses: a dump by QEMU has physical memory at low addresses."""

    def checked(address: int, size: int) -> bytes:
        if not 1 << 63 <= address <= (1 << 64) - size:
            raise ValueError(f"{address:#x} is not a kernel address")
        return read(address, size)

    return checked
