"""Say why no heap was found: nothing was allocated, the dump lacks it, or dmods does not know the allocator."""

from __future__ import annotations

from dmods.allocators.unwalked import unwalked_malloc
from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.base.regex import regex
from dmods.heap.foreign import foreign_malloc
from dmods.heap.survey import survey
from dmods.modules.find import writable_segments
from dmods.target import Target

_LIBC = regex(r"(^|/)libc[-.](\d[^/]*\.)?so")


@cached
def no_heap(target: Target) -> str:
    """Return the reason in words. The target has no heap that dmods walks."""
    other, foreign = unwalked_malloc(target), foreign_malloc(target)
    if other is not None:
        reason = f"malloc of this process is {other}, which dmods does not walk"
    elif foreign is not None:
        reason = f"malloc of this process is that of {foreign.name}, which dmods does not know"
    elif not target.modules():
        reason = "no module of the process was found, or the dump lacks its data"
    else:
        reason = _without_allocator(target)
    return f"no heap: {reason}"


def _without_allocator(target: Target) -> str:
    libc = next((module for module in target.modules() if _LIBC.search(module.path)), None)
    parts = [part for part in libc.ranges if "w" in part.flags] if libc is not None else []
    if libc is not None and not any(part.dumped for part in parts):
        return f"the data of {libc.name}, with malloc's arenas, is not in the dump"
    lost = Ranges(target.missing)
    if any(lost.within(*part) for part in writable_segments(target)):
        return "data of the program or its libraries, where an allocator would be, is not in the dump"
    if libc is None and not survey(target).heaps:
        return "the process has no libc of its own, and no allocator that dmods knows was found in its data"
    name = libc.name if libc is not None else "the program"
    return f"malloc of {name} has no arena, as before its first call, and no other allocator that dmods knows was found"
