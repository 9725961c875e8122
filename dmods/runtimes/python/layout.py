"""Where CPython keeps what: offsets in its structures, for each release that dmods reads.

From 3.13 on, ``_PyRuntime`` begins with a table of offsets for debuggers (``debug_offsets.py``). Older releases have
none. Their offsets are from their headers, and ``runtime.py`` proves them on the process before they are believed.
"""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass, replace


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
    thread_size: int = 0  # of the state of a thread, where a table says it
    chunk: int = 0  # where the state of a thread has the last chunk of its stack of frames, where a table says it

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


class Refused(Exception):
    """The interpreter is one that dmods does not read. The text says why."""


class NotStarted(Refused):
    """The program is linked with CPython and never began to start it."""
