"""Where the code of a dump branches to, through the stubs of the procedure linkage table."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.regex import regex
from dmods.target import Target

INSTRUCTION = 16  # bytes, at most
_STUB = 4  # instructions of an entry of the procedure linkage table before its jump
_BRANCH = regex(r"(?:bnd |notrack )?(?:call|jmp|b|bl)[lqw]? +(\$[+-])?(0x[0-9a-f]+)$")
_PAGE = regex(r"adrp x16, \$([+-])(0x[0-9a-f]+)$")  # AArch64
_LOAD = regex(r"ldr x17, \[x16(?:, #(0x[0-9a-f]+))?\]$")
_THROUGH = regex(r"(?:bnd |notrack )?jmp[lq]? +\*(0x[0-9a-f]+)(?:\(%[re]ip\))?$")


def branch_target(text: str, at: int) -> Optional[int]:
    """Return where the instruction at an address branches to, or None."""
    branch = _BRANCH.match(text)
    if branch is None:
        return None
    distance = int(branch.group(2), 16)
    sign = {"$+": 1, "$-": -1}.get(branch.group(1) or "", 0)
    return at + sign * distance if sign else distance


def behind_stub(target: Target, address: int) -> int:
    """Return where a stub of the procedure linkage table leads; the address itself if no stub is there."""
    place = slot_of_stub(target, address)
    slot = target.image().read(place, target.arch.word) if place is not None else b""
    return int.from_bytes(slot, "little") if len(slot) == target.arch.word else address


def slot_of_stub(target: Target, address: int) -> Optional[int]:
    """Return the address of the slot through which a stub of the procedure linkage table jumps, or None."""
    image, at, page = target.image(), address, 0
    for _step in range(_STUB):
        found = _engine.disassemble(target.arch.name, image.read(at, INSTRUCTION), at)
        if found is None:
            break
        text, length = found
        through, adrp, load = _THROUGH.match(text), _PAGE.match(text), _LOAD.match(text)
        if adrp is not None:
            page = (at & ~0xFFF) + int(adrp.group(1) + adrp.group(2), 16)
        elif through is not None or (load is not None and page):
            offset = through.group(1) if through is not None else load.group(1) if load is not None else None
            return (0 if through is not None else page) + int(offset or "0", 16) & (1 << 64) - 1
        elif not text.startswith(("endbr", "bti", "hint")):
            break
        at += length
    return None
