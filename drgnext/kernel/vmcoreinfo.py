"""What a kernel says of itself for crash dump tools: the macros that its debug information lacks
(kernel/crash_core.c)."""

from __future__ import annotations

import re
from typing import Any

# No more digits than a number of the kernel's has.
_NUMBER = re.compile(rb"^NUMBER\((\w{1,64})\)=(-?(?:0x[0-9a-fA-F]{1,16}|[0-9]{1,20}))$", re.M | re.A)


def numbers(prog: Any) -> dict[str, int]:
    """Every NUMBER() by its name; empty where the dump has no VMCOREINFO."""
    try:
        text = prog["VMCOREINFO"].string_()
    except LookupError:
        return {}
    # Most are decimal; arm64 writes some with 0x.
    return {name.decode(): int(value, 0 if b"x" in value else 10) for name, value in _NUMBER.findall(text)}
