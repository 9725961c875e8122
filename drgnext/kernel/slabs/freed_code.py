"""Frames of records whose code is gone: another module has been loaded at that place since.

The kernel frees a module's initialization code when that has run, and all of a module when it is unloaded. A record
keeps the bare addresses. In the code of a later module they are not return addresses, but for chance: no call is before
them. In such a stack no frame in that module can have its name, because both modules cannot have been there at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmods.records.callers import Place
from drgnext.kernel.stacks.code import KernelCode


class FreedFrame(tuple[int, bool]):
    """A frame in code that was freed. It differs from a frame at the same address in the code that is there now."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is such a frame at the same address."""
        return isinstance(other, FreedFrame) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        """Return whether the two differ. A tuple has a comparison of its own for this."""
        return not self == other

    def __hash__(self) -> int:
        """Return a hash that fits the comparison."""
        return hash((FreedFrame, tuple(self)))


def mark_freed(code: KernelCode, addresses: Sequence[int]) -> tuple[Place, ...]:
    """Return the return addresses of a recorded stack as frames, with those in freed code marked."""
    texts = [code.text_at(address - 1) for address in addresses]
    replaced = {
        text.start
        for address, text in zip(addresses, texts)
        if text is not None and text.module and not code.may_return_to(address)
    }
    return tuple(
        FreedFrame((address, False)) if text is not None and text.start in replaced else (address, False)
        for address, text in zip(addresses, texts)
    )
