"""The lock that a sleeping task waits for, who holds it, and what the holder waits for.

A task that waits for a mutex, rwsem or semaphore has a waiter on its stack: a list entry, then the task's own address
(struct mutex_waiter, rwsem_waiter, semaphore_waiter). The waiters of a lock and its head make a ring. So the lock is
found without unwinding: it is the one member of the ring that is on no waiter's stack. In 7.2 the ring has no head,
and the lock points to its first waiter: there the lock is a word of the stack that leads back to the ring.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system.reading import number
from drgnext.kernel.system.rt_locks import RealTimeLocks

if TYPE_CHECKING:
    from drgnext.kernel.system.processes import Processes

_POINTER_FLAGS = 7  # of the owner of a mutex or rwsem; task_struct is aligned to a cache line
_READER_OWNED = 1  # RWSEM_READER_OWNED (kernel/locking/rwsem.c)
_READER_SHIFT = 8  # RWSEM_READER_SHIFT
_MOST_WAITERS = 1 << 16
_MOST_CHAIN = 64
_FRAMES = 16

#: (kind, its structure, the beginnings of the names of functions that wait for it). The innermost such frame decides.
_KINDS = (
    ("mutex", "struct mutex", ("__mutex_lock", "mutex_lock", "__ww_mutex_lock", "ww_mutex_lock")),
    ("rwsem", "struct rw_semaphore", ("rwsem_down_", "__down_read", "__down_write", "down_read", "down_write")),
    ("semaphore", "struct semaphore", ("___down", "__down", "down")),
)
_STRUCTURES = {kind: structure for kind, structure, _names in _KINDS}


class Wait(NamedTuple):
    """A task's wait for a lock.

    ``wants`` is "read" or "write" for a rwsem or rwlock, else "". ``owner`` is the task that holds the lock, None if
    the lock does not say. With ``readers``, ``owner`` is only the last task that took it for reading, or None.
    ``name`` is the variable's, or "".
    """

    task: Task
    kind: str
    lock: int
    name: str
    wants: str
    owner: Optional[Task]
    readers: int

    @property
    def sure(self) -> bool:
        """Return whether the owner is sure to hold the lock."""
        return self.owner is not None and not self.readers and self.kind != "semaphore"


class Locks:
    """The waits of one kernel's tasks."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._reader = processes.reader
        self._threads = processes.threads
        self._real_time = RealTimeLocks(processes.reader, processes.threads)
        self._known: dict[int, Optional[Wait]] = {}
        self._task_at = self._offset("struct mutex_waiter", "task") or 16

    def wait(self, task: Task) -> Optional[Wait]:
        """Return the wait of a sleeping task, or None if it waits for no lock."""
        if task.address not in self._known:
            self._known[task.address] = None
            if not task.on_cpu:
                with self._reader.reading("locks"):
                    self._known[task.address] = self._made_of_rt_mutex(task) or self._find(task)
        return self._known[task.address]

    def chain(self, task: Task) -> tuple[list[Wait], bool]:
        """Return the waits from a task to the last holder, and whether they lead back into themselves (a deadlock)."""
        found: list[Wait] = []
        seen = {task.address}
        at: Optional[Task] = task
        while at is not None and len(found) < _MOST_CHAIN:
            wait = self.wait(at)
            if wait is None:
                break
            found.append(wait)
            at = wait.owner
            if at is not None and at.address in seen:
                return found, wait.sure
            if at is not None:
                seen.add(at.address)
        return found, False

    def _find(self, task: Task) -> Optional[Wait]:
        for waiter in self._waiters_on_stack(task):
            ring = self._ring(waiter)
            if ring is None:
                continue
            for kind in self._kinds(task):
                lock = self._headed(kind, ring) or self._headless(kind, task, ring)
                if lock is not None:
                    return self._describe(task, kind, lock, waiter)
        return None

    def _waiters_on_stack(self, task: Task) -> Iterator[int]:
        """Yield the addresses on the task's stack that look like a waiter of its own."""
        start = max(task.stack, task.sp)
        end = task.stack + self._threads.stack_size
        if not task.stack or not task.stack <= task.sp < end:
            start = task.stack
        data = self._reader.memory.read(start, end - start)
        pattern = struct.pack("<Q", task.address)
        at = data.find(pattern)
        while at >= 0:
            waiter = start + at - self._task_at
            if not (start + at) % 8 and waiter >= start:
                yield waiter
            at = data.find(pattern, at + 1)

    def _ring(self, waiter: int) -> Optional[list[int]]:
        """Return the members of the list that the waiter is in, itself first. None if its links are not whole."""
        word = self._reader.memory.word
        found: list[int] = []
        at = waiter
        while len(found) < _MOST_WAITERS:
            following = word(at)
            if not following or word(following + 8) != at:
                return None
            found.append(at)
            if following == waiter:
                return found
            at = following
        return None

    def _kinds(self, task: Task) -> Sequence[str]:
        """Return the kinds of lock that the task may wait for, by the innermost function on its stack that waits."""
        for frame in self._threads.stack(task, _FRAMES).frames:
            name = self._threads.places.name(frame)
            for kind, _structure, beginnings in _KINDS:
                if name.startswith(beginnings):
                    return (kind,)
        return ()

    def _headed(self, kind: str, ring: list[int]) -> Optional[int]:
        """Return the lock whose list head is in the ring: the one member that is no waiter."""
        offset = self._offset(_STRUCTURES[kind], "wait_list")
        heads = [at for at in ring if not self._is_waiter(at)]
        if offset is None or len(heads) != 1 or not self._plausible(kind, heads[0] - offset):
            return None
        return heads[0] - offset

    def _is_waiter(self, at: int) -> bool:
        """Return whether the list entry is on the stack of the task that it names."""
        address = self._reader.memory.word(at + self._task_at)
        task = self._threads.tasks.at(address) if address and address >> 63 else None
        return task is not None and task.stack <= at < task.stack + self._threads.stack_size

    def _headless(self, kind: str, task: Task, ring: list[int]) -> Optional[int]:
        """Return the lock that points to a waiter of the ring: a pointer on the task's stack leads to it."""
        offset = self._offset(_STRUCTURES[kind], "first_waiter")
        if offset is None:
            return None
        members = set(ring)
        start = max(task.stack, task.sp)
        data = self._reader.memory.read(start, task.stack + self._threads.stack_size - start)
        thing = self._threads.task_object(task)
        own = [thing.blocked_on.value_()] if self._reader.has("struct task_struct", "blocked_on") else []
        words = (word for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))
        for word in (*own, *words):
            # Saved pointers to the waiter lie on the stack itself. So no word of it can be taken for a lock.
            if not word >> 63 or word & 7 or task.stack <= word < task.stack + self._threads.stack_size:
                continue
            if self._reader.memory.word(word + offset) in members and self._plausible(kind, word):
                return int(word)
        return None

    def _plausible(self, kind: str, lock: int) -> bool:
        """Return whether a lock with waiters can look so: nobody or a task owns it, a semaphore's count is 0."""
        if kind == "semaphore":
            return not int(self._reader.pointer(_STRUCTURES[kind], lock).count)
        owner = number(self._reader.pointer(_STRUCTURES[kind], lock).owner) & ~_POINTER_FLAGS & 0xFFFFFFFFFFFFFFFF
        return not owner or self._task(owner) is not None

    def _describe(self, task: Task, kind: str, lock: int, waiter: int) -> Wait:
        """Return the wait for a lock that was found."""
        structure = _STRUCTURES[kind]
        thing = self._reader.pointer(structure, lock)
        owner, readers, wants = 0, 0, ""
        if kind == "semaphore":
            if self._reader.has(structure, "last_holder"):  # CONFIG_DETECT_HUNG_TASK_BLOCKER, since 6.16
                owner = int(thing.last_holder)
        else:
            owner = number(thing.owner) & 0xFFFFFFFFFFFFFFFF
        if kind == "rwsem":
            kind_of = int(self._reader.pointer("struct rwsem_waiter", waiter).type)
            wants = "read" if kind_of == self._reader.constant("RWSEM_WAITING_FOR_READ") else "write"
            if owner & _READER_OWNED:
                readers = number(thing.count) >> _READER_SHIFT & 0xFFFFFFFF
        return Wait(task, kind, lock, self._name(lock), wants, self._task(owner & ~_POINTER_FLAGS), readers)

    def _made_of_rt_mutex(self, task: Task) -> Optional[Wait]:
        """Return the wait for a lock of PREEMPT_RT or for a PI futex, or None."""
        found = self._real_time.wait(task)
        if found is None:
            return None
        owner = self._task(found.owner)
        return Wait(task, found.kind, found.lock, self._name(found.lock), found.wants, owner, found.readers)

    def _task(self, address: int) -> Optional[Task]:
        """Return the task at the address, None if none can be there."""
        if not address >> 63 & 1 or address & 7:
            return None
        task = self._threads.tasks.at(address)
        return task if task is not None and task.pid >= 0 and task.stack >= 1 << 63 else None

    def _name(self, address: int) -> str:
        """Return the name of the variable that the lock is in, "" for one in allocated memory."""
        name = self._reader.function(address)
        return "" if name.startswith("0x") else name

    def _offset(self, structure: str, member: str) -> Optional[int]:
        return self._reader.offset(structure, member) if self._reader.has(structure, member) else None
