"""Triage of a kernel without debug information: the log says why it died, and nothing says where memory went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmods.errors import UserError
from dmods.finding import FATAL, LIKELY, Finding
from dmods.triage.answer import Crash, Line, Triage, Unknown
from drgnext.kernel.crash.bare_log import read_bare_log, read_vmcoreinfo
from drgnext.kernel.crash.klog import read_panic_log
from drgnext.kernel.crash.oom import oom_lines
from drgnext.kernel.crash.outcome import SENTENCES, has_died
from drgnext.triage.deaths import kind_of, was_asked
from drgnext.triage.portable_frames import kernel_place

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

_FRAMES = 40


def triage_bare(kernel: Kernel, lacking: UserError) -> Triage:
    """Return what the log and VMCOREINFO say. ``lacking`` says what is missing and how to get it.

    Raises ``lacking`` if they say nothing, and vmlinux would not help.
    """
    info = read_vmcoreinfo(kernel.prog)
    records, notes = read_bare_log(kernel.prog, info)
    told = read_panic_log(records)
    oops = told.death or told.first
    frames = [str(place) for place in oops.frames] if oops is not None else []
    died = has_died(told, info, records, not notes)
    if kernel.typed and died is None and not records:
        raise lacking
    message = told.message or told.panic or (SENTENCES[True] if died else None)
    lines = [Line("kernel", str(info.get("OSRELEASE") or "unknown"))]
    if oops is not None and oops.comm is not None:
        cpu = f" on CPU {oops.cpu}" if oops.cpu is not None else ""
        lines.append(Line("task", f"{oops.comm}, pid {oops.pid}{cpu}"))
    if told.panic and told.panic != message:
        lines.append(Line("panic", told.panic))
    if told.where:
        lines.append(Line("pc", str(told.where)))
    places = [kernel_place(frame) for frame in ([str(told.where)] if told.where else []) + frames]
    found = Triage(subject={"program": str(info.get("OSRELEASE") or "") or None, "build_id": info.get("BUILD-ID")})
    left = max(0, len(frames) - _FRAMES)
    found.crash = Crash(message or SENTENCES[died], died is False, lines, frames[:_FRAMES], left, places)
    if message is not None and not was_asked(told.panic, told.message, *frames):
        task = f", in task {oops.comm} ({oops.pid})" if oops is not None and oops.comm is not None else ""
        where = f" in {told.where}" if told.where else ""
        finding = Finding(
            kind_of(message, told.details),
            FATAL,
            LIKELY,
            "; ".join((f"{message}{where}{task}", *oom_lines(told.details))),
            "get the kernel's debug information: then the pc, the stack and memory are known",
            next=("panicinfo",),
            check="panic",
        )
        found.findings.append(finding)
    (found.checks if died is not None else found.missed).append("panic")
    found.unknown.append(Unknown("all but the log", lacking.what, lacking.how))
    found.unknown.extend(Unknown("the log", note) for note in notes)
    return found
