"""Return addresses that tracing has replaced by its own, and the true ones.

The function graph tracer keeps the true addresses in the task's ret_stack (kernel/trace/fgraph.c). Kretprobes keep them
in lists: of rethooks since 6.0 (kernel/trace/rethook.c), of the task's kretprobe_instances since 5.11, and in one hash
table before (kernel/kprobes.c).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory

if TYPE_CHECKING:
    from drgn import Object, Program

_MOST = 4096  # entries for one task
_NESTED = 4  # tracers that replaced the same address

_GRAPH = "return_to_handler"
_PROBES = ("arch_rethook_trampoline", "__kretprobe_trampoline", "kretprobe_trampoline")


class Saved(NamedTuple):
    """A return address that was replaced. ``place`` has what the tracer says of where it was: on x86 its address."""

    address: int
    place: frozenset[int]


class Replaced(NamedTuple):
    """A function that a replaced return address leads to."""

    name: str
    start: int
    end: int


class ReturnAddresses:
    """The true return addresses of one kernel."""

    def __init__(self, prog: Program, memory: Memory) -> None:
        self._prog = prog
        self._memory = memory

    @cached_property
    def _handlers(self) -> list[Replaced]:
        """Return the functions that replaced return addresses lead to."""
        found = []
        for name in (_GRAPH, *_PROBES):
            try:
                symbol = self._prog.symbol(name)
            except LookupError:
                continue
            found.append(Replaced(name, int(symbol.address), int(symbol.address) + min(int(symbol.size) or 64, 4096)))
        return found

    def replaced_by(self, pc: int) -> str:
        """Return the name of the function that a replaced return address leads to. "" if ``pc`` was not replaced."""
        return next((handler.name for handler in self._handlers if pc == handler.start), "")

    def within(self, pc: int) -> str:
        """Return the name of such a function if ``pc`` is in it. Otherwise ""."""
        return next((handler.name for handler in self._handlers if handler.start <= pc < handler.end), "")

    def true(self, task: int, pc: int, places: Sequence[int]) -> Optional[int]:
        """Return the return address in place of ``pc``, or None if the task's lists do not have it.

        ``places`` is where the address was on the stack, and what else identifies it. Two tracers may have replaced it,
        one after the other.
        """
        for _ in range(_NESTED):
            name = self.replaced_by(pc)
            if not name:
                return pc
            # The function graph tracer may have kept its own address, in a function that jumped to another.
            fits = (one.address for one in self._saved(task, name) if one.place.intersection(places))
            found = next((address for address in fits if address != pc), None)
            if found is None:
                return None
            pc = found
        return None

    def nearest(self, task: int, pc: int, low: int, most: int) -> Optional[tuple[int, int]]:
        """Return (true return address, where it was) of a function that has just returned into the handler at ``pc``.

        It was between ``low`` and ``low + most``. None if the task's lists do not have it.
        """
        name = self.within(pc)
        found = [
            (place, one.address) for one in self._saved(task, name) for place in one.place if low <= place < low + most
        ]
        if not found:
            return None
        place, address = min(found)
        true = self.true(task, address, (place,))
        return (true, place) if true is not None else None

    def _saved(self, task: int, name: str) -> Iterator[Saved]:
        """Yield what the tracer has saved for the task, the newest first. Damaged lists end early."""
        from drgn import FaultError, Object

        if not task:
            return
        one = Object(self._prog, "struct task_struct *", task)
        read = self._ret_stack if name == _GRAPH else self._kretprobes
        try:
            yield from islice(read(one), _MOST)
        except (FaultError, LookupError, AttributeError, ValueError):
            return

    def _ret_stack(self, task: Object) -> Iterator[Saved]:
        """Yield the entries of the function graph tracer, the newest first.

        Up to 6.10 they are an array, and curr_ret_stack is the index of the last. Since 6.11 ret_stack is an array of
        words, and curr_ret_stack the number of words in use. Between two entries lie words of the tracers. So each
        place where an entry may be is tried: what identifies it is an address on the stack.
        """
        form = self._prog.type("struct ftrace_ret_stack")
        names = [member.name for member in form.members or ()]
        keys = [form.member(name).bit_offset // 64 for name in ("retp", "fp") if name in names]
        returns = form.member("ret").bit_offset // 64
        words = (form.size or 8) // 8
        base, current = int(task.ret_stack), int(task.curr_ret_stack)
        if not base or not keys:
            return
        packed = "ftrace_ret_stack" not in str(task.ret_stack.type_)
        used = current if packed else (current + 1) * words
        if not 0 < used <= _MOST * words:
            return
        data = self._memory.read(base, used * 8)
        content = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        for at in range(len(content) - words, -1, -1 if packed else -words):
            yield Saved(content[at + returns], frozenset(content[at + key] for key in keys) - {0})

    def _kretprobes(self, task: Object) -> Iterator[Saved]:
        """Yield the instances of kretprobes, the newest first."""
        from drgn.helpers.linux.list import hlist_for_each_entry
        from drgn.helpers.linux.llist import llist_for_each_entry

        if hasattr(task, "rethooks"):
            for node in llist_for_each_entry("struct rethook_node", task.rethooks.first, "llist"):
                yield Saved(int(node.ret_addr), frozenset((int(node.frame),)))
        elif hasattr(task, "kretprobe_instances"):
            for one in llist_for_each_entry("struct kretprobe_instance", task.kretprobe_instances.first, "llist"):
                yield Saved(int(one.ret_addr), frozenset((int(one.fp),)))
        else:
            for head in self._prog["kretprobe_inst_table"]:
                for one in hlist_for_each_entry("struct kretprobe_instance", head.address_of_(), "hlist"):
                    if one.task == task:
                        yield Saved(int(one.ret_addr), frozenset((int(one.fp),)))
