"""Frames that repeat, as a stack overflow leaves them: found by their pcs and by the stack that each takes."""

from __future__ import annotations

from drgnext.kernel.crash.remarks import Recursion, recursions
from drgnext.kernel.stacks.frames import Frame


def stack(*parts: tuple[int, int]) -> list[Frame]:
    """Return frames from pairs of a pc and the bytes of its frame."""
    frames, sp = [], 0x1000
    for pc, size in parts:
        frames.append(Frame(pc, sp, False, "unwind", {}))
        sp += size
    return frames


def test_one_function_that_calls_itself() -> None:
    frames = stack((1, 16), (2, 32), *[(7, 504)] * 29, (8, 48))
    # The last of the 29 has the same size, since the next frame begins where it ends.
    assert recursions(frames) == [Recursion(2, 1, 29, 504)]


def test_functions_that_call_each_other() -> None:
    frames = stack((1, 16), *[(5, 64), (6, 32), (7, 96)] * 10, (9, 8))
    assert recursions(frames) == [Recursion(1, 3, 10, 192)]


def test_a_few_calls_are_no_recursion() -> None:
    assert recursions(stack((1, 16), *[(7, 504)] * 3, (8, 48))) == []
    assert recursions(stack(*[(n, 16) for n in range(40)])) == []
    assert recursions([]) == []


def test_frames_of_different_sizes_do_not_repeat() -> None:
    assert recursions(stack(*[(7, 16 * (n + 1)) for n in range(20)])) == []


def test_two_runs() -> None:
    frames = stack(*[(7, 64)] * 6, (1, 8), *[(9, 128)] * 5, (2, 8))
    assert [(run.first, run.times, run.size) for run in recursions(frames)] == [(0, 6, 64), (7, 5, 128)]
