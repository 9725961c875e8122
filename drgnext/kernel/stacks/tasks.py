"""The tasks of a kernel: all of them, and the ones that a user names.

The lists are followed here, word by word. So a damaged list costs only its rest, and thousands of tasks take one read
each.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.errors import UsageError
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.dump.cut_lists import CutLists, linked_backwards

if TYPE_CHECKING:
    from drgn import Program


_MOST_TASKS = 1 << 22  # PID_MAX_LIMIT (linux/threads.h)


class Task(NamedTuple):
    """A struct task_struct.

    ``stack`` is the lowest address of its stack. ``sp`` is the stack pointer at its last switch; it has no meaning if
    ``on_cpu``.
    """

    address: int
    pid: int
    tgid: int
    comm: str
    stack: int
    on_cpu: bool
    sp: int


@dataclass(frozen=True)
class _Layout:
    """Offsets in struct task_struct, and of ``thread_head`` in struct signal_struct."""

    size: int
    pid: int
    tgid: int
    comm: int
    stack: int
    tasks: int
    thread_node: int
    signal: int
    thread_head: int
    sp: Optional[int]
    on_cpu: Optional[int]
    on_cpu_size: int  # 4, or 1 (measured in 7.2)

    @classmethod
    def of(cls, prog: Program) -> _Layout:
        """Return the layout in this kernel. Raises LookupError if a member is missing."""
        from drgn import offsetof, sizeof

        task = prog.type("struct task_struct")

        def offset(*names: str) -> Optional[int]:
            """Return the offset of the first member that exists (``a.b`` is member b of member a), or None."""
            for name in names:
                try:
                    return int(offsetof(task, name))
                except LookupError:
                    continue
            return None

        def needed(name: str) -> int:
            """Return the offset of a member. Raises LookupError if it is missing."""
            found = offset(name)
            if found is None:
                raise LookupError(f"struct task_struct has no member {name}")
            return found

        names = ("pid", "tgid", "comm", "stack", "tasks", "thread_node", "signal")
        values = {name: needed(name) for name in names}
        sp, on_cpu = offset("thread.sp", "thread.cpu_context.sp"), offset("on_cpu")
        head = prog.type("struct signal_struct").member("thread_head").bit_offset // 8
        last = max(*values.values(), sp or 0, on_cpu or 0)
        width = 4 if on_cpu is None else sizeof(task.member("on_cpu").type)
        return cls(last + 16, **values, thread_head=head, sp=sp, on_cpu=on_cpu, on_cpu_size=width)


class Tasks:
    """The tasks of one kernel."""

    def __init__(self, prog: Program, memory: Memory) -> None:
        self._prog = prog
        self._memory = memory
        self._layout = _Layout.of(prog)
        self._damaged: list[str] = []
        self._cut = CutLists()
        self._lost: set[int] = set()  # tasks that cannot be read

    @property
    def notes(self) -> list[str]:
        """Return what the lists did not give, one line each."""
        lost = len(self._lost)
        text = f"{lost} tasks cannot be read (one of them is at {min(self._lost, default=0):#x}): the dump lacks a part"
        return [*self._damaged, *self._cut.notes, *([f"{text} of each"] if lost else [])]

    def at(self, address: int) -> Optional[Task]:
        """Return the task at the address, or None if the dump lacks it."""
        layout = self._layout
        data = self._memory.read(address, layout.size)
        if len(data) < layout.size:
            return None
        return Task(
            address,
            _int(data, layout.pid),
            _int(data, layout.tgid),
            data[layout.comm : layout.comm + 16].partition(b"\0")[0].decode(errors="replace"),
            _word(data, layout.stack),
            any(data[layout.on_cpu : layout.on_cpu + layout.on_cpu_size]) if layout.on_cpu is not None else False,
            _word(data, layout.sp) if layout.sp is not None else 0,
        )

    def all(self) -> Iterator[Task]:
        """Yield every thread, a process's threads together, then the idle tasks of all present CPUs."""
        init = int(self._prog["init_task"].address_of_())
        seen: set[int] = set()
        for leader in (init, *self._follow(init + self._layout.tasks, self._layout.tasks, "tasks")):
            for address in self._threads(leader):
                if address in seen:
                    continue
                seen.add(address)
                task = self.at(address)
                if task is not None:
                    yield task
                else:
                    self._lost.add(address)
        for address in self._idle():
            if address not in seen and (task := self.at(address)) is not None:
                yield task

    def _threads(self, leader: int) -> Iterator[int]:
        """Yield the addresses of a thread group, its ``leader`` (from the list of tasks) first."""
        yield leader
        signal = self._memory.word(leader + self._layout.signal)
        if signal:
            yield from self._follow(signal + self._layout.thread_head, self._layout.thread_node, "threads")

    def _follow(self, head: int, offset: int, what: str) -> Iterator[int]:
        """Yield the structures of a list_head list. Its links are at ``offset`` in them."""
        at = self._memory.word(head)
        seen = {head}
        while at != head:
            if at is None:
                self._cut.add(f"the list of {what}", head)
                for node in linked_backwards(self._memory, head, seen, _MOST_TASKS):
                    yield node - offset
                return
            if at in seen or len(seen) > _MOST_TASKS:
                text = f"the list of {what} at {head:#x} is damaged (it leads to {at:#x} again): tasks may be missing"
                self._damaged.append(text)
                return
            seen.add(at)
            yield at - offset
            at = self._memory.word(at)

    def _idle(self) -> Iterator[int]:
        """Yield the idle tasks of all present CPUs."""
        from drgn import FaultError
        from drgn.helpers.linux.cpumask import for_each_present_cpu
        from drgn.helpers.linux.sched import idle_task

        try:
            # Present CPUs, not online ones: a panic takes all other CPUs offline (smp_send_stop).
            for cpu in for_each_present_cpu(self._prog):
                yield int(idle_task(self._prog, cpu))
        except (FaultError, LookupError):
            return

    def find(self, text: str) -> list[Task]:
        """Return the tasks that the user means by an address, a pid, or a name, which several tasks may have.

        Raises UsageError if no such task exists.
        """
        number = _number(text)
        if number >= 1 << 32:
            task = self.at(number)
            if task is None or task.pid < 0 or not task.stack:
                raise UsageError(f"no task at {number:#x}", "`stacks` lists all tasks")
            return [task]
        found = [task for task in self.all() if task.pid == number or task.comm == text]
        if not found:
            what = "; ".join((f"no task has the pid or the name {text!r}", *self.notes))
            raise UsageError(what, "`stacks` lists all tasks")
        return found


def _number(text: str) -> int:
    """Return the pid or address in the text, -1 if it is a name.

    An address may have 0x, or be 16 hex digits without 0x as tables show it.
    """
    if re.fullmatch(r"[89a-fA-F][0-9a-fA-F]{15}", text):
        return int(text, 16)
    try:
        return int(text, 0)
    except ValueError:
        return -1


def _int(data: bytes, offset: int) -> int:
    """Return the signed 32-bit number at the offset."""
    return int(struct.unpack_from("<i", data, offset)[0])


def _word(data: bytes, offset: int) -> int:
    """Return the unsigned 64-bit number at the offset."""
    return int(struct.unpack_from("<Q", data, offset)[0])
