"""The instructions of a function, and where its jumps lead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods._engine import disassemble
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.process.unwind import function_at
from dmods.target import Target

NUMBER = r"-?0x[0-9a-f]+"
WINDOW = 96  # bytes of code that are decoded where no symbol says where a function begins or ends
_LONGEST = 16  # bytes of an instruction
_MOST_CODE = 1 << 14  # bytes of a function that are decoded
_JUMP = regex(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)$")


class Code(NamedTuple):
    """An instruction: where it is, what it is called, its operands as they are written, and where the next one is."""

    address: int
    name: str
    operands: Sequence[str]
    following: int


def page(code: Code) -> int:
    """Return the page that AArch64's ADRP names, by its distance from the instruction's own page."""
    distance = code.operands[1].lstrip("$")
    return (code.address & ~0xFFF) + int(distance, 16) if re.fullmatch(rf"\+?{NUMBER}", distance) else 0


def word(target: Target, address: int) -> Optional[int]:
    """Return the word at an address, or None where it is not in the dump."""
    data = target.image().read(address, target.arch.word)
    return int.from_bytes(data, "little") if len(data) == target.arch.word else None


def decode(target: Target, address: int) -> Optional[Code]:
    """Return the instruction at an address, or None where it cannot be decoded."""
    raw = target.image().read(address, _LONGEST)
    found = disassemble(target.arch.name, raw, address) if raw else None
    if found is None:
        return None
    name, _space, rest = found[0].removeprefix("bnd ").partition(" ")
    # Commas inside of (%rax,%rcx,8) and [x0, #0x8] part no operands.
    operands = re.split(r",\s*(?![^(\[]*[)\]])", rest.strip()) if rest else []
    return Code(address, name, operands, address + found[1])


def decoded(target: Target, start: int, end: int) -> list[Code]:
    """Return the instructions from one address to another; [] where they do not end there."""
    out: list[Code] = []
    at = start
    while at < end:
        code = decode(target, at)
        if code is None:
            return []
        out.append(code)
        at = code.following
    return out if at == end else []


def bounds(target: Target, pc: int) -> Optional[tuple[int, int]]:
    """Return where the function that `pc` is in or behind begins and ends, by its symbol or its unwind table."""
    symbol = target.symbol_at(pc - 1)
    found = (symbol.address, symbol.address + symbol.size) if symbol is not None else function_at(target, pc - 1)
    return found if found is not None and 0 < pc - found[0] <= _MOST_CODE else None


def before(target: Target, pc: int, exact: bool = False) -> list[Code]:
    """Return the instructions of the function before `pc`. ``exact``: `pc` is no return address, and may be its first.

    Where nothing says where it begins, those on which all ways to decode the bytes before agree. Wrong ones soon meet
    the right ones.
    """
    own = bounds(target, pc + 1) if exact else None
    if own is not None and own[0] == pc:
        return []
    whole = bounds(target, pc)
    if whole is not None:
        return decoded(target, whole[0], pc)
    step = 4 if target.arch.name == "aarch64" else 1
    ways = [way for start in range(pc - WINDOW, pc - WINDOW // 2, step) if (way := decoded(target, start, pc))]
    if not ways:
        return []
    agreed = set.intersection(*({code.address for code in way} for way in ways))
    return [code for code in ways[0] if code.address in agreed]


def joined(target: Target, code: Sequence[Code], pc: int) -> frozenset[int]:
    """Return the addresses to which jumps of the function lead."""
    return frozenset(to for each in (*code, *behind(target, pc)) if (to := leads(each)) is not None)


def behind(target: Target, pc: int) -> list[Code]:
    """Return the instructions of the function from `pc` on; [] where nothing says where it ends."""
    whole = bounds(target, pc)
    return decoded_to(target, pc, min(whole[1], pc + _MOST_CODE)) if whole is not None else []


def leads(code: Code) -> Optional[int]:
    """Return where a jump leads, if it says so itself."""
    if not code.operands or not _JUMP.match(code.name):
        return None
    to = code.operands[-1]
    if re.fullmatch(NUMBER, to):
        return int(to, 16)
    found = re.fullmatch(rf"\$([+]?{NUMBER})", to)
    return code.address + int(found[1], 16) if found is not None else None


def decoded_to(target: Target, start: int, end: int) -> list[Code]:
    """Return the instructions from an address on, as far as they can be decoded."""
    out: list[Code] = []
    while start < end and (code := decode(target, start)) is not None:
        out.append(code)
        start = code.following
    return out
