"""Addresses as people read and write them: ``main+0x12``, ``libc.so.6`abort+0xd3``, ``0x7f3a1c0025c0``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Callable, Optional

from dmods._engine import demangle
from dmods.base.regex import regex
from dmods.errors import UsageError
from dmods.modules.symbols import NamedSymbol
from dmods.target import Module, Symbol, Target

_OFFSET = regex(r"^(?P<name>.+?)\s*\+\s*(?P<offset>0[xX][0-9a-fA-F]+|[0-9]+)$")
_HEX = regex(r"^[0-9a-fA-F]+$")


def describe_code(target: Target, address: int, inside: Optional[int] = None) -> str:
    """Return the address as a stack frame shows it: symbol+offset.

    The module stands before a backquote unless it is the program. Without a symbol, the number is the address in the
    module's file, which addr2line takes. Outside all modules it is the address itself. A return address may be past the
    end of the function: then ``inside`` is an address in the function (``Frame.code_address``).
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
    """Return the module with a mapping that contains ``address``, or None."""
    for module in target.modules():
        if module.start <= address < module.end and any(address in piece for piece in module.ranges):
            return module
    return None


_FORMS = "write 0x..., a symbol, symbol+offset or module`symbol+offset"
_MOST_CHOICES = 4  # of the symbols with one name. The error is a line.


class AmbiguousName(UsageError):
    """Several symbols have the name."""


Named = Callable[[str], Sequence[NamedSymbol]]


def evaluate(target: Target, text: str, named: Named) -> int:
    """Return the address that a user means, where no debugger evaluates the text.

    The forms are ``0x...``, a number, a symbol, ``module`symbol`` and ``module`0x...`` (the file's own address). Each
    may be followed by ``+offset``. `named` gives the symbols that a name may mean. Addresses as dmods prints them in
    tables (hexadecimal without 0x) are understood: all digits of a pointer (``00007f3a1c0025c0``), letters among the
    digits, or a number of which only the hexadecimal reading is mapped.

    Raises UsageError, also where several symbols have the name.
    """
    text = text.strip()
    value = _term(target, text, named, None)
    if value is None:
        split = _OFFSET.match(text)
        offset = int(split["offset"], 0) if split else 0
        base = _term(target, split["name"], named, offset) if split else None
        value = base + offset if base is not None else None
    if value is None:
        raise UsageError(
            f"{text!r} is neither a number nor a symbol that is known here",
            "a program goes after --exe" if os.path.isfile(text) else _FORMS,
        )
    if not 0 <= value < 1 << (8 * target.arch.word):
        raise UsageError(f"{text!r} is not an address", f"addresses have {8 * target.arch.word} bits here")
    return value


def symbol_address(text: str, named: Named, offset: Optional[int] = None) -> Optional[int]:
    """Return where the symbol begins that `text` names, or None where no symbol has this name.

    Of several symbols with one name, only those that reach beyond `offset` are meant. Raises AmbiguousName where
    several are left.
    """
    found = list(named(text))
    if offset is not None:
        found = [each for each in found if offset < each.symbol.size] or found
    if len(found) > 1:
        found = [each for each in found if not each.minor] or found if offset is None else found
    if len(found) > 1:
        choices = [f"{each.symbol.address:#x} {_shown(each.symbol)}" for each in found[:_MOST_CHOICES]]
        more = f"; {len(found) - _MOST_CHOICES} more" if len(found) > _MOST_CHOICES else ""
        raise AmbiguousName(
            f"{text} is ambiguous: {len(found)} symbols have this name",
            f"give an address or the full name: {'; '.join(choices)}{more}",
        )
    return found[0].symbol.address if found else None


def _shown(symbol: Symbol) -> str:
    return f"{symbol.module}`{symbol.name}"


def _term(target: Target, text: str, named: Named, offset: Optional[int]) -> Optional[int]:
    number = _number(target, text)
    if number is not None:
        return number
    found = symbol_address(text, named, offset)
    if found is not None:
        return found
    symbol = target.lookup(text)  # a debugger may know more symbols
    if symbol is not None:
        return symbol.address
    return int(text, 16) if _HEX.match(text) else None


def _number(target: Target, text: str) -> Optional[int]:
    """Return the number that the text can only be, or None where it may be a symbol."""
    module, backquote, rest = text.rpartition("`")
    if backquote and re.match(r"^0[xX][0-9a-fA-F]+$", rest):
        return next((one.bias + int(rest, 16) for one in target.modules() if one.name == module), None)
    if re.match(r"^0[xX][0-9a-fA-F]+$", text) or (_HEX.match(text) and len(text) == 2 * target.arch.word):
        return int(text, 16)
    if text.isdecimal() and text.isascii():
        decimal, hexadecimal = int(text), int(text, 16)
        mapped = [any(value in mapping for mapping in target.mappings()) for value in (decimal, hexadecimal)]
        return hexadecimal if mapped == [False, True] else decimal
    return None
