"""What gdb itself knows of names: its sysroot, its program, its symbols, its expressions."""

from __future__ import annotations

import re
from typing import Any, Optional

import gdb

from dmods.errors import UsageError
from dmods.target import Symbol

_NAME = re.compile(r"[A-Za-z_$][\w$.:@~]*\Z")
# gdb's `info symbol`: "main + 18 in section .text of /usr/bin/x", "main in section .text"
_INFO_SYMBOL = re.compile(r"(?P<name>.+?)(?: \+ (?P<offset>\d+))? in section \S+(?: of (?P<path>.*))?$")


def sysroot() -> Optional[str]:
    """gdb's sysroot where that is a folder of this machine ("target:" stands for the process's own files)."""
    root = str(gdb.parameter("sysroot") or "/")
    return None if root.startswith(("target:", "remote:")) or root == "/" else root


def program() -> Optional[str]:
    """The path of the program that gdb has loaded for the selected inferior."""
    return gdb.selected_inferior().progspace.filename


def symbol_at(address: int) -> Optional[Symbol]:
    """What gdb calls the place; it may have debug information from elsewhere (separate files, debuginfod)."""
    # gdb's Python sees no ELF symbols (minimal symbols), only what debug information describes.
    match = _INFO_SYMBOL.match(gdb.execute(f"info symbol {address:#x}", to_string=True).splitlines()[0])
    if match is None:
        return None
    start = address - int(match["offset"] or 0)
    path = match["path"] or program() or ""
    return Symbol(match["name"], start, _function_size(start), path.rsplit("/", 1)[-1])


def _function_size(start: int) -> int:
    block = gdb.block_for_pc(start)
    while block is not None and block.function is None:
        block = block.superblock
    return block.end - block.start if block is not None and block.start == start else 0


def lookup(name: str) -> Optional[Symbol]:
    """The global of that name that gdb finds first: the program's, then the libraries' as they were loaded."""
    if not _NAME.match(name) or name.startswith("$"):
        return None
    try:
        value = gdb.parse_and_eval(f"&{name}")
        address = int(value)
        size = value.type.target().sizeof if value.type.code == gdb.TYPE_CODE_PTR else 0
    except gdb.error:  # no such symbol, or one that has no address (a register, a TLS variable of a dead process)
        return None
    found = symbol_at(address)
    return Symbol(name, address, size, found.module if found else "")


def evaluate(text: str, word: int) -> Optional[int]:
    """``text`` as a gdb expression: the value of a number or pointer, the address of anything larger. None where gdb
    has no answer; its complaint is raised as UsageError where nobody else could have one either."""
    try:
        value = gdb.parse_and_eval(text)
        return _as_address(value) & ((1 << word * 8) - 1)
    except gdb.error as error:
        if _NAME.match(text) or "`" in text:  # `module`symbol` and the like are dmods' own
            return None
        raise UsageError(
            f"gdb cannot evaluate {text}: {error}", "give an address, a symbol, or a gdb expression"
        ) from None


def _as_address(value: Any) -> int:
    kind = value.type.strip_typedefs()
    if kind.code in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return int(value.address)
    if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return _as_address(value.referenced_value())
    return int(value)
