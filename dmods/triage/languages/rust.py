"""Rust: panics of programs that abort on a panic (panic=abort), and allocations that failed.

The message is formatted into a buffer on the stack before it is written (library/std/src/panicking.rs, default_hook).
The buffer is dead memory by the time of the dump, and is read where it was not overwritten.
"""

from __future__ import annotations

import re
import struct
from typing import Optional

from dmods.base.regex import regex
from dmods.finding import CERTAIN, FATAL, Finding
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import has

_PANIC = r"(_*rustc::)?(rust_panic|rust_begin_unwind)|core::panicking::|std::panicking::|std::rt::panic"
_BELOW = 1 << 16  # bytes below sp that are searched
_SAID = regex(rb"panicked at ([^\n\0]{1,400}?):?\n([^\0]{1,2000}?)(?:\nnote: |\n\0|\n$|\0)", re.DOTALL)
_OLD = regex(rb"panicked at '([^\0]{1,2000}?)', ([^\n\0]{1,400}:\d+:\d+)", re.DOTALL)  # before 1.73
_REMEDY = "handle the case, or keep it from happening"


def explain(facts: ProcessFacts) -> Optional[Finding]:
    """Return the panic that ended the process, or None."""
    names = facts.names
    if has(names, r"alloc::alloc::handle_alloc_error|(_*rustc::)?__?rust_alloc_error|std::alloc::rust_oom"):
        what = f"an allocation of {facts.own_place()} failed" + (f": {facts.exhausted}" if facts.exhausted else "")
        return _fatal("out-of-memory", what, "find what grows: `owners` and `suspects` name what holds the memory")
    if not has(names, _PANIC) or not has(names, r".*panic"):
        return None
    kind, why = "rust-panic", ""
    if has(names, r"core::panicking::panic_bounds_check|core::slice::index|core::str::slice_error"):
        kind, why = "out-of-bounds", "an index is out of bounds"
    elif has(names, r"core::option::(unwrap|expect)_failed"):
        why = "unwrap() or expect() of a None"
    elif has(names, r"core::result::unwrap_failed"):
        why = "unwrap() or expect() of an Err"
    message, place = _message(facts)
    said = facts.content(message) or why
    where = f" at {place}" if place else ""
    return _fatal(kind, f"{facts.own_place()} panicked{where}" + (f": {said}" if said else ""), _REMEDY)


def _message(facts: ProcessFacts) -> tuple[Optional[str], Optional[str]]:
    """Return the message and the place of the panic, as far as memory still has them."""
    frames = facts.frames
    if not frames:
        return None, None
    low, high = frames[0].sp - _BELOW, min(frames[-1].sp, frames[0].sp + _BELOW)
    data = facts.target.image().read(max(low, facts.stack_start), high - max(low, facts.stack_start))
    for found in _SAID.finditer(data):
        return _clean(found[2]), _clean(found[1])
    for found in _OLD.finditer(data):
        return _clean(found[1]), _clean(found[2])
    return None, _location(facts)


def _location(facts: ProcessFacts) -> Optional[str]:
    """Return the place from a `core::panic::Location` that a frame of the panic points to.

    It is a pointer to the file's name, its length, then line and column (32 bits each).
    """
    words, image = facts.heap.words, facts.target.image()
    if words.size != 8:
        return None
    for frame, following in zip(facts.frames[:24], facts.frames[1:]):
        size = min(max(0, following.sp - frame.sp), 4096)
        for value in (*frame.registers.values(), *(words.many(frame.sp, size // 8) or ())):
            data = image.read(value, 24) if value > 0x10000 and value % 8 == 0 else b""
            if len(data) < 24:
                continue
            pointer, length, line, column = struct.unpack("<QQII", data)
            name = (
                image.read(pointer, length) if 3 < length < 512 and 0 < line < 1 << 20 and 0 < column < 1 << 12 else b""
            )
            if name.endswith(b".rs") and not name.startswith((b"/rustc/", b"library/")):
                return f"{_clean(name)}:{line}:{column}"
    return None


def _clean(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def _fatal(kind: str, what: str, remedy: str) -> Finding:
    or_ = "the data came from outside, and nobody tested it: look at the arguments of the outer frames"
    return Finding(kind, FATAL, CERTAIN, what, remedy, next=("findstack",), alternative=or_)
