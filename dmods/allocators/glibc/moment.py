"""Prove that a thread was stopped while malloc changed its own memory. What is half changed is not damaged."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.regex import regex
from dmods.target import Target, Thread

_INSTRUCTION = 16  # bytes, at most
#: A store of a register at a place, as gdb writes it: x86 ("mov %rax,0x8(%rsi)"), AArch64 ("str x0, [x1, #8]").
_STORES = (regex(r"mov\s+%\w+,(0x[0-9a-f]+)\(%(\w+)\)$"), regex(r"str\s+\w+, \[(\w+), #(\w+)\]$"))


def is_being_written(target: Target, address: int) -> bool:
    """Return whether the next instruction of a thread stores a register at the address.

    A program that grows is often stopped there: the page of a new top chunk is new, and the kernel makes it while the
    instruction waits (malloc.c, _int_malloc: `av->top = remainder` comes before the header of `remainder`).
    """
    image = target.image()
    for thread in target.threads():
        pc = thread.registers.get(target.arch.pc)
        code = image.read(pc, _INSTRUCTION) if pc is not None else b""
        found = _engine.disassemble(target.arch.name, code, pc) if code and pc is not None else None
        if found is not None and _stored_at(found[0], thread) == address:
            return True
    return False


def _stored_at(instruction: str, thread: Thread) -> Optional[int]:
    """Return the address that a store writes, or None for another instruction."""
    for number, store in enumerate(_STORES):
        found = store.match(instruction)
        if found is not None:
            offset, base = found[1 + number], found[2 - number]
            value = thread.registers.get(base)
            return value + int(offset, 0) if value is not None else None
    return None
