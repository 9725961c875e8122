"""The stacks of goroutines as named roots: each frame by its function and its goroutine."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.golang.heap import GoBlocks, stack_name
from dmods.allocators.protocol import Heap
from dmods.runtimes.golang.goroutines import Goroutine, shown
from dmods.runtimes.golang.live_stacks import Live
from dmods.runtimes.golang.unwind import GoFrame, shown_places, stack_of
from dmods.target import Target

_MOST_UNWOUND = 1000  # goroutines. The stacks of the others have one name each.
_MOST_FRAMES = 100


def goroutine_frames(target: Target, heap: Heap) -> Iterator[tuple[int, int, str, str, int]]:
    """Yield the frames of the goroutines of a heap: (start, end, name, a name that means the same in other runs, rank).

    The rank is 0 for the outermost frame, and -1 for a stack whose frames are not known.
    """
    if not isinstance(heap, GoBlocks):
        return
    for number, part in enumerate(heap.stacks.parts):
        one = part.goroutine
        frames = stack_of(target, one, _MOST_FRAMES).frames if one is not None and number < _MOST_UNWOUND else []
        frames = [frame for frame in frames if part.start <= frame.sp < part.end]
        if one is None or not frames:
            yield part.start, part.end, *stack_name(target, part), -1
            continue
        yield from _frames(part, one, frames)


def _frames(part: Live, one: Goroutine, frames: list[GoFrame]) -> Iterator[tuple[int, int, str, str, int]]:
    """Yield the frames. The innermost ones of the runtime, which wait for the program, belong to their caller."""
    starts = [part.start, *(frame.sp for frame in frames[1:]), part.end]
    first = next((place for place, (_frame, kept) in enumerate(shown_places(frames)) if kept), 0)
    starts[first] = part.start
    for place in range(first, len(frames)):
        frame, start, end = frames[place], starts[place], starts[place + 1]
        function = shown(frame.function.name) if frame.function is not None else f"{frame.pc:#x}"
        if start < end:
            alike = f"{function} in a goroutine"
            yield start, end, f"{function} in goroutine {one.number}, frame {place}", alike, len(frames) - 1 - place
