"""The first oops of a log, as the kernel printed it: an oops that it survived may be why it panicked later."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex

_WHO = regex(r"^CPU: (\d{1,6}) (?:UID: \d+ )?PID: (\d{1,10}) Comm: (.*?) (?:Kdump: loaded )?(?:Tainted: |Not tainted)")
_PLACE = r"([\w.$]+)\+0x([0-9a-f]+)/0x([0-9a-f]+)(?: \[(\w+)(?: [0-9a-f]+)?\])?"
# Interrupted code within a trace is printed as RIP (x86: show_iret_regs) or pc (arm64).
_PC = regex(rf"^(?:RIP: (?:0010|e030):|pc : )(?:{_PLACE}|(0x[0-9a-f]+))")
_FRAME = regex(rf"^ *{_PLACE}(?: \(P\)| \(L\))?$")  # a frame that the kernel was not sure of has a "? "
_TRACE = regex(r"^Call [Tt]race:")
_TRACE_ENDS = regex(r"^(Modules linked in:|Code: |---\[ end trace|CR2: | </TASK>|</TASK>)")
_DETAILS = regex(r"^(#PF: |Oops|.*: [0-9a-f]{4,16} \[#\d+\]|Internal error|  ESR = )")
_MOST_FRAMES = 256


class Place(NamedTuple):
    """A place in the code as the log has it. ``size`` is that of the function, ``module`` is "" for vmlinux."""

    function: str
    offset: int
    size: int
    module: str

    def __str__(self) -> str:
        name = f"{self.function}+{self.offset:#x}" if self.offset else self.function
        return f"{self.module}`{name}" if self.module else name


class FirstFault(NamedTuple):
    """An oops in the log.

    ``details`` are lines that say what kind of trap it was (error codes). ``pc`` is None where it has no name.
    ``frames`` do not include ``pc``.
    """

    time: float
    message: str
    details: tuple[str, ...]
    cpu: Optional[int]
    pid: Optional[int]
    comm: Optional[str]
    pc: Optional[Place]
    frames: tuple[Place, ...]


def read_oops(time: float, lines: Sequence[str]) -> FirstFault:
    """Return what the lines of an oops say. The first line is its message."""
    cpu = pid = comm = pc = None
    frames: list[Place] = []
    traced = seen_pc = False
    for line in lines:
        who = _WHO.match(line)
        if who is not None and comm is None:
            cpu, pid, comm = int(who[1]), int(who[2]), who[3]
        at = _PC.match(line)
        if at is not None and not seen_pc:
            pc, seen_pc = (_place(at) if at[1] else None), True
        elif at is not None and traced and at[1]:
            frames.append(_place(at))
        if _TRACE.match(line):
            if frames:
                break
            traced = True
        elif traced and frames and _TRACE_ENDS.match(line):
            break
        frame = _FRAME.match(line) if traced else None
        if frame is not None:
            frames.append(_place(frame))
    # arm64 begins its trace with the pc itself.
    inner = frames[1:] if frames and frames[0] == pc else frames
    message = lines[0].strip() if lines else ""
    return FirstFault(time, message, details_in(lines), cpu, pid, comm, pc, tuple(inner[:_MOST_FRAMES]))


def details_in(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines after the first one that say more of a trap: error codes."""
    return tuple(line.strip() for line in lines[1:] if _DETAILS.search(line))[:6]


def _place(found: re.Match[str]) -> Place:
    """Return the place in a match of _PLACE."""
    return Place(found[1], int(found[2], 16), int(found[3], 16), found[4] or "")
