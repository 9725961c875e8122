"""The stacks of allocation records in words, and the frame that each stack blames."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from dmods._engine import demangle
from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.modules.lines import SourceFrame, source_lines
from dmods.process.addresses import describe_code, module_at
from dmods.process.shapes import Frame, frame_value
from dmods.process.source import source_cells, source_place, text_lines
from dmods.records.model import Stack
from dmods.target import Symbol, Target

UNKNOWN = "?"  # the caller of a block without a record
Place = tuple[int, bool]  # a frame: (address, whether it is exact: else it is a return address)

# Modules that contain an allocator or a recorder and nothing else.
_MODULES = regex(r"^lib(dmods_audit|jemalloc|tcmalloc(_minimal)?|mimalloc)\b")
# The allocator's own functions where they share a module with others: the C family (and glibc's insides of it), C++'s
# operators (Itanium ABI: _Znw, _Zna), Rust's shims, jemalloc linked into the program.
_FUNCTIONS = regex(
    r"^(__libc_|__|_int_|_)?(malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|pvalloc"
    r"|free|cfree)$"
    r"|^_Zn[wa][mj]"
    r"|(^|[^a-z])__(rust|rdl|rg)_(alloc|realloc|alloc_zeroed|dealloc)$"
    r"|^(_rjem_|je_)"
)


class Caller(NamedTuple):
    """The frame that a stack blames. ``pc`` is 0 where there is no stack.

    ``source`` is "file.c:42", or "" where it is not known or was not asked for.
    """

    text: str
    pc: int
    source: str = ""


class Callers:
    """Names the frames of one target, and finds the caller in a stack. Names are kept.

    CALLER is the first frame that is not the allocator, the recorder or a wrapper (``dmods.records.wrappers``). `skip`
    is a pattern of further functions to skip; it is searched for in the demangled name. With `all_frames`, wrappers
    are not skipped. With `lines`, source lines and inlined functions are looked up in debug information: that takes
    time, so it is only for stacks that are shown.
    """

    def __init__(
        self,
        target: Target,
        skip: Optional[re.Pattern[str]] = None,
        all_frames: bool = False,
        *,
        lines: bool = False,
    ) -> None:
        self._target = target
        self.lines = lines
        self._skip = skip
        self._all_frames = all_frames
        self._names: dict[Place, str] = {}
        self._values: dict[Place, Frame] = {}
        self._symbols: dict[int, Optional[Symbol]] = {}
        self._skipped: dict[int, bool] = {}
        self._allocators: dict[int, bool] = {}

    def name(self, frame: Place) -> str:
        """Return ``symbol+offset``, with the module before a backquote where it is not the program."""
        if frame not in self._names:
            pc, _exact = frame
            self._names[frame] = describe_code(self._target, pc, _inside(frame))
        return self._names[frame]

    def names(self, stack: Stack) -> Iterator[str]:
        """Yield the name of each frame, innermost first."""
        return (self.name(frame) for frame in stack.frames)

    def source(self, frame: Place) -> list[SourceFrame]:
        """Return the functions at a frame with their source lines, innermost first; [] without `lines`."""
        return source_lines(self._target).frames_at(_inside(frame), exact=True) if self.lines else []

    def text_lines(self, frame: Place) -> list[str]:
        """Return a frame as lines of text: the functions that were inlined there, then the frame itself."""
        return text_lines(self.name(frame), self.source(frame))

    def frames(self, stack: Stack) -> list[Frame]:
        """Return the stack's frames for a "stack" column (JSON)."""
        return [self._value(frame) for frame in stack.frames]

    def caller(self, stack: Stack) -> Caller:
        """Return the first frame that is not skipped.

        Where all frames are skipped, it is the first that is not the allocator's; without any, the last frame. The
        text is UNKNOWN without a stack.
        """
        frame = self.caller_frame(stack)
        if frame is None:
            return Caller(UNKNOWN, 0)
        source = self.source(frame)
        return Caller(self.name(frame), frame[0], source_place(source[-1]) if source else "")

    def caller_frame(self, stack: Stack) -> Optional[Place]:
        """Return the frame that ``caller`` names, or None without a stack."""
        return next(iter(self.blamed(stack, 1)), None)

    def blamed(self, stack: Stack, most: int) -> list[Place]:
        """Return up to `most` frames that are neither the allocator's nor a wrapper's, innermost first.

        There is at least one, unless the stack is empty.
        """
        found: list[Place] = []
        for frame in stack.frames:
            if not self.is_skipped(frame):
                found.append(frame)
                if len(found) == most:
                    break
        if not found:
            found.extend([frame for frame in stack.frames if not self.is_allocator(frame)][:1] or stack.frames[-1:])
        return found

    def passes(self, stack: Stack, address: int) -> bool:
        """Return whether the stack has a frame at the address, or in the function that begins there."""
        return any(address in (frame[0], self.function(frame)) for frame in stack.frames)

    def function(self, frame: Place) -> Optional[int]:
        """Return where the frame's function begins, or None where no symbol is known."""
        symbol = self._symbol(frame)
        return symbol.address if symbol is not None else None

    def function_name(self, frame: Place) -> str:
        """Return the frame's function as ``name`` shows it, without the offset."""
        start = self.function(frame)
        return self.name(frame) if start is None else describe_code(self._target, start, _inside(frame))

    def library(self, frame: Place) -> str:
        """Return the name of the module that holds the frame, or UNKNOWN."""
        module = module_at(self._target, _inside(frame))
        return module.name if module is not None else UNKNOWN

    def is_skipped(self, frame: Place) -> bool:
        """Return whether CALLER passes over the frame."""
        at = _inside(frame)
        if at not in self._skipped:
            self._skipped[at] = self.is_allocator(frame) or self._is_wrapper(frame)
        return self._skipped[at]

    def _value(self, frame: Place) -> Frame:
        value = self._values.get(frame)
        if value is None:
            module = module_at(self._target, _inside(frame))
            value = frame_value(
                frame[0],
                self.name(frame),
                module.name if module is not None else None,
                frame[1],
                **source_cells(self.source(frame)),
            )
            self._values[frame] = value
        return value

    def _is_wrapper(self, frame: Place) -> bool:
        symbol = self._symbol(frame)
        if symbol is None:
            return False
        from dmods.records.wrappers import is_wrapper  # only a process with records has stacks

        name = demangle(symbol.name)
        if not self._all_frames and is_wrapper(symbol.name, name):
            return True
        return self._skip is not None and self._skip.search(name) is not None

    def is_allocator(self, frame: Place) -> bool:
        """Return whether the frame belongs to the allocator or the recorder itself, or to operator new and its kin."""
        at = _inside(frame)
        if at not in self._allocators:
            symbol = self._symbol(frame)
            module = module_at(self._target, at)
            self._allocators[at] = (module is not None and _MODULES.match(module.name) is not None) or (
                symbol is not None and _FUNCTIONS.search(symbol.name) is not None
            )
        return self._allocators[at]

    def _symbol(self, frame: Place) -> Optional[Symbol]:
        at = _inside(frame)
        if at not in self._symbols:
            self._symbols[at] = self._target.symbol_at(at)
        return self._symbols[at]


def source_of(target: Target, frame: Place) -> Optional[str]:
    """Return the source file of the frame's function, or None without debug information."""
    frames = source_lines(target).frames_at(_inside(frame), exact=True)
    return frames[-1].file if frames else None


def _inside(frame: Place) -> int:
    """Return an address in the instruction: a return address may belong to the next function."""
    return frame[0] if frame[1] else frame[0] - 1
