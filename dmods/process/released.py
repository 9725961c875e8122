"""Find the pointer that a thread gave to free(), realloc() or operator delete, while it is in there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.process.calls import calls
from dmods.process.unwind import Frame
from dmods.target import Target

# The functions that take a block back, as symbols name them. Their first argument is the block.
_RELEASE = regex(
    r"^(?:__(?:libc|GI___libc)_)?(?:(?P<free>c?free|free_sized|free_aligned_sized)|(?P<realloc>realloc|reallocarray)"
    r"|(?P<delete>_Zd[al]Pv\w*))$"
)


def released(target: Target, frames: Sequence[Frame]) -> tuple[str, Optional[int]]:
    """Return "free", "realloc" or "delete", and the pointer that the frames passed to it.

    ("", None): no frame called such a function. The pointer is None where the code does not prove it. operator delete
    calls free(): the outermost of the calls has the program's pointer.
    """
    for call in (call for frame in reversed(frames) for call in calls(target, frame)):
        symbol = target.symbol_at(call.function) if call.function is not None else None
        found = _RELEASE.match(symbol.name) if symbol is not None and symbol.address == call.function else None
        if found is not None:
            return found.lastgroup or "free", call.argument
    return "", None
