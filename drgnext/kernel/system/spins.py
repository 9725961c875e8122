"""The spinlock that a CPU waits for: its slow path is on the stack, and a register has its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgnext.kernel.stacks.code_names import CodeNames
    from drgnext.kernel.stacks.frames import Stack
    from drgnext.kernel.system.reading import Reader

#: kernel/locking/qspinlock.c, qrwlock.c. The slow path is entered only if the lock is held.
_SLOW = ("native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath")
_SLOW_RW = ("queued_read_lock_slowpath", "queued_write_lock_slowpath")
_MOST_FRAMES = 16
#: include/asm-generic/qspinlock_types.h: the low byte of the word is 1 while the lock is held, and 3 where its holder
#: must wake a waiter of a virtual machine. The second byte is the pending bit. The last waiter's CPU plus one is above.
_LOCKED = (1, 3)
_TAIL_CPU = 18


class Spin(NamedTuple):
    """A wait for a spinlock. ``lock`` is its address, None if no register has it.

    ``name`` is that of its variable, or the address in hex, "" if it is not known.
    """

    lock: Optional[int]
    name: str


def spin_of(reader: Reader, places: CodeNames, stack: Stack) -> Optional[Spin]:
    """Return the spinlock that a running task waits for, None if it waits for none."""
    names = [places.name(frame) for frame in stack.frames[:_MOST_FRAMES]]
    at = next((index for index, name in enumerate(names) if name.startswith((*_SLOW, *_SLOW_RW))), None)
    if at is None:
        return None
    lock = None if names[at].startswith(_SLOW_RW) else _lock_in(reader, stack.frames[at].registers)
    return Spin(lock, reader.function(lock) if lock is not None else "")


def _lock_in(reader: Reader, registers: Mapping[str, int]) -> Optional[int]:
    """Return the address in a register that points to a held queued spinlock, None if none or several do.

    A lock that a CPU waits for is locked, and notes a waiter: the pending bit, or the last waiter's CPU plus one. The
    kernel of a virtual machine may note none, and tries again and again (virt_spin_lock(), arch/x86).
    """
    cpus = max(reader.cpus(), default=0) + 1
    noted, plain = set(), set()
    for address in set(registers.values()):
        data = reader.memory.read(address, 4) if 1 << 63 <= address < (1 << 64) - 4 and not address % 4 else b""
        word = int.from_bytes(data, "little") if len(data) == 4 else 0
        last = word >> _TAIL_CPU
        if word == 1:
            plain.add(address)
        elif word & 0xFF in _LOCKED and word & 0xFF00 in (0, 0x100) and last <= cpus and (last or word & 0x100):
            noted.add(address)
    found = noted or plain
    return found.pop() if len(found) == 1 else None
