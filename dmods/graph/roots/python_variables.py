"""The variables of CPython as roots: those of modules, the attributes of classes, the locals of frames.

The words of a module's or class's variables lie in blocks, so the engine takes them apart: see
engine/core/src/graph/parts.rs. Frames lie in memory of their own since 3.11; until 3.10 they are blocks, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.named_tuple import NamedTuple
from dmods.graph.roots.ranked_root import RANK_FRAME, Root
from dmods.graph.roots.thread_frames import ThreadNames
from dmods.graph.types.runtime_names import python_names
from dmods.heap.block import LIVE
from dmods.heap.heap import ProcessHeap
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.frame_locals import frame_locals
from dmods.runtimes.python.runtime import Python, PythonFrame, PythonThread

BODY, VARIABLE = 0, 1  # the ranks of parts (engine/core/src/graph/parts.rs); those of frames are as of any stack
_MOST_FRAMES = 100_000  # of all threads
_KIND = "python"


class Part(NamedTuple):
    """Memory of a root: [start, end). ``rank`` is BODY, VARIABLE, or that of a frame."""

    start: int
    end: int
    root: Root
    rank: int


class PythonRoots:
    """The variables of a process. ``parts`` lie in blocks, ``frames`` elsewhere. ``selves`` are modules and classes."""

    def __init__(self, heap: ProcessHeap) -> None:
        self._heap = heap
        self._threads = ThreadNames(heap.target)
        self.names = python_names(heap.target)
        self.parts: list[Part] = []
        self.frames: list[Part] = []
        self.selves: list[tuple[int, Root]] = []
        python = find_python(heap.target).python
        if self.names is None or python is None:
            return
        self._add_holders()
        for place in self._in_frames(python):
            inside = heap.index.engine.find(place.start) is not None
            (self.parts if inside else self.frames).append(place)
        self.parts = list(_disjoint(self.parts))

    def _add_holders(self) -> None:
        # A class that leaked, or that only a cycle holds, is no root.
        garbage = set(self._heap.marks.unfreed)
        for address, is_class, name, body, variables in self.names.holders() if self.names is not None else ():
            block = self._heap.block_at(address)
            if block is None or block.state != LIVE or address in garbage:
                continue
            own = Root(f"{'class' if is_class else 'module'} {name}", _KIND, address)
            self.selves.append((address, own))
            self.parts.append(Part(*body, own, BODY))
            for variable, start, value in variables:
                self.parts.append(Part(start, value + 8, Root(f"{name}.{variable}", _KIND, value), VARIABLE))

    def _in_frames(self, python: Python) -> Iterator[Part]:
        left = _MOST_FRAMES
        for thread in python.threads:
            frames = python.stack(thread, max(left, 1)).frames
            left -= len(frames)
            for place, frame in enumerate(frames):
                yield from self._of_frame(python, thread, frame, place, RANK_FRAME + len(frames) - 1 - place)
            if left <= 0:
                return

    def _of_frame(
        self, python: Python, thread: PythonThread, frame: PythonFrame, place: int, rank: int
    ) -> Iterator[Part]:
        found = frame_locals(python, frame.address, frame.code.address)
        if found is None:
            return
        tid = thread.thread.tid if thread.thread is not None else None
        where = f"{self._threads.name(tid)}" if tid is not None else "a thread that has exited"
        text, alike = f"{frame.where} in {where}, frame {place}", f"{frame.code.file} {frame.code.name} in "
        alike += self._threads.anywhere(tid)
        at = found.start
        for name in found.names:
            local = f", local '{name}'"
            yield Part(
                at, at + 8, Root(text + local, "frame", at, None, tid, alike + local, name, place, frame.where), rank
            )
            at += 8
        if at < found.end:
            yield Part(at, found.end, Root(text, "frame", at, None, tid, alike, None, place, frame.where), rank)


def _disjoint(parts: list[Part]) -> Iterator[Part]:
    """Yield the parts by address, without those that overlap one before: a damaged dump may have such."""
    end = 0
    for part in sorted(parts, key=lambda part: (part.start, part.rank)):
        if part.start >= end and part.end > part.start:
            end = part.end
            yield part
