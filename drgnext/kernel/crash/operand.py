"""The address that an x86 instruction was about to access, from its text and its registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from dmods.base.regex import regex

_OPERAND = regex(
    r"(?<![:\w])(?P<displacement>-?0x[0-9a-f]+)?"
    r"\((?:%(?P<base>\w+))?(?:,%(?P<index>\w+)(?:,(?P<scale>[1248]))?)?\)"
)
_NO_ACCESS = regex(r"^(lea|nop|prefetch|data16 nop)")


def address(instruction: str, registers: Mapping[str, int]) -> Optional[int]:
    """Return the address of the only memory operand that registers give, in AT&T syntax.

    Return None if there is no such operand or more than one, if a segment is added, or if a register is not known.
    """
    found = list(_OPERAND.finditer(instruction))
    if len(found) != 1 or _NO_ACCESS.match(instruction):
        return None
    part = found[0]
    value = int(part["displacement"] or "0", 16)
    for name, scale in ((part["base"], 1), (part["index"], int(part["scale"] or 1))):
        if name is None:
            continue
        if name not in registers:
            return None
        value += scale * registers[name]
    return value & 0xFFFFFFFFFFFFFFFF
