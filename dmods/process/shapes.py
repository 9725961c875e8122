"""The structured values that commands share in JSON. docs/report.schema.json describes the same shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dmods.report import Address, Column

#: What a record says of its stack: the frames, innermost first, and whether there were more. JSON alone has them.
STACK_COLUMNS = (Column("stack", hidden=True), Column("truncated", hidden=True))

Frame = dict[str, Any]


def frame_value(
    pc: int,
    name: str,
    module: Optional[str],
    exact: bool,
    *,
    sp: Optional[int] = None,
    found: str = "",
    source: Optional[Mapping[str, Any]] = None,
    inlined: Sequence[Mapping[str, Any]] = (),
    note: str = "",
    registers: Optional[Mapping[str, int]] = None,
) -> Frame:
    """Return one frame of a stack as JSON shows it.

    ``name`` is ``symbol+offset`` as text shows it. ``exact`` is false for a return address: the call is the instruction
    before it. ``source`` is the line that was running (see `source_value`). ``inlined`` are the functions that were
    inlined there, innermost first: "name", "source" (the line in it) and "called_from". ``found`` says how the unwinder
    found the frame. What is not known is left out.
    """
    value: Frame = {"pc": Address(pc), "name": name, "module": module, "exact": exact}
    if sp is not None:
        value["sp"] = Address(sp)
    if found:
        value["found"] = found
    if source:
        value["source"] = dict(source)
    if inlined:
        value["inlined"] = [dict(each) for each in inlined]
    if note:
        value["note"] = note
    if registers is not None:
        value["registers"] = {register: Address(content) for register, content in registers.items()}
    return value


def gap_value(pc: int, text: str) -> Frame:
    """Return a row of a stack in place of frames that are missing. ``pc`` is where unwinding stopped.

    It has the keys that every frame has, so that a program that reads frames need not know of it.
    """
    return {"pc": None, "name": text, "module": None, "exact": False, "gap": True, "address": Address(pc)}


def source_value(path: Optional[str], line: Optional[int]) -> Optional[dict[str, Any]]:
    """Return a line of source as JSON shows it; None where the file is not known. ``line`` may be unknown."""
    return {"file": path, "line": line} if path else None


def holder_value(
    address: Optional[int], state: str, kind: str, *, offset: int = 0, where: str = "", block: Optional[int] = None
) -> dict[str, Any]:
    """Return something that points to a block, as JSON shows it.

    ``address`` is where the pointer lies; None for a register. ``state`` is "root", "live", "leaked", "free" or "dead".
    ``kind`` says what holds the pointer: "register", "stack", "variable", "block" and so on. ``offset`` is how far into
    the block it points. ``where`` is the same in words. ``block`` is the start of the block that holds the pointer.
    """
    value: dict[str, Any] = {
        "address": None if address is None else Address(address),
        "state": state,
        "type": kind,
        "offset": Address(offset),
    }
    if where:
        value["where"] = where
    if block is not None:
        value["block"] = Address(block)
    return value
