"""The stacks of allocation records in words, and whom they blame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from dmods.names import describe_code, module_at
from dmods.records import Stack
from dmods.target import Target

UNKNOWN = "?"  # the caller of a block without a record

# Modules that are allocators or recorders and nothing else.
_MODULES = re.compile(r"^lib(dmods_audit|jemalloc|tcmalloc(_minimal)?)\b")
# The allocator's own functions where they share a module with others: the C family (and glibc's insides of it), C++'s
# operators (Itanium ABI: _Znw, _Zna), Rust's shims, jemalloc linked into the program.
_FUNCTIONS = re.compile(
    r"^(__libc_|__|_int_|_)?(malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|pvalloc"
    r"|free|cfree)$"
    r"|^_Zn[wa][mj]"
    r"|(^|[^a-z])__(rust|rdl|rg)_(alloc|realloc|alloc_zeroed|dealloc)$"
    r"|^(_rjem_|je_)"
)


class Caller(NamedTuple):
    text: str
    pc: int


class Callers:
    """Of one target; what it has named it remembers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._names: dict[tuple[int, bool], str] = {}
        self._own: dict[int, bool] = {}
        self._functions: dict[int, Optional[int]] = {}

    def name(self, frame: tuple[int, bool]) -> str:
        """``symbol+offset``, with the module before a backquote where it is not the program."""
        if frame not in self._names:
            pc, exact = frame
            self._names[frame] = describe_code(self._target, pc, pc if exact else pc - 1)
        return self._names[frame]

    def names(self, stack: Stack) -> Iterator[str]:
        return (self.name(frame) for frame in stack.frames)

    def caller(self, stack: Stack) -> Caller:
        """The first frame that is neither the recorder's nor the allocator's own, as libumem's ::findleaks has it:
        strdup in libc is a caller, operator new is not. UNKNOWN without a stack."""
        for frame in stack.frames:
            if not self._is_allocator(frame):
                return Caller(self.name(frame), frame[0])
        last = stack.frames[-1] if stack.frames else None
        return Caller(self.name(last), last[0]) if last is not None else Caller(UNKNOWN, 0)

    def passes(self, stack: Stack, address: int) -> bool:
        """Whether the stack has a frame at the address, or in the function that begins there."""
        return any(address in (pc, self._function(pc if exact else pc - 1)) for pc, exact in stack.frames)

    def _is_allocator(self, frame: tuple[int, bool]) -> bool:
        at = frame[0] if frame[1] else frame[0] - 1
        if at not in self._own:
            symbol = self._target.symbol_at(at)
            module = module_at(self._target, at)
            self._own[at] = (module is not None and _MODULES.match(module.name) is not None) or (
                symbol is not None and _FUNCTIONS.search(symbol.name) is not None
            )
        return self._own[at]

    def _function(self, at: int) -> Optional[int]:
        if at not in self._functions:
            symbol = self._target.symbol_at(at)
            self._functions[at] = symbol.address if symbol is not None else None
        return self._functions[at]
