"""The registers that the names in an instruction mean."""

from __future__ import annotations

import re
from typing import Optional

from dmods.target import Target

_LOW_BYTES = {"sil": "si", "dil": "di", "bpl": "bp", "spl": "sp"}


def whole_register(target: Target, name: str) -> Optional[str]:
    """Return the register that ``name`` is a part of: rax for eax, ax and al. None if the target has no such one."""
    known = target.arch.registers
    if name in known:
        return name
    if target.arch.name == "aarch64":
        whole = f"x{name[1:]}"
        return whole if whole in known else None
    numbered = re.fullmatch(r"(r[0-9]+)[dwb]", name)
    if numbered:
        return numbered[1] if numbered[1] in known else None
    short = _LOW_BYTES.get(name, name)
    if re.fullmatch(r"[abcd][lh]", short):
        short = f"{short[0]}x"
    candidates = (f"r{short}", f"e{short}", f"r{short[1:]}")
    return next((each for each in candidates if each in known), None)
