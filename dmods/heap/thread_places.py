"""Find the memory of threads: stacks with their frames, dead stacks, guard pages, struct pthread, TLS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Optional

from dmods.allocators.vocabulary import Place
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.heap import ProcessHeap
from dmods.process.mappings import mapping_at
from dmods.process.stack_bounds import pthread_reach
from dmods.process.threads import LiveStack, ThreadStack, live_stacks, stacks_of
from dmods.process.tls import dtv_blocks
from dmods.process.unwind import COMPLETE_ENDS, Frame, describe, walk
from dmods.target import Thread

_MOST_TLS = 1 << 20  # bytes of static TLS beside a thread pointer, at most
_MOST_UNWOUND = 1000  # threads


class _Running(NamedTuple):
    """A thread with its frames and the live parts of its stacks."""

    thread: Thread
    frames: list[Frame]
    end: str
    live: list[LiveStack]


class ThreadPlaces:
    """Finds what memory of threads lies at the addresses of one process. Stacks are unwound when first needed."""

    def __init__(self, heap: ProcessHeap) -> None:
        self.heap = heap
        self.target = heap.target
        self._unwound: dict[tuple[int, Optional[int]], _Running] = {}

    @cached_property
    def _stacks(self) -> list[ThreadStack]:
        return stacks_of(self.target, list(self.heap.owned))

    @cached_property
    def _dead_ranges(self) -> Ranges:
        return Ranges(self.heap.roots.dead)

    def _running(self, address: int) -> Iterator[_Running]:
        """Yield the threads one of whose stacks may hold the address, with their frames.

        Of many threads, only those are unwound whose own stack or stack pointer is near the address.
        """
        threads = self.target.threads()
        if len(threads) > _MOST_UNWOUND:
            mapping = mapping_at(self.target, address)
            own = {stack.tid for stack in self._stacks if stack.start <= address < stack.end}
            sp = self.target.arch.sp
            near = (t for t in threads if t.tid in own or (mapping is not None and t.registers.get(sp, 0) in mapping))
            threads = list(islice(near, _MOST_UNWOUND))
        for thread in threads:
            key = (thread.tid, thread.registers.get(self.target.arch.sp))
            known = self._unwound.get(key)
            if known is None:
                frames, end = walk(self.target, thread)
                known = self._unwound[key] = _Running(thread, frames, end, live_stacks(self.target, thread))
            yield known

    def named(self, tid: Optional[int]) -> str:
        """Return "thread 123 (worker)"; for None, that the thread has exited."""
        if tid is None:
            return "a thread that has exited"
        name = next((thread.name for thread in self.target.threads() if thread.tid == tid), None)
        return f"thread {tid} ({name})" if name else f"thread {tid}"

    def at(self, address: int) -> Iterator[Place]:
        """Yield the places of threads at the address, at most one."""
        for stack in self._stacks:
            record = self._thread_memory(stack, address)
            if record is not None:
                yield record
                return
        for running in self._running(address):
            for live in running.live:
                if live.start <= address < live.end and address not in self._dead_ranges:
                    yield self._frame(running, live, address)
                    return
        for stack in self._stacks:
            # A stack that the program made is only a part of its mapping.
            if stack.start <= address < stack.end and (stack.known or address in self._dead_ranges):
                yield self._guard_page(stack, address) or self._dead(stack, address)
                return

    def _frame(self, running: _Running, live: LiveStack, address: int) -> Place:
        name = self.named(running.thread.tid)
        which = "alternate signal stack" if live.note == "alternate signal stack" else "stack"
        inside = [n for n, frame in enumerate(running.frames) if live.start <= frame.sp <= address < live.end]
        last = len(running.frames) - 1
        if not inside:
            where = "below its frames, in the red zone" if running.frames else "whose frames are unknown"
            return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}")
        number = inside[-1]
        function = describe(self.target, running.frames[number])
        if number == last and running.end not in COMPLETE_ENDS:
            where = f"at or above frame {number}, {function}, beyond which the stack could not be unwound"
        elif number == last:
            where = f"in or above the outermost frame, {number}, {function}"
        else:
            where = f"in frame {number}, {function}"
        return Place("stack", f"on the {which} of {name}, {where}", f"{which} of {name}, {where}")

    def _guard_page(self, stack: ThreadStack, address: int) -> Optional[Place]:
        """Return the guard below a stack. It is not writable: gdb's gcore writes it as readable zeros."""
        mapping = mapping_at(self.target, address)
        if mapping is None or "w" in mapping.flags:
            return None
        name = self.named(stack.tid)
        text = f"in the guard page below the stack of {name} ({mapping.start:#x}-{mapping.end:#x})"
        return Place("guard page", text, f"guard page of the stack of {name}")

    def _dead(self, stack: ThreadStack, address: int) -> Place:
        name = self.named(stack.tid)
        if stack.tid is None:
            text = f"on the stack of {name} ({stack.start:#x}-{stack.end:#x}), kept for reuse: its content is dead"
            return Place("dead stack", text, "dead stack of a thread that has exited")
        below = f" by {stack.sp - address:#x}" if stack.sp is not None and stack.sp > address else ""
        text = f"on the stack of {name}, below its stack pointer{below}: dead"
        return Place("dead stack", text, f"dead stack of {name}, below sp")

    def _thread_memory(self, stack: ThreadStack, address: int) -> Optional[Place]:
        """Return the struct pthread or the static TLS that holds the address. Both lie around the thread pointer."""
        if stack.tcb is None:
            return None
        name = self.named(stack.tid)
        mapping = mapping_at(self.target, stack.tcb)
        reach = pthread_reach(self.target, stack.tcb)
        limit = mapping.end if mapping is not None else stack.tcb + reach
        blocks = dtv_blocks(self.heap.words, self.target.arch, stack.tcb)
        start = min((at for at in blocks if stack.tcb - _MOST_TLS < at < stack.tcb), default=stack.tcb)
        behind = not self.target.arch.tcb_is_pthread  # TLS variant I: struct pthread, the thread pointer, TLS
        record = (stack.tcb - reach, stack.tcb) if behind else (stack.tcb, stack.tcb + reach)
        tls = (stack.tcb, stack.tcb + _MOST_TLS) if behind else (start, stack.tcb)
        if mapping is None or not mapping.start <= address < limit:
            return None
        if record[0] <= address < record[1]:
            text = f"in the struct pthread of {name} ({stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("pthread", text, f"struct pthread of {name}")
        if tls[0] <= address < tls[1]:
            text = f"in thread-local memory of {name} (thread pointer {stack.tcb:#x}{address - stack.tcb:+x})"
            return Place("thread-local", text, f"thread-local memory of {name}")
        return None

    @cached_property
    def tls_blocks(self) -> dict[int, Optional[int]]:
        """Return where the TLS blocks of modules begin, and the thread that each belongs to."""
        words, arch = self.heap.words, self.target.arch
        return {
            pointer: stack.tid
            for stack in self._stacks
            if stack.tcb is not None
            for pointer in dtv_blocks(words, arch, stack.tcb)
        }
