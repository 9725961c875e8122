"""Find the calls whose return address may have been overwritten, by the size of the caller's frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Optional

from dmods._engine import disassemble
from dmods.base.regex import regex
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.code_names import Function
from drgnext.kernel.stacks.frames import Frame

_DIRECT = regex(r"(?:data16 )?callq? +(0x[0-9a-f]+)$")
_LARGEST_FUNCTION = 1 << 16  # bytes
_NEVER_RETURNS = "__stack_chk_fail"  # called at the end of many functions


def lost_calls(
    memory: Memory,
    code: KernelCode,
    function: Callable[[int], Optional[Function]],
    frame: Frame,
    outer: Frame,
    *,
    callee: Optional[Function] = None,
) -> tuple[int, ...]:
    """Return the return addresses that may have been overwritten. Return () if nothing is certain.

    ``frame`` has the stack pointer as it was after the return. ``outer`` has the next return address on the stack. The
    call before that one names the function between them. The tables say for each call in this function how far its
    own return address is from the stack pointer. If that fits, it is the function that called. ``callee`` is the
    function that was called, if that is known. A call that names it comes before all others.
    """
    call = code.call_before(outer.pc)
    named = _DIRECT.match(call[1]) if call is not None else None
    between = function(int(named[1], 16)) if named is not None else None
    if between is None or named is None or between.start != int(named[1], 16):
        return ()
    fits, by_name = [], []
    for at, behind, text in _calls(memory, between.start):
        if function(at) != between:
            break
        rule, target = code.rule(at), _DIRECT.match(text)
        called = function(int(target[1], 16)) if target is not None else None
        if rule is None or rule.kind != orc.CALL or (called is not None and called.name == _NEVER_RETURNS):
            continue
        base = {"rsp": frame.sp, "rbp": frame.registers.get("rbp")}.get(rule.sp)
        if base is not None and base + rule.sp_offset == outer.sp:
            fits.append(behind)
            if callee is not None and called == callee:
                by_name.append(behind)
    return tuple(by_name or fits)


def _calls(memory: Memory, start: int) -> Iterator[tuple[int, int, str]]:
    """Yield (its address, the return address, its text) of each call from a function on, up to what is no code."""
    at, end = start, start + _LARGEST_FUNCTION
    while at < end:
        decoded = disassemble("x86_64", memory.read(at, 16), at)
        if decoded is None:
            return
        text, length = decoded
        if text.startswith(("call", "data16 call")):
            yield at, at + length, text
        at += length
