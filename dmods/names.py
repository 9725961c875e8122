"""Addresses as people read and write them: ``main+0x12``, ``libc.so.6`abort+0xd3``, ``0x7f3a1c0025c0``."""

from __future__ import annotations

import os
import re
from typing import Optional

from dmods._engine import demangle
from dmods.errors import UsageError
from dmods.target import Module, Target

_OFFSET = re.compile(r"^(?P<name>.*?[^\s+])\s*\+\s*(?P<offset>0[xX][0-9a-fA-F]+|[0-9]+)$")
_HEX = re.compile(r"^[0-9a-fA-F]+$")


def describe_code(target: Target, address: int, inside: Optional[int] = None) -> str:
    """The address as a stack frame shows it: symbol+offset, with the module before a backquote unless it is the
    program. Without a symbol the offset is the file's own address (what addr2line takes); outside any module it is
    the bare address.

    ``inside`` is an address in the function meant, where ``address`` itself may be past its end: a return address less
    one (``Frame.code_address``).
    """
    symbol = target.symbol_at(address if inside is None else inside)
    if symbol is not None:
        offset = address - symbol.address
        name = demangle(symbol.name) + (f"+{offset:#x}" if offset else "")
        program = target.executable is not None and target.executable.rsplit("/", 1)[-1] == symbol.module
        return name if program else f"{symbol.module}`{name}"
    module = module_at(target, address)
    return f"{module.name}`{address - module.bias:#x}" if module is not None else f"{address:#x}"


def module_at(target: Target, address: int) -> Optional[Module]:
    """The module with a mapping that holds ``address``."""
    for module in target.modules():
        if module.start <= address < module.end and any(address in piece for piece in module.ranges):
            return module
    return None


_FORMS = "write 0x..., a symbol, symbol+offset or module`symbol+offset"


def evaluate(target: Target, text: str) -> int:
    """What a user may write for an address, where no debugger evaluates it: ``0x...``, a number, a symbol,
    ``module`symbol``, ``module`0x...`` (the file's own address), and any of them ``+offset``. Addresses as dmods
    prints them in tables (hexadecimal without 0x) are understood: all digits of a pointer (``00007f3a1c0025c0``),
    letters among the digits, or a number of which only the hexadecimal reading is mapped.

    Raises UsageError.
    """
    text = text.strip()
    value = _term(target, text)
    if value is None:
        split = _OFFSET.match(text)
        base = _term(target, split["name"]) if split else None
        value = base + int(split["offset"], 0) if split and base is not None else None
    if value is None:
        raise UsageError(
            f"{text!r} is neither a number nor a symbol that is known here",
            "a program goes after --exe" if os.path.isfile(text) else _FORMS,
        )
    if not 0 <= value < 1 << (8 * target.arch.word):
        raise UsageError(f"{text!r} is no address", f"addresses have {8 * target.arch.word} bits here")
    return value


def _term(target: Target, text: str) -> Optional[int]:
    module, backquote, rest = text.rpartition("`")
    if backquote and re.match(r"^0[xX][0-9a-fA-F]+$", rest):
        return next((one.bias + int(rest, 16) for one in target.modules() if one.name == module), None)
    if re.match(r"^0[xX][0-9a-fA-F]+$", text):
        return int(text, 16)
    if _HEX.match(text) and len(text) == 2 * target.arch.word:
        return int(text, 16)
    if text.isdecimal() and text.isascii():
        decimal, hexadecimal = int(text), int(text, 16)
        mapped = [any(value in mapping for mapping in target.mappings()) for value in (decimal, hexadecimal)]
        return hexadecimal if mapped == [False, True] else decimal
    symbol = target.lookup(text)
    if symbol is not None:
        return symbol.address
    return int(text, 16) if _HEX.match(text) else None
