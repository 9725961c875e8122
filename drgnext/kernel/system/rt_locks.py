"""The lock that a task of PREEMPT_RT waits for.

There a mutex, a rwsem, a spinlock and a rwlock are each made of a rt_mutex, and a waiting task points to that
(``pi_blocked_on``). The rt_mutex does not say what it is a part of. The function that waits does.

A writer first takes the rt_mutex of a rwsem, and then waits until the readers have left (kernel/locking/rwbase_rt.c).
In that second wait it points to nothing, but a word on its stack leads to the lock that it owns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads
from drgnext.kernel.system.reading import Reader, number

_HAS_WAITERS = 1  # RT_MUTEX_HAS_WAITERS, in the owner of a rt_mutex
_WRITER_BIAS = 1 << 30  # what the readers of a rwbase_rt are while a writer has it
_RTLOCK_WAIT = 0x1000  # TASK_RTLOCK_WAIT: the state of a task that waits for a spinlock or rwlock
_FRAMES = 16


class _Kind(NamedTuple):
    """A kind of lock: its structure, the member that is its rt_mutex, and the functions that wait for it."""

    kind: str
    wants: str
    structure: str
    member: str
    functions: tuple[str, ...]


# down_read() and the like end in a jump to an inner function, so that a stack has the name of that one.
_READ = "__rwbase_read_lock", "__down_read", "down_read"
_WRITE = "rwbase_write_lock", "__down_write", "down_write"
_MUTEX = "__mutex_lock", "mutex_lock", "__ww_rt_mutex_lock", "ww_mutex_lock"
_WHOLE = _Kind("rt_mutex", "", "struct rt_mutex", "rtmutex", ("rt_mutex_lock", "rt_mutex_wait_proxy_lock"))
_KINDS = (
    _WHOLE,
    _Kind("mutex", "", "struct mutex", "rtmutex", _MUTEX),
    _Kind("rwsem", "read", "struct rw_semaphore", "rwbase.rtmutex", _READ),
    _Kind("rwsem", "write", "struct rw_semaphore", "rwbase.rtmutex", _WRITE),
    _Kind("spinlock", "", "struct spinlock", "lock", ("rt_spin_lock",)),
)


class Blocked(NamedTuple):
    """A wait for a lock. ``owner`` is the address of the task that holds the lock, 0 if the lock does not say."""

    kind: str
    lock: int
    wants: str
    owner: int
    readers: int


class RealTimeLocks:
    """The waits for locks that are made of a rt_mutex: those of PREEMPT_RT, and of PI futexes everywhere."""

    def __init__(self, reader: Reader, threads: Threads) -> None:
        self._reader = reader
        self._threads = threads
        self._whole = reader.has("struct mutex", "rtmutex")  # PREEMPT_RT
        self._known = reader.has("struct task_struct", "pi_blocked_on")

    def wait(self, task: Task) -> Optional[Blocked]:
        """Return what a sleeping task waits for, or None if that is no such lock."""
        thing = self._threads.task_object(task)
        if not self._known or not thing.pi_blocked_on.value_():
            return self._behind_readers(task) if self._whole else None
        waiter = thing.pi_blocked_on
        kind = (self._kind(task) if self._whole else None) or _WHOLE
        state = int(waiter.wake_state) if self._reader.has("struct rt_mutex_waiter", "wake_state") else 0
        owner = int(waiter.lock.owner.value_()) & ~_HAS_WAITERS
        lock = waiter.lock.value_() - (self._offset(kind.structure, kind.member) if self._whole else 0)
        return Blocked(_named(kind, state), lock, kind.wants, owner, 0)

    def _behind_readers(self, task: Task) -> Optional[Blocked]:
        """Return the lock of a writer that waits until its readers leave, or None if the task is no such writer."""
        kind = self._kind(task)
        if kind is None or kind.wants != "write":
            return None
        owner = self._offset("struct rwbase_rt", "rtmutex") + self._offset("struct rt_mutex_base", "owner")
        memory = self._reader.memory
        for lock in self._candidates(task):
            held_by = memory.word(lock + owner)
            if held_by is None or held_by & ~_HAS_WAITERS != task.address:
                continue
            readers = number(self._reader.pointer("struct rwbase_rt", lock).readers)
            if 0 < readers < _WRITER_BIAS:
                thing = self._threads.task_object(task)
                return Blocked(_named(kind, int(thing.member_("__state"))), lock, kind.wants, 0, readers)
        return None

    def _candidates(self, task: Task) -> Iterator[int]:
        """Yield the addresses that a struct rwbase_rt may have by the words on the task's stack."""
        end = task.stack + self._threads.stack_size
        if not task.stack <= task.sp < end:
            return
        start = task.sp + -task.sp % 8
        data = self._reader.memory.read(start, end - start)
        inner = self._offset("struct rwbase_rt", "rtmutex")
        for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
            # A word may point to the lock as a whole, or to the rt_mutex in it. Neither is on the stack itself.
            if word >> 63 and not word & 7 and not task.stack <= word < end:
                yield from (word, word - inner)

    def _kind(self, task: Task) -> Optional[_Kind]:
        """Return the kind of lock that the task waits for, by the innermost function on its stack that waits."""
        for frame in self._threads.stack(task, _FRAMES).frames:
            name = self._threads.places.name(frame)
            for kind in _KINDS:
                if name.startswith(kind.functions):
                    return kind
        return None

    def _offset(self, structure: str, member: str) -> int:
        return self._reader.offset(structure, member)


def _named(kind: _Kind, state: int) -> str:
    """Return the name of the kind. A rwlock waits in the same functions as a rwsem, and in another state."""
    return "rwlock" if kind.kind == "rwsem" and state & _RTLOCK_WAIT else kind.kind
