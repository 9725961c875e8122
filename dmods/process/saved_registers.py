"""Registers of callers: which frame the value of each belongs to, and where a function saved it.

A function that uses a register such as rbx saves it first, because its caller may keep a value there. The saved word
lies in the stack of the function, but the value belongs to a frame further out: the first one that saved this register
itself, and so uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.process.unwind import Frame


class SavedRegister(NamedTuple):
    """A register of frame number ``frame``. ``address`` is where it was saved, None while the thread still has it."""

    register: str
    frame: int
    address: Optional[int]


def saved_registers(frames: Sequence[Frame]) -> list[SavedRegister]:
    """Return the registers of outer frames that are saved on the stack, or that the thread still has.

    A value is left out if no frame is known to use it, or if a frame between was only guessed.
    """
    found = []
    for inner, frame in enumerate(frames):
        for register, address in frame.saved:
            owner = _owner(frames, register, inner + 1)
            if owner is not None:
                found.append(SavedRegister(register, owner, address))
    preserved = {register for frame in frames for register, _address in frame.saved}
    for register in sorted(preserved):
        owner = _owner(frames, register, 0)
        if owner:  # the innermost frame's are the thread's own
            found.append(SavedRegister(register, owner, None))
    return found


def _owner(frames: Sequence[Frame], register: str, first: int) -> Optional[int]:
    """Return the number of the first frame from `first` on that saved the register itself."""
    for place, frame in enumerate(frames[first:], first):
        # Unwinding through a guess, and through Go's frames, does not tell the registers.
        if register not in frame.registers or (place > first and frame.found_by not in ("cfi", "signal")):
            return None
        # What the kernel saved when a signal came is not in use by the handler's return.
        if not frame.trampoline and any(register == saved for saved, _address in frame.saved):
            return place
    return None
