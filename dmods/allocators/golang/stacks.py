"""The stacks of goroutines as named roots: each frame by its function and its goroutine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.vocabulary import StackFrame
from dmods.runtimes.golang.goroutines import Goroutine, function_name, shown
from dmods.runtimes.golang.live_stacks import Live, LiveStacks
from dmods.runtimes.golang.unwind import GoFrame, shown_places, stack_of
from dmods.target import Target

_MOST_UNWOUND = 1000  # goroutines. The stacks of the others have one name each.
_MOST_FRAMES = 100


def stack_name(target: Optional[Target], part: Live) -> tuple[str, str]:
    """Return what a live stack is, and a name that means the same in other runs."""
    one = part.goroutine
    if one is None or target is None:
        return "a stack of Go's runtime", "a stack of Go's runtime"
    made = function_name(target, one.start)
    alike = f"a goroutine of {made}" if made else "a goroutine"
    return f"the stack of goroutine {one.number}" + (f" ({made})" if made else ""), f"the stack of {alike}"


def stack_frames(target: Target, stacks: LiveStacks) -> Iterator[StackFrame]:
    """Yield the frames of the goroutines."""
    for number, part in enumerate(stacks.parts):
        one = part.goroutine
        frames = stack_of(target, one, _MOST_FRAMES).frames if one is not None and number < _MOST_UNWOUND else []
        frames = [frame for frame in frames if part.start <= frame.sp < part.end]
        if one is None or not frames:
            yield StackFrame(part.start, part.end, *stack_name(target, part), None)
            continue
        yield from _frames(part, one, frames)


def _frames(part: Live, one: Goroutine, frames: list[GoFrame]) -> Iterator[StackFrame]:
    """Yield the frames. The innermost ones of the runtime, which wait for the program, belong to their caller."""
    starts = [part.start, *(frame.sp for frame in frames[1:]), part.end]
    first = next((place for place, (_frame, kept) in enumerate(shown_places(frames)) if kept), 0)
    starts[first] = part.start
    for place in range(first, len(frames)):
        frame, start, end = frames[place], starts[place], starts[place + 1]
        function = shown(frame.function.name) if frame.function is not None else f"{frame.pc:#x}"
        if start < end:
            alike = f"{function} in a goroutine"
            name = f"{function} in goroutine {one.number}, frame {place}"
            yield StackFrame(start, end, name, alike, len(frames) - 1 - place)
