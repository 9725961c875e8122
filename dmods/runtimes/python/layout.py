"""Where CPython keeps what: offsets in its structures, for each release that dmods reads.

From 3.13 on, ``_PyRuntime`` begins with a table of offsets for debuggers (Include/internal/pycore_debug_offsets.h).
Older releases have none. Their offsets are from their headers, and ``runtime.py`` proves them on the process before
they are believed.
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.base.dataclass import dataclass, replace

NEWEST = (3, 14)
_MOST = 1 << 16  # larger than any offset in these structures, but for those in the state of an interpreter
_MOST_STATE = 1 << 24


@dataclass(frozen=True)
class CodeLayout:
    """Offsets in PyCodeObject. ``start``: where the instructions begin since 3.11; before, co_code is an object."""

    filename: int
    name: int
    qualname: Optional[int]
    linetable: int
    firstlineno: int
    argcount: int
    start: Optional[int] = None
    lines: str = "locations"  # the form of the line table: "lnotab" (3.9), "linetable" (3.10), "locations" (3.11)


@dataclass(frozen=True)
class FrameLayout:
    """Offsets in a frame: PyFrameObject until 3.10, then _PyInterpreterFrame.

    ``at``: offsets to follow from a thread state to its innermost frame. ``last``: the instruction, a pointer; until
    3.10 it is a number of bytes (``unit`` 1) or of instructions (2). ``entry``: the byte that is not 0 in the outermost
    frame of each C call of the interpreter (3.11). ``owner``: whose frame it is (3.11 and later).
    """

    at: tuple[int, ...]
    code: int
    previous: int
    last: int
    unit: int = 0
    entry: Optional[int] = None
    owner: Optional[int] = None
    least_foreign: int = 3  # owners from here on are no Python frames (3.12: FRAME_OWNED_BY_CSTACK)


@dataclass(frozen=True)
class GilLayout:
    """Where the state of an interpreter has the pointer to its GIL, and offsets in that structure."""

    pointer: int
    locked: int
    holder: int


@dataclass(frozen=True)
class Layout:
    """The offsets of one release. None: they are found on the process (``runtime.py``)."""

    version: tuple[int, int]
    frame: FrameLayout
    code: CodeLayout
    interpreters_head: Optional[int] = None
    threads_head: Optional[int] = None
    next_interpreter: int = 0
    next_thread: int = 8
    previous_thread: int = 0
    interpreter: int = 16  # of a thread
    thread_id: Optional[int] = None
    native_thread_id: Optional[int] = None
    sizes: tuple[tuple[str, int], ...] = ()  # tp_basicsize of types that tells the release
    build: Optional[tuple[int, int, int]] = None
    flags: Optional[int] = None  # where _PyRuntime has its flags
    gil: Optional[GilLayout] = None

    @property
    def name(self) -> str:
        """Return the release, as precisely as the process says it."""
        return "CPython " + ".".join(map(str, self.build or self.version))


_CODE_311 = CodeLayout(112, 120, 128, 136, 72, 56, 184)
_OLD_CODE = CodeLayout(104, 112, None, 120, 40, 16, None, "lnotab")

#: Releases without a table of offsets. From Include/cpython/code.h, frameobject.h and pystate.h, and
#: Include/internal/pycore_frame.h, of each.
KNOWN = (
    Layout(
        (3, 12), FrameLayout((56, 0), 0, 8, 56, owner=70), replace(_CODE_311, firstlineno=68, argcount=52, start=192)
    ),
    Layout((3, 11), FrameLayout((56, 8), 32, 48, 56, entry=68, owner=69), _CODE_311),
    Layout((3, 10), FrameLayout((24,), 32, 24, 96, 2), replace(_OLD_CODE, lines="linetable"), sizes=(("frame", 360),)),
    Layout((3, 9), FrameLayout((24,), 32, 24, 104, 1), _OLD_CODE, sizes=(("frame", 368),)),
)

# The tables of _Py_DebugOffsets in their order, until the last field that is read here.
_RUNTIME = ("size", "finalizing", "head")
_GIL = ("gil", "gil_state", "gil_enabled", "gil_locked", "gil_holder")
_INTERPRETER = ("size", "id", "next", "threads", "gc", "modules", "sysdict", "builtins", *_GIL)
_INTERPRETER_314 = ("size", "id", "next", "threads", "main", *_INTERPRETER[4:], "code_generation", "tlbc_generation")
_THREAD = ("size", "prev", "next", "interp", "frame", "id", "native", "chunk", "status")
_FRAME = ("size", "previous", "executable", "instr", "locals", "owner")
_CODE = ("size", "filename", "name", "qualname", "linetable", "firstlineno", "argcount", "names", "kinds", "start")
_TABLES = {
    (3, 13): (_RUNTIME, _INTERPRETER, _THREAD, _FRAME, _CODE, ("size", "ob_type"), ("size", "tp_name")),
    (3, 14): (
        _RUNTIME,
        _INTERPRETER_314,
        _THREAD,
        (*_FRAME, "stackpointer", "tlbc"),
        (*_CODE, "tlbc"),
        ("size", "ob_type"),
        ("size", "tp_name"),
    ),
}
TABLE_SIZE = 1024  # bytes that hold every table


class Refused(Exception):
    """The interpreter is one that dmods does not read. The text says why."""


class NotStarted(Refused):
    """The program is linked with CPython and never began to start it."""


def from_table(data: bytes) -> Layout:
    """Return the layout that the table at the start of _PyRuntime gives. Raises Refused."""
    version_word, free_threaded = struct.unpack_from("<QQ", data, 8) if len(data) >= 24 else (0, 0)
    build = (version_word >> 24 & 0xFF, version_word >> 16 & 0xFF, version_word >> 8 & 0xFF)
    version = build[:2]
    name = "CPython " + ".".join(map(str, build))
    if free_threaded:
        raise Refused(f"{name} is a free-threaded build (without GIL): dmods does not read it")
    if version not in _TABLES:
        raise Refused(f"{name}: dmods reads 3.9 to {NEWEST[0]}.{NEWEST[1]}")
    at, tables = 24, []
    for fields in _TABLES[version]:
        if len(data) < at + 8 * len(fields):
            raise Refused(f"{name}: its table of offsets is not in the dump")
        tables.append(dict(zip(fields, struct.unpack_from(f"<{len(fields)}Q", data, at))))
        at += 8 * len(fields)
    runtime, interpreter, thread, frame, code, base, kind = tables
    inside = all(value < table["size"] for table in tables for field, value in table.items() if field != "size")
    small = all(table["size"] < _MOST for table in (thread, frame, code)) and interpreter["size"] < _MOST_STATE
    if not inside or not small or base["ob_type"] != 8 or kind["tp_name"] != 24:
        raise Refused(f"{name}: its table of offsets is damaged")
    foreign = 3
    return Layout(
        version,
        FrameLayout(
            (thread["frame"],),
            frame["executable"],
            frame["previous"],
            frame["instr"],
            owner=frame["owner"],
            least_foreign=foreign,
        ),
        CodeLayout(
            code["filename"],
            code["name"],
            code["qualname"],
            code["linetable"],
            code["firstlineno"],
            code["argcount"],
            code["start"],
        ),
        runtime["head"],
        interpreter["threads"],
        interpreter["next"],
        thread["next"],
        thread["prev"],
        thread["interp"],
        thread["id"],
        thread["native"],
        build=build,
        # Five ints and a gap stand before _finalizing (Include/internal/pycore_runtime.h).
        flags=runtime["finalizing"] - 24 if runtime["finalizing"] >= 24 else None,
        gil=_gil(interpreter),
    )


def _gil(interpreter: dict[str, int]) -> Optional[GilLayout]:
    """Return where the GIL is; None where the table says that its parts lie before it."""
    start = interpreter["gil_state"]
    locked, holder = interpreter["gil_locked"] - start, interpreter["gil_holder"] - start
    return GilLayout(interpreter["gil"], locked, holder) if min(locked, holder) >= 0 else None
