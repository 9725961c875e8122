"""The frames of threads as roots: local variables, the registers of outer frames, and the rest of the stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods._engine import demangle
from dmods.base.clones import function_of_clone
from dmods.base.named_tuple import NamedTuple
from dmods.graph.roots.ranked_root import RANK_FRAME, RANK_NO_FRAME, Root
from dmods.graph.types.typegraph import opened
from dmods.heap.heap import ProcessHeap
from dmods.process.addresses import module_at
from dmods.process.saved_registers import saved_registers
from dmods.process.threads import LiveStack, LiveStackFinder
from dmods.process.unwind import Frame
from dmods.target import Target, Thread

_CONST = " const"
_MOST_LOCAL = 8 << 20  # bytes of a local variable: a stack's usual limit

Area = tuple[int, int, Root, int]  # start, end, root, rank


class _Local(NamedTuple):
    """A local variable, and the inlined function that has it; None: the frame's own function has it."""

    name: str
    inlined: Optional[str]


class ThreadNames:
    """The names of the threads of one process."""

    def __init__(self, target: Target) -> None:
        self._threads = {thread.tid: thread for thread in target.threads()}

    def name(self, tid: Optional[int]) -> str:
        """Return the name of a thread with its tid."""
        thread = self._threads.get(tid) if tid is not None else None
        return f"thread {tid} ({thread.name})" if thread is not None and thread.name else f"thread {tid}"

    def anywhere(self, tid: Optional[int]) -> str:
        """Return the name of a thread without its tid. Threads of one name are one."""
        thread = self._threads.get(tid) if tid is not None else None
        if tid is None:
            return "a thread that has exited"
        return f"thread {thread.name}" if thread is not None and thread.name else "a thread"


class FrameRoots:
    """The frames of all threads as roots.

    ``registers`` are the roots and ranks of registers that a thread still has, by (tid, register), where a frame or a
    variable is known for them. They are complete after `areas`.
    """

    def __init__(self, heap: ProcessHeap) -> None:
        self.target = heap.target
        self.threads = ThreadNames(heap.target)
        self.registers: dict[tuple[int, str], tuple[Root, int]] = {}
        self._word = heap.words.size
        self._in_memory: dict[int, list[tuple[int, _Local, int, int]]] = {}
        self._in_registers: dict[int, dict[tuple[int, str], _Local]] = {}
        information = opened(self.target)
        if information is not None:
            information.add_frames(heap)
            for tid, place, name, address, size, inlined in information.locals:
                if 0 < size <= _MOST_LOCAL:
                    self._in_memory.setdefault(tid, []).append((place, _Local(name, inlined), address, size))
            for tid, place, name, register, inlined in information.in_registers:
                self._in_registers.setdefault(tid, {}).setdefault((place, register), _Local(name, inlined))

    def areas(self) -> Iterator[Area]:
        """Yield the memory of frames, and the parts of stacks where no frame is known. Of two, the first is meant."""
        finder = LiveStackFinder(self.target)
        for thread in self.target.threads():
            if finder.out_of_budget:
                return
            frames, stacks = finder.frames_and_stacks(thread)
            for place, variable, start, size in self._in_memory.get(thread.tid, ()):
                if place < len(frames):
                    yield start, start + size, self._local(thread, frames, place, variable, start), _rank(frames, place)
            yield from self._registers(thread, frames)
            for live in stacks:
                yield from self._frames(thread, frames, live)

    def _frames(self, thread: Thread, frames: Sequence[Frame], live: LiveStack) -> Iterator[Area]:
        name, anywhere = self.threads.name(thread.tid), self.threads.anywhere(thread.tid)
        inside = sorted((frame.sp, place) for place, frame in enumerate(frames) if live.start <= frame.sp < live.end)
        if not inside:
            root = Root(f"the stack of {name}", "stack", live.start, tid=thread.tid, alike=f"a stack of {anywhere}")
            yield live.start, live.end, root, RANK_NO_FRAME
            return
        starts = [live.start, *(sp for sp, _place in inside[1:]), live.end]
        for (start, end), (_sp, place) in zip(zip(starts, starts[1:]), inside):
            function, always = self._function(frames[place])
            text, alike = f"{function} in {name}, frame {place}", f"{always} in {anywhere}"
            root = Root(text, "frame", start, tid=thread.tid, alike=alike, frame=place)
            yield start, end, root, _rank(frames, place)

    def _registers(self, thread: Thread, frames: Sequence[Frame]) -> Iterator[Area]:
        """Yield the words where functions saved registers of callers. They belong to the frames that use these."""
        variables = self._in_registers.get(thread.tid, {})
        for register, place, address in saved_registers(frames):
            variable = variables.get((place, register))
            if variable is not None:
                root = self._local(thread, frames, place, variable, None)
            else:
                root = self._register(thread, frames, place, register)
            if address is None:
                self.registers[thread.tid, register] = root, _rank(frames, place)
            else:
                yield address, address + self._word, root, _rank(frames, place)
        for (place, register), variable in variables.items():
            if place == 0 and frames:
                root = self._local(thread, frames, place, variable, None)
                self.registers.setdefault((thread.tid, register), (root, _rank(frames, place)))

    def _local(
        self, thread: Thread, frames: Sequence[Frame], place: int, local: _Local, address: Optional[int]
    ) -> Root:
        function, always = self._function(frames[place])
        if local.inlined is not None:
            function = always = _without_parameters(local.inlined)
        text = f"{function} in {self.threads.name(thread.tid)}, frame {place}, local '{local.name}'"
        alike = f"{always} in {self.threads.anywhere(thread.tid)}, local '{local.name}'"
        return Root(text, "frame", address, None, thread.tid, alike, local.name, place)

    def _register(self, thread: Thread, frames: Sequence[Frame], place: int, register: str) -> Root:
        _function, always = self._function(frames[place])
        text = f"register {register} of frame {place} ({always}) in {self.threads.name(thread.tid)}"
        alike = f"register {register} of {always} in {self.threads.anywhere(thread.tid)}"
        return Root(text, "register", tid=thread.tid, alike=alike, frame=place)

    def _function(self, frame: Frame) -> tuple[str, str]:
        """Return the function's name, and a name that means the same in other runs."""
        symbol = self.target.symbol_at(frame.code_address)
        if symbol is not None:
            name = _without_parameters(function_of_clone(demangle(symbol.name)))
            return name, name
        module = module_at(self.target, frame.code_address)
        offset = f"{module.name}`{frame.code_address - module.bias:#x}" if module is not None else "unknown code"
        return f"{frame.pc:#x}", offset


def _without_parameters(name: str) -> str:
    """Return a function's name without its parameters. A lambda has those of the function around it: they stay."""
    name = name[: -len(_CONST)] if name.endswith(_CONST) else name
    if not name.endswith(")") or name.endswith("operator()"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at] or name
    return name


def _rank(frames: Sequence[Frame], place: int) -> int:
    return RANK_FRAME + len(frames) - 1 - place
