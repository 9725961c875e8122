"""Code addresses as people read them: function+offset, the module before a backquote where it is not vmlinux, and the
line of source. Each address is looked up once."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from drgnext.kernel.code import KernelCode
from drgnext.kernel.stacks import Frame


class Function(NamedTuple):
    name: str
    start: int
    module: str  # "" for vmlinux


class Line(NamedTuple):
    """``path`` as the compiler was told it; ``function`` is the one written there, which may be inlined."""

    path: str
    line: int
    function: Optional[str]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Places:
    """``step`` is what to take off a return address to be inside the call."""

    def __init__(self, prog: Any, code: KernelCode, step: int) -> None:
        self._prog = prog
        self._code = code
        self._step = step
        self._functions: dict[int, Optional[Function]] = {}
        self._lines: dict[int, list[Line]] = {}
        self._asked_kallsyms = False
        self._kallsyms: Optional[Any] = None

    def inside(self, frame: Frame) -> int:
        """An address inside the instruction: what to look names and lines up with. A return address may belong to the
        next function, when the call before it does not return."""
        return frame.pc if frame.exact else frame.pc - self._step

    def function(self, address: int) -> Optional[Function]:
        """The function that holds the address."""
        if address not in self._functions:
            self._functions[address] = self._find(address)
        return self._functions[address]

    def where(self, frame: Frame) -> str:
        """``module`function+offset`` of the frame's pc."""
        return self.describe(frame.pc, self.inside(frame))

    def describe(self, address: int, inside: Optional[int] = None) -> str:
        """Of any address. ``inside``: an address in the function meant."""
        at = address if inside is None else inside
        function = self.function(at)
        if function is None:
            text = self._code.text_at(at)
            return f"{text.module}`{address:#x}" if text is not None and text.module else f"{address:#x}"
        offset = address - function.start
        name = f"{function.name}+{offset:#x}" if offset else function.name
        return f"{function.module}`{name}" if function.module else name

    def name(self, frame: Frame) -> str:
        """The function's name alone; "" where it is not known."""
        function = self.function(self.inside(frame))
        return function.name if function else ""

    def lines(self, address: int) -> list[Line]:
        """The line of the instruction at ``address``; then, where it is in inlined code, the lines of the calls that
        were inlined. Empty without debugging information."""
        if address not in self._lines:
            self._lines[address] = self._find_lines(address)
        return self._lines[address]

    def source(self, frame: Frame) -> Optional[str]:
        lines = self.lines(self.inside(frame))
        return str(lines[0]) if lines else None

    def _find(self, address: int) -> Optional[Function]:
        text = self._code.text_at(address)
        try:
            symbol = self._prog.symbol(address)
        except (LookupError, ValueError, OverflowError):
            symbol = self._from_kallsyms(address) if text is not None else None
        if symbol is None or text is None:
            return None
        return Function(symbol.name, int(symbol.address), text.module)

    def _from_kallsyms(self, address: int) -> Optional[Any]:
        """The kernel's own symbol table names what no file does (a module whose .ko is not at hand)."""
        if not self._asked_kallsyms:
            self._asked_kallsyms = True
            self._kallsyms = _kallsyms(self._prog)
        found = self._kallsyms(self._prog, None, address, True) if self._kallsyms is not None else []
        return found[0] if found else None

    def _find_lines(self, address: int) -> list[Line]:
        try:
            found = self._prog.source_location(address)
        except _no_line():
            return []
        return [Line(os.path.normpath(line.filename), line.line, line.name()) for line in found if line.filename]


def _no_line() -> tuple[type[Exception], ...]:
    """What drgn raises where there is no line, of debugging information that contradicts itself, and where it leads to
    memory that is not in the dump."""
    import drgn

    # BadDataError is not in every release that is supported; those before it raise Exception itself, which cannot be
    # told from a defect.
    names = ("BadDataError", "FaultError", "MissingDebugInfoError", "OutOfBoundsError")
    of_drgn = (getattr(drgn, name) for name in names if hasattr(drgn, name))
    return (LookupError, ValueError, OverflowError, *of_drgn)


def _kallsyms(prog: Any) -> Optional[Any]:
    from drgn import FaultError
    from drgn.helpers.linux.kallsyms import load_module_kallsyms

    try:
        return load_module_kallsyms(prog)
    except (FaultError, LookupError, ValueError, AttributeError):
        return None
