"""Triage of one kernel dump: the facts, the checks, and the report's parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from dmods.finding import CannotCheck
from dmods.triage.answer import Crash, Line, Memory, Part, Triage, Unknown
from dmods.triage.runner import Runner, chosen, discover, together
from drgnext.kernel.crash import modules
from drgnext.kernel.crash.bare_log import read_vmcoreinfo
from drgnext.kernel.crash.outcome import SENTENCES
from drgnext.kernel.dump.target import unreadable
from drgnext.kernel.pages.kinds import BUCKETS, KERNEL, KINDS
from drgnext.kernel.stacks.frames import Frame
from drgnext.triage.facts import KernelFacts
from drgnext.triage.identity import kernel_identity, kernel_trust
from drgnext.triage.portable_frames import kernel_places

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

CHECKS = "drgnext.triage.checks"
_FRAMES = 40
_SHARE = 100  # a kind of page of the kernel has a part of its own from one in so many pages


def triage_kernel(
    kernel: Kernel, names: Optional[str] = None, seconds: Optional[float] = None, private: bool = False
) -> Triage:
    """Return what the checks find in the kernel. ``private``: no names of files and no messages of programs."""
    checks = chosen(discover(CHECKS), names)
    facts = KernelFacts(kernel, private)
    runner = KernelRunner(facts, seconds)
    found = Triage()

    def crash() -> None:
        found.crash = _crash(facts)

    def memory() -> None:
        found.memory = _memory(facts)

    def identity() -> None:
        found.identity = kernel_identity(facts)

    def trust() -> None:
        found.trust = kernel_trust(facts)

    runner.run(checks, found)
    info = read_vmcoreinfo(kernel.prog)
    found.subject = {"program": modules.release(kernel.prog), "build_id": info.get("BUILD-ID")}
    parts = (
        ("cause", "the crash", crash),
        ("pages", "where memory went", memory),
        ("processes", "which machine it was", identity),
        ("cause", "how far the dump can be trusted", trust),
    )
    for need, name, work in parts:
        lacking = runner.fact(need) or runner.guarded(name, 60.0, work)
        if lacking is not None:
            found.unknown.append(Unknown(name, lacking.why, lacking.help))
    found.unknown[:] = together(found.unknown)
    notes = list(kernel.notes)
    runner.guarded("the notes", 60.0, lambda: notes.extend([*facts.threads.notes, *facts.reader.notes]))
    found.unknown.extend(Unknown("the dump", note) for note in dict.fromkeys(notes))
    return found


class KernelRunner(Runner):
    """Runs checks on a kernel's dump. Memory that the dump lacks costs only the checks that need it."""

    def __init__(self, facts: KernelFacts, seconds: Optional[float]) -> None:
        super().__init__(facts, seconds)
        self._kernel = facts.kernel

    def guarded(self, name: str, seconds: float, work: Callable[[], Any]) -> Optional[CannotCheck]:
        """Do the work within its time. Return why it did not end, or None."""
        from drgn import FaultError

        def careful() -> None:
            try:
                work()
            except FaultError as error:
                lacking = unreadable(self._kernel, "memory that this needs", error)
                raise CannotCheck(lacking.what, lacking.how) from None

        return super().guarded(name, seconds, careful)


def _crash(facts: KernelFacts) -> Crash:
    cause, known = facts.cause, facts.threads
    told = cause.told
    sentence = told.message or told.panic or SENTENCES[cause.died]
    lines = [Line("kernel", modules.release(known.prog) or "unknown")]
    who = cause.task or (told.death if told.death is not None and told.death.comm is not None else None)
    if who is not None:
        cpu = f" on CPU {cause.cpu}" if cause.cpu is not None else ""
        lines.append(Line("task", f"{who.comm}, pid {who.pid}{cpu}"))
    if told.panic and told.panic != told.message:
        lines.append(Line("panic", told.panic))
    frame = cause.trap or cause.caller
    if frame is not None:
        source = known.places.source(frame)
        place = known.places.describe(known.places.inside(frame))
        lines.append(Line("pc" if cause.trap else "called by", f"{place}{f' ({source})' if source else ''}"))
    elif told.where is not None:
        lines.append(Line("pc", told.where))
    tainted = modules.tainted(known.prog)
    if tainted:
        lines.append(Line("tainted", tainted))
    frames = cause.stack.frames if cause.stack is not None else []
    trapped = [index for index, each in enumerate(frames) if cause.trap is not None and each.pc == cause.trap.pc]
    frames = frames[trapped[0] :] if trapped else frames  # what came after the trap is the kernel's own dying
    frames = frames[_dying(facts, frames) :]
    shown = [known.places.describe(known.places.inside(each)) for each in frames[:_FRAMES]]
    left = max(0, len(frames) - _FRAMES)
    if not frames and told.death is not None:  # the dump lacks the stack: the log has its names
        shown, left = [str(place) for place in told.death.frames[:_FRAMES]], max(0, len(told.death.frames) - _FRAMES)
    return Crash(sentence, cause.died is False, lines, shown, left, kernel_places(shown))


def _dying(facts: KernelFacts, frames: Sequence[Frame]) -> int:
    """Return the index of panic() itself, 0 if it is not there. What it called only waits for the machine's end."""
    names = [facts.threads.places.name(frame) for frame in frames]
    return max((index for index, name in enumerate(names) if name in ("panic", "vpanic")), default=0)


def _memory(facts: KernelFacts) -> Memory:
    """Return memstat's lines. The kernel's own is split into the kinds that take a hundredth of the machine."""
    kinds, size = facts.pages.kinds, facts.page_size
    total = sum(kinds.values())
    parts: list[Part] = []
    rest = 0
    for name, kind in KINDS.items():
        if kind.bucket != KERNEL:
            continue
        if kinds[name] * _SHARE >= total and name != "kernel":
            parts.append(Part(f"kernel: {kind.title}", kinds[name] * size))
        else:
            rest += kinds[name]
    parts.sort(key=lambda part: -part.bytes)
    parts.append(Part("kernel: all else", rest * size))
    for bucket in [*BUCKETS[1:], "Unknown"]:
        pages = sum(kinds[name] for name, kind in KINDS.items() if kind.bucket == bucket)
        if pages:
            parts.append(Part(bucket, pages * size))
    return Memory([part for part in parts if part.bytes], "all pages of the machine, as memstat counts them")
