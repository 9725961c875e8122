"""Threads that wait for mutexes whose owners wait: cycles, and owners that are gone.

A thread that waits in futex(2) has the address of the futex in a register. Of a mutex of glibc that is the first word
of ``pthread_mutex_t``: __lock, __count, __owner (a tid), __nusers, __kind (sysdeps/nptl/bits/struct_mutex.h; the order
is the same in every release, and on every architecture of 64 bits).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Parties, Said
from dmods.process.unwind import walk
from dmods.target import Thread
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import first_own

# The system call's number, its register, and the registers of its first two arguments.
_FUTEX = {
    "x86_64": (202, "orig_rax", "rdi", "rsi"),
    "i386": (240, "orig_eax", "ebx", "ecx"),
    "aarch64": (98, "x8", "x0", "x1"),
}
_OPERATIONS = (0, 6, 13)  # FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_LOCK_PI2 (include/uapi/linux/futex.h)
_PRIVATE, _CLOCK = 128, 256
_CONTENDED = 2  # __lock where a thread waits (nptl/lowlevellock.h)
_KINDS = 4  # normal, recursive, error-checking, adaptive: the low bits of __kind
_SHARED = 128
_TID_MASK = 0x3FFFFFFF
_NAMED = 8


class Wait(NamedTuple):
    """A thread that waits for a mutex, and the thread that owns the mutex."""

    thread: Thread
    mutex: int
    owner: int
    shared: bool


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield each cycle once, then mutexes whose owner has exited."""
    waits = {wait.thread.tid: wait for thread in facts.target.threads() if (wait := _wait(facts, thread)) is not None}
    alive = {thread.tid for thread in facts.target.threads()}
    yield Measured(f"{len(waits):,} of {len(alive):,} threads wait for a mutex")
    done: set[int] = set()
    for tid in waits:
        cycle = _cycle(waits, tid)
        if cycle and not done & set(cycle):
            done.update(cycle)
            yield _deadlock(facts, [waits[each] for each in cycle], len(waits))
    orphans: dict[int, list[Wait]] = {}
    for wait in waits.values():
        if wait.owner not in alive and not wait.shared:
            orphans.setdefault(wait.mutex, []).append(wait)
    for mutex, waiting in sorted(orphans.items()):
        yield _orphan(facts, mutex, waiting)


def _wait(facts: ProcessFacts, thread: Thread) -> Optional[Wait]:
    known = _FUTEX.get(facts.target.arch.name)
    registers = thread.registers
    if known is None or registers.get(known[1]) != known[0]:
        return None
    mutex, operation = registers.get(known[2], 0), registers.get(known[3], 0) & 0xFFFFFFFF
    if operation & ~(_PRIVATE | _CLOCK) not in _OPERATIONS or not mutex or mutex % 4:
        return None
    lock, _count, owner, users, kind = (facts.heap.words.int32(mutex + 4 * index) for index in range(5))
    if lock is None or owner is None or users is None or kind is None:
        return None
    inherits = operation & ~(_PRIVATE | _CLOCK) != 0
    if inherits:  # the futex word itself is the owner's tid (PTHREAD_PRIO_INHERIT)
        owner = lock & _TID_MASK
    elif lock != _CONTENDED or not 0 <= kind & 0x7F < _KINDS or users < 1:
        return None
    if owner <= 0:
        return None
    return Wait(thread, mutex, owner, not operation & _PRIVATE or bool(kind & _SHARED))


def _cycle(waits: dict[int, Wait], tid: int) -> list[int]:
    """Return the threads of the cycle that begins at the thread, or []."""
    path = [tid]
    while path[-1] in waits:
        following = waits[path[-1]].owner
        if following == tid:
            return path
        if following in path:
            return []
        path.append(following)
    return []


def _deadlock(facts: ProcessFacts, cycle: list[Wait], waiting: int) -> Finding:
    first = cycle[0]
    if len(cycle) == 1:
        place = _place(facts, first.thread)
        what = f"thread {facts.named(first.thread)} waits for a mutex that it has locked itself, in {place}"
        remedy = "do not lock it again, or make it recursive (PTHREAD_MUTEX_RECURSIVE)"
    else:
        links = [f"{facts.named(wait.thread)} in {_place(facts, wait.thread)} waits for {wait.owner}" for wait in cycle]
        more = f" and {len(links) - 3} more" if len(links) > 3 else ""
        what = f"{len(cycle)} threads wait for each other's mutexes: {'; '.join(links[:3])}{more}"
        remedy = "lock these mutexes in the same order everywhere"
    behind = waiting - len(cycle)
    if behind > 0:
        what += f"; {behind} further threads wait for mutexes"
    evidence = [
        Evidence(
            wait.mutex, f"mutex{_mutex_name(facts, wait.mutex)}, owned by {wait.owner}, wanted by {wait.thread.tid}"
        )
        for wait in cycle[:_NAMED]
    ]
    steps = tuple(f"findstack {wait.thread.tid}" for wait in cycle[:2])
    return Finding(
        "deadlock",
        SERIOUS,
        CERTAIN,
        what,
        remedy,
        evidence,
        (*steps, "stacks"),
        weight=1 << 40,
        alternative="one of the mutexes was overwritten; an owner that does not sleep would be evidence for this",
        parties=Parties(holds=", ".join(f"thread {wait.owner}" for wait in cycle[:3])),
    )


def _orphan(facts: ProcessFacts, mutex: int, waiting: list[Wait]) -> Finding:
    wait = waiting[0]
    threads = f"{len(waiting)} threads wait" if len(waiting) > 1 else f"thread {facts.named(wait.thread)} waits"
    return Finding(
        "orphaned-lock",
        SERIOUS,
        LIKELY,
        f"{threads} in {_place(facts, wait.thread)} for a mutex whose owner, thread {wait.owner}, has exited",
        "unlock it before a thread ends (or after fork), or use a robust mutex",
        (Evidence(mutex, f"mutex{_mutex_name(facts, mutex)}, owned by thread {wait.owner}, which is gone"),),
        (f"findstack {wait.thread.tid}", f"whatis {mutex:#x}"),
        weight=1 << 39,
        alternative="the mutex's memory was freed and used again: whatis says whether it is a block in use",
        parties=Parties(holds=f"thread {wait.owner}, which has exited"),
    )


def _place(facts: ProcessFacts, thread: Thread) -> str:
    """Return the function of the program that waits."""
    names = [facts.place(frame) for frame in walk(facts.target, thread, 32).frames]
    own = first_own(names)
    return names[own] if own is not None else (names[0] if names else "an unknown function")


def _mutex_name(facts: ProcessFacts, mutex: int) -> str:
    symbol = facts.target.symbol_at(mutex)
    if symbol is not None:
        return f" {symbol.name}"
    block = facts.heap.index.block_at(mutex)
    return f" in a block of {block.size} bytes at {block.address:#x}" if block is not None else ""


CHECK = Check(
    "deadlock",
    "a cycle of threads that wait for mutexes which the next one owns, or a mutex whose owner has exited",
    run,
    seconds=30,
)
