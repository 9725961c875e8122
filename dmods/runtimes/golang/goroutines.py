"""All goroutines of a process: what they do, since when, on which thread, and who made them. No symbols are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.cached import cached
from dmods.base.dataclass import dataclass, field
from dmods.base.words import Words
from dmods.modules.golang.moduledata import GoModule, go_module_at, go_modules
from dmods.process.go_frames import go_machine
from dmods.runtimes.golang import layout
from dmods.runtimes.golang.layout import Layout
from dmods.target import Target, Thread

# runtime/runtime2.go, gStatusStrings, and the names of the constants where the runtime has no text
_STATUSES = {
    0: "idle",
    1: "runnable",
    2: "running",
    3: "syscall",
    4: "waiting",
    6: "dead",
    8: "copystack",
    9: "preempted",
    10: "leaked",
    11: "dead",
}
RUNNING, SYSCALL, WAITING, LEAKED = 2, 3, 4, 10
_REASONS = (b"GC assist marking", b"IO wait")  # waitReasonStrings begins with "" and these two since Go 1.11
_MOST_REASONS = 128
_LONGEST_REASON = 64


@dataclass
class Goroutine:
    """A goroutine. ``address`` is that of its struct g. None: not known."""

    address: int
    number: int  # goid
    status: int
    scan: bool
    reason: str  # why it waits, in the runtime's words; "" where it does not wait
    waits_since: int  # nanoseconds of the runtime's clock, set by a garbage collection; 0: not known
    stack: tuple[int, int]
    sched: tuple[int, int]  # sp and pc where it stopped
    syscall: tuple[int, int]  # sp and pc of the call of the system; 0 outside of one
    made_at: Optional[int]  # return address of the go statement
    start: Optional[int]  # the function that it began with
    parent: Optional[int]  # the number of the goroutine that made it
    thread: Optional[int]  # tid of the thread that runs it
    locked: Optional[int]  # tid of the thread that it is locked to

    @property
    def dead(self) -> bool:
        """Return whether it has ended, or has not begun. Its struct g waits to be used again."""
        return self.status in layout.DEAD

    @property
    def state(self) -> str:
        """Return what it does in a word or two, as the runtime's own trace has it."""
        text = _STATUSES.get(self.status, f"status {self.status}")
        if self.status in (WAITING, LEAKED) and self.reason:
            text = self.reason
        return text + (" (leaked)" if self.status == LEAKED else "") + (" (scan)" if self.scan else "")


@dataclass
class Goroutines:
    """The goroutines of a process in the order of runtime.allgs. ``problem`` says why they were not found."""

    modules: list[GoModule]
    all: list[Goroutine] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)
    lost: int = 0  # those that are damaged or not in the dump, and those that are too many
    layout: Optional[Layout] = None


@cached
def find_goroutines(target: Target) -> Goroutines:
    """Return the goroutines of the process."""
    modules = go_modules(target)
    found = Goroutines(modules)
    if not modules:
        found.problem = "no function table of Go is found"
        return found
    if go_machine(target.arch) is None:
        found.problem = f"goroutines of {target.arch.name} are not read: only those of x86_64 and aarch64"
        return found
    words = Words(target.image(), target.arch.word)
    gs, found.problem = layout.find_allgs(target, words, modules)
    if not gs:
        return found
    proven, wrong = layout.prove(target, words, gs)
    if proven is None:
        found.problem = f"the layout of Go's goroutines is not known: {wrong}"
        return found
    found.layout = proven
    if proven.gopc is None:
        found.notes.append("who made a goroutine is not known: the layout is not proven")
    if proven.procid is None and any(words.at(g + layout.M) for g in gs):
        found.notes.append("the thread of a goroutine is not known: the layout is not proven")
    reasons = wait_reasons(words, modules)
    if not reasons:
        found.notes.append("why goroutines wait is not known: the runtime's texts are not in the dump")
    for g in gs:
        one = _read(words, g, proven, reasons) if layout.is_g(words, g) else None
        if one is None:
            found.lost += 1
        else:
            found.all.append(one)
    if found.lost:
        found.notes.append(f"{found.lost} of {len(gs)} goroutines are damaged or not in the dump: they are left out")
    if len(gs) >= layout.MOST_GOROUTINES:
        found.lost += 1
        found.notes.append(f"only the first {layout.MOST_GOROUTINES} goroutines are looked at")
    return found


def _read(words: Words, g: int, at: Layout, reasons: Sequence[str]) -> Optional[Goroutine]:
    row = words.many(g, layout.G_SIZE // 8) or words.many(g, 400 // 8)
    if row is None:
        return None
    status = row[at.goid // 8 - 1] & 0xFFFFFFFF
    why = row[at.goid // 8 + 3] & 0xFF
    state = status & ~layout.SCAN
    waiting = state in (WAITING, LEAKED)
    made, start = (row[at.gopc // 8], row[at.gopc // 8 + 2]) if at.gopc is not None else (0, 0)
    return Goroutine(
        g,
        row[at.goid // 8],
        state,
        bool(status & layout.SCAN),
        (reasons[why] if why < len(reasons) else f"reason {why}") if waiting and why else "",
        row[at.goid // 8 + 2] if state in (WAITING, SYSCALL, LEAKED) else 0,
        (row[0], row[1]),
        (row[layout.SP // 8], row[layout.PC // 8]),
        (row[at.syscall // 8], row[at.syscall // 8 + 1]),
        made or None,
        start or None,
        row[at.parent // 8] if at.parent is not None else None,
        _tid(words, row[layout.M // 8], at),
        _tid(words, row[at.lockedm // 8], at) if at.lockedm is not None else None,
    )


def _tid(words: Words, m: int, at: Layout) -> Optional[int]:
    """Return m.procid, or None without an m."""
    return words.at(m + at.procid) if m and at.procid is not None else None


def wait_reasons(words: Words, modules: Sequence[GoModule]) -> list[str]:
    """Return the runtime's texts of wait reasons, by number: waitReasonStrings, found by its first texts."""
    for module in modules:
        for start, end in module.data:
            data = words.image.read(start, end - start)
            numbers = memoryview(data[: len(data) // 8 * 8]).cast("Q")
            length = len(_REASONS[0])
            for place in _places(data, length.to_bytes(8, "little")):
                if place + 2 >= len(numbers) or numbers[place + 2] != len(_REASONS[1]):
                    continue
                if words.image.read(numbers[place - 1], length) != _REASONS[0]:
                    continue
                if words.image.read(numbers[place + 1], len(_REASONS[1])) == _REASONS[1]:
                    return ["", *_texts(words, numbers[place - 1 : place - 1 + 2 * _MOST_REASONS])]
    return []


def _places(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        if at % 8 == 0 and at:
            yield at // 8
        at = data.find(wanted, at + 1)


def _texts(words: Words, numbers: Sequence[int]) -> Iterator[str]:
    for address, length in zip(numbers[::2], numbers[1::2]):
        data = words.image.read(address, length) if 0 < length <= _LONGEST_REASON else b""
        if len(data) != length or not data.isascii() or not data:
            return
        yield data.decode()


def thread_of(target: Target, goroutine: Goroutine) -> Optional[Thread]:
    """Return the thread that runs the goroutine, or None."""
    return next((thread for thread in target.threads() if thread.tid == goroutine.thread), None)


def function_name(target: Target, pc: Optional[int]) -> str:
    """Return the name of the Go function with the code at `pc`, as traces show it; "" where it is not known."""
    module = go_module_at(target, pc) if pc is not None else None
    function = module.table.at(pc) if module is not None and pc is not None else None
    return shown(function.name) if function is not None else ""


def shown(name: str) -> str:
    """Return a function's name as the runtime's traces show it: type arguments are ``[...]`` (funcNameForPrint)."""
    head, bracket, rest = name.partition("[")
    _arguments, closing, tail = rest.rpartition("]")
    return f"{head}[...]{tail}" if bracket and closing else name
