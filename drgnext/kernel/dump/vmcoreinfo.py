"""The numbers that a kernel gives to crash dump tools (kernel/crash_core.c).

VMCOREINFO has the macros that debug information lacks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dmods.base.regex import regex

if TYPE_CHECKING:
    from drgn import Program


# The number of digits is limited to what a 64-bit number can have.
_NUMBER = regex(rb"^NUMBER\((\w{1,64})\)=(-?(?:0x[0-9a-fA-F]{1,16}|[0-9]{1,20}))$", re.M | re.A)


def numbers(prog: Program) -> dict[str, int]:
    """Return every NUMBER() by its name, or {} if the dump has no VMCOREINFO."""
    try:
        text = prog["VMCOREINFO"].string_()
    except LookupError:
        return {}
    # Most numbers are decimal. arm64 writes some with 0x.
    return {name.decode(): int(value, 0 if b"x" in value else 10) for name, value in _NUMBER.findall(text)}
