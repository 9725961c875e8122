"""Find the call of malloc's family that a thread is in, and the pointer that it gave to free(), realloc() or delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.regex import regex
from dmods.process.calls import Call, calls
from dmods.process.unwind import Frame
from dmods.target import Target

# The functions that take a block back, as symbols name them. Their first argument is the block.
_RELEASE = regex(
    r"^(?:__(?:libc|GI___libc)_)?(?:(?P<free>c?free|free_sized|free_aligned_sized)|(?P<realloc>realloc|reallocarray)"
    r"|(?P<delete>_Zd[al]Pv\w*))$"
)
_ALLOCATE = regex(r"^(?:__libc_)?(?:[mc]alloc|memalign|aligned_alloc|posix_memalign|p?valloc)$|^_Zn[wa]\w+$")


def released(target: Target, frames: Sequence[Frame], last: int) -> tuple[str, Optional[int]]:
    """Return "free", "realloc" or "delete", and the pointer that the frames up to number ``last`` passed to it.

    ("", None): no frame called such a function. The pointer is None where the code does not prove it. operator delete
    calls free(): the outermost of the calls has the program's pointer.
    """
    for call in (call for number in reversed(range(last + 1)) for call in calls(target, frames, number)):
        found = _RELEASE.match(_name(target, call))
        if found is not None:
            return found.lastgroup or "free", call.argument
    return "", None


def is_in_malloc(target: Target, frames: Sequence[Frame]) -> bool:
    """Return whether one of the frames called a function that allocates or frees, and has not got its answer."""
    names = (_name(target, call) for number in range(len(frames)) for call in calls(target, frames, number))
    return any(_RELEASE.match(name) or _ALLOCATE.match(name) for name in names)


def _name(target: Target, call: Call) -> str:
    """Return the name of the called function; "" where it is not known."""
    symbol = target.symbol_at(call.function) if call.function is not None else None
    return symbol.name if symbol is not None and symbol.address == call.function else ""
