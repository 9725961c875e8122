"""Read the interpreters of CPython in a process, with their threads, and prove the layout of their structures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass, field, replace
from dmods.base.words import Words
from dmods.process.addresses import module_at
from dmods.runtimes.python import COOKIE
from dmods.runtimes.python.debug_offsets import TABLE_SIZE, from_table
from dmods.runtimes.python.layout import KNOWN, CodeLayout, Layout, NotStarted, Refused
from dmods.runtimes.python.lines import line_of
from dmods.runtimes.python.memory import Objects
from dmods.target import Target, Thread

MOST_FRAMES = 10_000  # of one thread; the limit of recursion is 1000 unless a program raises it
_MOST_LINKS = 100_000  # interpreters, or threads of one
_MOST_TABLE = 1 << 22  # bytes of a line table
_RUNTIME_WORDS = 1024  # of _PyRuntime in which interpreters.head is searched
_STATE_WORDS = 64  # of PyInterpreterState in which the head of its threads is searched (3.12: the 10th)
_THREAD_WORDS = 64  # of PyThreadState in which thread_id is searched (3.9: the 22nd)
_FLAGS = 16  # bytes: the flags of all releases, or more
_NOT_STARTED = "the program is linked with CPython, but never started it"
_PROVED = 64  # threads, and frames of each, that prove a layout


def _in_place(address: int) -> int:
    return address


@dataclass(frozen=True)
class Code:
    """A code object: file, function, and what tells lines."""

    address: int
    file: str
    name: str
    qualname: str
    first: int
    table: bytes
    start: int  # of its instructions


@dataclass(frozen=True)
class PythonFrame:
    """A frame.

    ``outermost``: the C function that runs the interpreter was called for this frame, not for its caller. ``entry`` is
    a variable of that call on the C stack, where Python keeps one (3.12 and later).
    """

    address: int
    code: Code
    line: Optional[int]
    outermost: bool
    entry: Optional[int] = None

    @property
    def where(self) -> str:
        """Return ``file:line function``."""
        return f"{self.code.file}:{self.line if self.line is not None else '?'} {self.code.name}"


@dataclass(frozen=True)
class PythonStack:
    """The frames, innermost first. ``problem`` says why there are no more of them, where that is no proper end."""

    frames: list[PythonFrame] = field(default_factory=list)
    problem: Optional[str] = None


@dataclass(frozen=True)
class PythonThread:
    """A thread state. ``thread`` is the thread of the dump that it belongs to, if that is known."""

    address: int
    interpreter: int
    thread: Optional[Thread]


@dataclass
class Python:
    """The CPython of a process. ``notes`` say what is uncertain."""

    target: Target
    layout: Layout
    objects: Objects
    runtime: int
    interpreters: list[int]
    threads: list[PythonThread]
    notes: list[str]

    def __post_init__(self) -> None:
        self._codes: dict[int, Optional[Code]] = {}

    def stack(self, thread: PythonThread, limit: int = MOST_FRAMES) -> PythonStack:
        """Return the Python frames of a thread."""
        at: Optional[int] = thread.address
        for offset in self.layout.frame.at:
            at = self.objects.words.at(at + offset) if at else at
        if at is None:
            return PythonStack(problem="its thread state is not in the dump")
        return self.chain(at, limit)

    def frame_objects(self) -> list[int]:
        """Return the frames of all threads where frames are objects: until 3.10."""
        if self.layout.version >= (3, 11):
            return []
        return [frame.address for thread in self.threads for frame in self.stack(thread).frames]

    def chain(self, at: int, limit: int, place: Callable[[int], int] = _in_place) -> PythonStack:
        """Return the frames from the one at an address on. ``place`` says where the bytes of a frame are now."""
        frames: list[PythonFrame] = []
        seen: set[int] = set()
        shape, words = self.layout.frame, self.objects.words
        while at:
            if at in seen:
                return PythonStack(frames, f"the frames lead in a circle at {at:#x}")
            if len(seen) >= limit:
                return PythonStack(frames, f"the frame limit ({limit}) was reached")
            seen.add(at)
            now = place(at)
            previous = words.at(now + shape.previous)
            code_at = words.at(now + shape.code)
            if previous is None or code_at is None:
                return PythonStack(frames, f"the frame at {at:#x} is not in the dump")
            if self._foreign(now):
                # Since 3.15 all frames end at one in the state of the thread, behind the first on the C stack.
                if frames and frames[-1].entry is None:
                    frames[-1] = replace(frames[-1], outermost=True, entry=at)
            else:
                code = self.code(code_at & ~7)
                if code is None:
                    return PythonStack(frames, f"the frame at {at:#x} has no code object: damaged")
                frames.append(PythonFrame(at, code, self._line(at, code), self._entry(at)))
            at = previous
        if frames:
            frames[-1] = replace(frames[-1], outermost=True)
        return PythonStack(frames)

    def frame_at(self, address: int) -> Optional[PythonFrame]:
        """Return the frame at the address, which is on no stack, or None where none is."""
        code = self.code((self.objects.words.at(address + self.layout.frame.code) or 0) & ~7)
        return PythonFrame(address, code, self._line(address, code), True) if code is not None else None

    def _foreign(self, frame: int) -> bool:
        """Return whether the frame stands for a C function on the stack (FRAME_OWNED_BY_CSTACK, 3.12 and later)."""
        owner = self.layout.frame.owner
        if owner is None or self.layout.version < (3, 12):
            return False
        data = self.objects.image.read(frame + owner, 1)
        return bool(data) and data[0] >= self.layout.frame.least_foreign

    def _entry(self, frame: int) -> bool:
        """Return whether the interpreter was called for the frame: until 3.10 for every one, in 3.11 it says so."""
        if self.layout.version <= (3, 10):
            return True
        entry = self.layout.frame.entry
        return entry is not None and self.objects.image.read(frame + entry, 1) not in (b"", b"\0")

    def _line(self, frame: int, code: Code) -> Optional[int]:
        shape = self.layout.frame
        if shape.unit:
            last = self.objects.words.int32(frame + shape.last)
            offset = last * shape.unit if last is not None else -1
        else:
            offset = (self.objects.words.at(frame + shape.last) or 0) - code.start
        return line_of(self.layout.code.lines, code.table, code.first, offset)

    def code(self, address: int) -> Optional[Code]:
        """Return the code object at the address, or None where none is."""
        if address not in self._codes:
            self._codes[address] = _code(self.objects, self.layout.code, address)
        return self._codes[address]


def _code(objects: Objects, layout: CodeLayout, address: int) -> Optional[Code]:
    kind = objects.type_of(address)
    if kind is None or kind.name != "code":
        return None
    words = objects.words
    file = objects.text(words.at(address + layout.filename) or 0, 4096)
    name = objects.text(words.at(address + layout.name) or 0, 1024)
    first = words.int32(address + layout.firstlineno)
    table = objects.raw(words.at(address + layout.linetable) or 0, _MOST_TABLE)
    if file is None or name is None or first is None or table is None:
        return None
    qualname = objects.text(words.at(address + layout.qualname) or 0, 1024) if layout.qualname is not None else None
    start = address + layout.start if layout.start is not None else 0
    return Code(address, file, name, qualname or name, first, table, start)


def open_python(target: Target, runtime: int) -> Python:
    """Return the interpreters below _PyRuntime. Raises Refused, and NotStarted."""
    head = target.image().read(runtime, TABLE_SIZE)
    if head[:8] == COOKIE:
        table = from_table(head)
        if table.flags is not None and _never_started(target.image().read(runtime + table.flags, _FLAGS)):
            raise NotStarted(_NOT_STARTED)
        python = _proven(target, runtime, table)
        if not _prove_frames(python):
            python.notes.append("no thread of Python has a frame: its offsets are not proven")
        return python
    failed: list[str] = []
    named = _named_version(target, runtime)
    idle: Optional[Python] = None
    for layout in KNOWN:
        try:
            python = _proven(target, runtime, layout)
        except Refused as refused:
            failed.append(f"{layout.name}: {refused}")
            continue
        if _prove_frames(python):
            return python
        failed.append(f"{layout.name}: no thread has a frame")
        if layout.version == named:
            idle = python  # no thread is in Python, as in a program that calls Python now and then
    if idle is not None:
        return idle
    if _never_started(head[:_FLAGS]):
        raise NotStarted(_NOT_STARTED)
    if not head.strip(b"\0"):
        raise Refused("_PyRuntime is not in the dump, or Python was never started")
    raise Refused("an interpreter of a release that dmods does not read (" + "; ".join(failed) + ")")


def _never_started(flags: bytes) -> bool:
    """Return whether the flags at the start of _PyRuntime are in the dump and say that Python never began to start.

    They are ints: preinitializing, preinitialized, core_initialized, initialized; since 3.11 _initialized comes first.
    Py_Finalize() leaves `preinitialized` set (Include/internal/pycore_runtime.h, Python/pylifecycle.c).
    """
    return len(flags) == _FLAGS and not any(flags)


def _proven(target: Target, runtime: int, layout: Layout) -> Python:
    """Return the interpreters by this layout. Raises Refused with the check that failed."""
    words = Words(target.image(), 8)
    objects = Objects(target.image(), layout.version)
    notes: list[str] = []
    layout, first = _first_interpreter(words, runtime, layout)
    interpreters = list(_chain(words, first, layout.next_interpreter, notes, "interpreters"))
    states = [
        (interpreter, state)
        for interpreter in interpreters
        for state in _thread_states(words, layout, interpreter, notes)
    ]
    if not states:
        raise Refused("no thread state leads back to its interpreter")
    layout, by_tp = _thread_id(target, words, layout, [state for _interpreter, state in states])
    threads = [
        PythonThread(state, interpreter, by_tp.get(words.at(state + (layout.thread_id or 0)) or 0))
        for interpreter, state in states
    ]
    return Python(target, layout, objects, runtime, interpreters, threads, notes)


def _first_interpreter(words: Words, runtime: int, layout: Layout) -> tuple[Layout, int]:
    if layout.interpreters_head is not None and layout.threads_head is not None:
        first = words.at(runtime + layout.interpreters_head)
        if not first:
            raise Refused("_PyRuntime has no interpreter: Python was not started, or its data is not in the dump")
        return layout, first
    block = words.image.read(runtime, _RUNTIME_WORDS * 8)
    for number in range(len(block) // 8):
        candidate = int.from_bytes(block[8 * number : 8 * number + 8], "little")
        head = _threads_head(words, candidate, layout, runtime) if candidate % 8 == 0 and candidate else None
        if head is not None:
            return replace(layout, interpreters_head=8 * number, threads_head=head), candidate
    raise Refused("no word of _PyRuntime leads to an interpreter whose thread leads back to it")


def _threads_head(words: Words, interpreter: int, layout: Layout, runtime: int) -> Optional[int]:
    """Return where the state of an interpreter has its first thread, or None if it is no such state.

    It has a pointer to the runtime, and the first of its threads has none before it and leads back.
    """
    state = words.many(interpreter, _STATE_WORDS)
    if state is None or runtime not in state:
        return None
    for number, candidate in enumerate(state):
        if candidate % 8 or candidate < 4096:
            continue
        thread = words.many(candidate, 4)
        if thread is not None and thread[layout.interpreter // 8] == interpreter and thread[0] == 0:
            return number * 8
    return None


def _chain(words: Words, first: int, link: int, notes: list[str], what: str) -> Iterator[int]:
    seen: set[int] = set()
    at = first
    while at:
        if at in seen or len(seen) >= _MOST_LINKS:
            notes.append(f"the list of {what} of Python is damaged at {at:#x}: there may be more")
            return
        following = words.at(at + link)
        if following is None:
            notes.append(f"the list of {what} of Python leads to {at:#x}, which is not in the dump: there may be more")
            return
        seen.add(at)
        yield at
        at = following


def _thread_states(words: Words, layout: Layout, interpreter: int, notes: list[str]) -> Iterator[int]:
    first = words.at(interpreter + (layout.threads_head or 0))
    for state in _chain(words, first or 0, layout.next_thread, notes, "threads"):
        if words.at(state + layout.interpreter) != interpreter:
            notes.append(f"the thread state at {state:#x} does not lead back to its interpreter: it is left out")
            return
        yield state


def _thread_id(target: Target, words: Words, layout: Layout, states: Sequence[int]) -> tuple[Layout, dict[int, Thread]]:
    """Return the layout with the place of ``thread_id`` (pthread_self), and the threads by that value.

    pthread_self is the thread pointer on x86 (glibc: struct pthread begins at the TCB). Where the ids are no thread
    pointers (AArch64), ``native_thread_id`` is the kernel's.
    """
    register = target.arch.thread_pointer
    by_tp = {thread.registers.get(register, 0): thread for thread in target.threads()} if register else {}
    by_tp.pop(0, None)
    by_tid = {thread.tid: thread for thread in target.threads()}
    if layout.native_thread_id is not None:
        known = sum(words.at(state + layout.native_thread_id) in by_tid for state in states)
        if known or not by_tp:
            return replace(layout, thread_id=layout.native_thread_id), by_tid
    counts: dict[int, int] = {}
    for state in states:
        block = words.image.read(state, _THREAD_WORDS * 8)
        for at in range(24, len(block) - 7, 8):
            if int.from_bytes(block[at : at + 8], "little") in by_tp:
                counts[at] = counts.get(at, 0) + 1
    if not counts:
        return replace(layout, thread_id=None), {}
    return replace(layout, thread_id=max(counts, key=lambda at: (counts[at], -at))), by_tp


def _prove_frames(python: Python) -> bool:
    """Return whether the frames of the threads are frames in this layout, and there is one at least."""
    frames = [frame for thread in python.threads[:_PROVED] for frame in python.stack(thread, _PROVED).frames]
    for name, size in python.layout.sizes:
        kinds = {python.objects.type_of(frame.address) for frame in frames}
        if any(kind is None or kind.name != name or kind.basicsize != size for kind in kinds):
            return False
    return bool(frames)


def _named_version(target: Target, runtime: int) -> Optional[tuple[int, int]]:
    """Return the release that the process names: in ``Py_Version`` (3.11 and later), or in the name of the file."""
    symbol = target.lookup("Py_Version")
    word = Words(target.image(), 8).at(symbol.address) if symbol is not None else None
    if word is not None and word >> 24 == 3:
        return 3, word >> 16 & 0xFF
    module = module_at(target, runtime)
    found = re.search(r"python(3)\.(\d+)", module.name) if module is not None else None
    return (int(found.group(1)), int(found.group(2))) if found is not None else None
