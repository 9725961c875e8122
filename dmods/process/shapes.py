"""The structured values that commands share in JSON. docs/report.schema.json describes the same shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dmods.report import Address, Column, Schema

_KNOWN = "it is known"
SOURCE_LINE = Schema("source", "a line of source", (Column("file"), Column("line", "count", null="it is not known")))
INLINED = Schema(
    "inlined",
    "a function that was inlined in the code of a frame",
    (
        Column("name", null="it is not known"),
        Column("source", "object", null="it is not known", about="the line in it", fields=SOURCE_LINE),
        Column("called_from", "object", null="it is not known", about="the line that called it", fields=SOURCE_LINE),
    ),
)
PYTHON_FRAME = Schema(
    "python",
    "a frame of CPython, innermost first",
    (
        Column("frame", "address"),
        Column("code", "address"),
        Column("file"),
        Column("line", "count", null="it is not known"),
        Column("function"),
        Column("qualified", about="the function with its class"),
    ),
)
FRAME = Schema(
    "frame",
    "a frame of a stack, innermost first; or a gap, in place of frames that are missing",
    (
        Column("pc", "address", null="it is a gap"),
        Column("name", about="symbol+offset, or why frames are missing"),
        Column("module", null="the address is in no module that is known"),
        Column("exact", "flag", about="false for a return address: the call is the instruction before it"),
        Column("gap", "flag", when="for a gap", about="true"),
        Column("address", "address", when="for a gap", about="where unwinding stopped"),
        Column("sp", "address", when=_KNOWN),
        Column("found", when=_KNOWN, about="how the unwinder found the frame"),
        Column("source", "object", when=_KNOWN, about="the line that was running", fields=SOURCE_LINE),
        Column("inlined", "objects", when="there are some", about="innermost first", fields=INLINED),
        Column("python", "objects", when="it runs some", about="what the interpreter runs", fields=PYTHON_FRAME),
        Column("note", when="there is one"),
        Column("registers", "named_addresses", when="the command was asked for them (-v)"),
        Column("pt_regs", "address", when="the kernel saved the registers of this frame", about="where it did"),
    ),
)
HOLDER = Schema(
    "holder",
    "something that points to a block",
    (
        Column("address", "address", null="it is a register", about="where the pointer lies"),
        Column("state", about="root, live, leaked, free or dead"),
        Column("type", about="what holds the pointer: register, stack, variable, block and so on"),
        Column("offset", "address", about="how far into the block it points"),
        Column("where", when=_KNOWN, about="in words"),
        Column("block", "address", when="a block holds the pointer", about="where this block begins"),
        Column("keeps", "flag", null="it is not known", when="for a process", about="whether it keeps it alive"),
    ),
)


def stack_columns(before: str = "", null: str = "no stack is known", when: str = "") -> tuple[Column, Column]:
    """Return the columns of a stack: the frames, innermost first, and whether there were more. JSON alone has them.

    ``before`` is the beginning of their names. ``null`` and ``when`` are those of a column.
    """
    return (
        Column(f"{before}stack", "objects", hidden=True, null=null, when=when, fields=FRAME),
        Column(
            f"{before}truncated",
            "flag",
            hidden=True,
            null=null,
            when=when,
            about="true where the stack has more frames",
        ),
    )


#: What a record says of its stack.
STACK_COLUMNS = stack_columns()

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
