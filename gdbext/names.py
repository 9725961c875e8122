"""Names that gdb knows: its sysroot, its program, its symbols and its expressions."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

import gdb

from dmods.base.regex import regex
from dmods.cli.gdb_arguments import PROGRAM_TYPES
from dmods.cli.open_files import open_with_raw_name
from dmods.errors import UsageError
from dmods.process.addresses import AmbiguousName
from dmods.target import Symbol

_NAME = regex(r"[A-Za-z_$][\w$.:@~]*\Z")
_WORD = regex(r"\w+\Z")
# gdb's `info symbol`: "main + 18 in section .text of /usr/bin/x", "main in section .text"
_INFO_SYMBOL = regex(r"(?P<name>.+?)(?: \+ (?P<offset>\d+))? in section \S+(?: of (?P<path>.*))?$")
# Names as dmods prints them. gdb reads them differently or not at all: module`name, f(int), v<T>, {vtable(T)},
# f[abi:x]. gdb would call f() in a live process.
_PRINTED = regex(r"[^$&*(\d\s].*[`(<]|[{<].*|.*\[abi:")
_OFFSET = regex(r"[^\s$&*(\d-].*\+(?P<offset>0x[0-9a-f]+)\Z")

_SLOTS = ("@got.plt", "@got[plt]")

Own = Callable[[str], int]


def sysroot() -> Optional[str]:
    """Return gdb's sysroot where that is a folder of this machine ("target:" stands for the process's own files)."""
    root = str(gdb.parameter("sysroot") or "/")
    return None if root.startswith(("target:", "remote:")) or root == "/" else root


def debug_roots() -> list[str]:
    """Return the folders of gdb's debug-file-directory: those below the sysroot first, as gdb searches them."""
    folders = [folder for folder in str(gdb.parameter("debug-file-directory") or "").split(os.pathsep) if folder]
    root = sysroot()
    return [*(os.path.join(root, folder.lstrip("/")) for folder in folders if root is not None), *folders]


def program() -> Optional[str]:
    """Return the path of the program that gdb has loaded for the selected inferior."""
    try:
        return gdb.selected_inferior().progspace.filename
    except UnicodeDecodeError:
        return open_with_raw_name(*PROGRAM_TYPES)


def symbol_at(address: int) -> Optional[Symbol]:
    """Return gdb's symbol at an address, or None. gdb may have debug information from elsewhere (debuginfod)."""
    # gdb's Python does not see ELF symbols (minimal symbols). It sees only what debug information describes.
    try:
        match = _INFO_SYMBOL.match(gdb.execute(f"info symbol {address:#x}", to_string=True).splitlines()[0])
    except UnicodeDecodeError:  # of the module's path
        return None
    if match is None or match["name"].endswith(_SLOTS):
        return None  # gdb makes up a name for a slot of the global offset table, of any length
    start = address - int(match["offset"] or 0)
    path = match["path"] or program() or ""
    return Symbol(match["name"], start, _function_size(start), path.rsplit("/", 1)[-1])


def _function_size(start: int) -> int:
    block = gdb.block_for_pc(start)
    while block is not None and block.function is None:
        block = block.superblock
    return block.end - block.start if block is not None and block.start == start else 0


def lookup(name: str) -> Optional[Symbol]:
    """Return the global of that name that gdb finds first (the program's, then the libraries'), or None."""
    if not _NAME.match(name) or name.startswith("$") or _is_unknown(name):
        return None
    try:
        value = gdb.parse_and_eval(f"&{name}")
        address = int(value)
        size = value.type.target().sizeof if value.type.code == gdb.TYPE_CODE_PTR else 0
    except gdb.error:  # no such symbol, or it has no address (a register, a TLS variable of a dead process)
        return None
    found = symbol_at(address)
    return Symbol(name, address, size, found.module if found else "")


def _is_unknown(name: str) -> bool:
    """Return whether neither debug information nor a symbol table that gdb has read knows the name.

    `info address` looks in the same tables as an expression does. An expression also looks for a source file of that
    name: 20 ms the first time, 4 ms for each name (gdb/c-exp.y, classify_name).
    """
    if not _WORD.match(name):
        return False  # a name with a dot or a colon may be an expression of several names
    try:
        gdb.execute(f"info address {name}", to_string=True)
    except gdb.error:
        return True
    return False


def address(text: str, word: int, own: Own, own_symbol_at: Callable[[int], Optional[Symbol]]) -> int:
    """Return the address that a user means by `text`. gdb evaluates it; dmods (`own`) does where gdb cannot.

    An expression stands for the value of a number or a pointer, and for the address of anything larger. dmods reads a
    name in a form that it prints before gdb does. Raises UsageError.
    """
    text = text.strip()
    printed = _printed(text, own, own_symbol_at)
    if printed is not None:
        return printed
    if _NAME.match(text) and not text.startswith("$") and _may_be_several(text):
        try:
            own(text)
        except AmbiguousName:
            raise
        except UsageError:
            pass  # gdb may know it all the same
    try:
        return _as_address(gdb.parse_and_eval(text)) & ((1 << word * 8) - 1)
    except gdb.error as error:
        complaint = str(error)
    try:
        return own(text)
    except AmbiguousName:
        raise
    except UsageError:
        if _NAME.match(text) or _PRINTED.match(text):
            raise
        raise UsageError(
            f"gdb cannot evaluate {text}: {complaint}", "give an address, a symbol, or a gdb expression"
        ) from None


def _may_be_several(name: str) -> bool:
    """Return whether gdb takes one of several functions or variables of that name without a word.

    It prefers a variable of the frame, and then a symbol that all files see. Otherwise it takes the first of those that
    are local to a file, or the first in the symbol tables.
    """
    try:
        found = gdb.lookup_symbol(name)[0]
    except gdb.error:  # no frame is selected
        found = gdb.lookup_global_symbol(name)
    if found is None:
        return True
    return not found.needs_frame and gdb.lookup_global_symbol(name) is None


def _printed(text: str, own: Own, own_symbol_at: Callable[[int], Optional[Symbol]]) -> Optional[int]:
    """Return the address of a name in a form that dmods prints, or None where gdb is to evaluate the text."""
    split = _OFFSET.match(text)
    special = _PRINTED.match(text) is not None
    if split is None and not special:
        return None
    try:
        found = own(text)
    except AmbiguousName:
        raise
    except UsageError:
        return _function(text)
    if split is not None and not special:
        # In dmods, table+0x10 is in bytes. gdb would add 16 elements, or add to a pointer's value.
        symbol = own_symbol_at(found)
        if symbol is None or found - symbol.address != int(split["offset"], 16):
            return None
    return found


def _function(text: str) -> Optional[int]:
    """Return the address of a C++ function with its parameters, `f(int)+0x12`, or None.

    Without the quotes gdb would call it in a live process.
    """
    name, _plus, offset = text.partition("+0x")
    if "(" not in name or "'" in name:
        return None
    try:
        return int(gdb.parse_and_eval(f"&'{name}'")) + int(offset or "0", 16)
    except (gdb.error, ValueError):  # the text only looks like a name: f(3), {int} 0x1234, a<b
        return None


def _as_address(value: Any) -> int:
    kind = value.type.strip_typedefs()
    if kind.code in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return int(value.address)
    if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return _as_address(value.referenced_value())
    return int(value)
