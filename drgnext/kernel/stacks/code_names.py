"""Code addresses as people read them: function+offset, the module before a backquote, and the line of source.

vmlinux has no module name. Each address is looked up once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.code import KernelCode
from drgnext.kernel.stacks.frames import Frame
from drgnext.kernel.stacks.traps import TrapFrame
from drgnext.kernel.stacks.vmlinux_symbols import VmlinuxSymbols

if TYPE_CHECKING:
    from drgn import Program, Symbol, SymbolIndex


_MOST_PADDING = 64  # bytes behind a function (CONFIG_FUNCTION_ALIGNMENT)


class Function(NamedTuple):
    """A function: its name, its first address, and its module.

    The module of code that the kernel has made as it ran is "bpf", "ftrace" or "kprobes".
    """

    name: str
    start: int
    module: str  # "" for vmlinux


class Line(NamedTuple):
    """A line of source.

    ``path`` is the path that the compiler got. ``function`` is the function written there, which may be inlined.
    """

    path: str
    line: int
    function: Optional[str]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class CodeNames:
    """The names and lines of code addresses.

    ``step`` is what to subtract from a return address to get inside the call.
    """

    def __init__(self, prog: Program, code: KernelCode, step: int) -> None:
        self._prog = prog
        self._code = code
        self._step = step
        self._functions: dict[int, Optional[Function]] = {}
        self._lines: dict[int, list[Line]] = {}
        self._kallsyms: dict[str, Optional[SymbolIndex]] = {}
        self._vmlinux = VmlinuxSymbols(prog)

    def inside(self, frame: Frame) -> int:
        """Return an address inside the frame's instruction, for looking up names and lines.

        A return address may belong to the next function, if the call before it does not return. A breakpoint saves the
        address of the next instruction, too (int3: a trap, not a fault; SDM volume 3, 6.5).
        """
        if frame.trap is not None and frame.exact:
            return self.trapped_at(frame.trap, frame.pc)
        return frame.pc if frame.exact else frame.pc - self._step

    def trapped_at(self, trap: TrapFrame, pc: int) -> int:
        """Return the address of the instruction that trapped. ``pc`` is the saved one, which is behind a breakpoint."""
        return pc - self._step if self._is_breakpoint(trap) else pc

    def _is_breakpoint(self, trap: TrapFrame) -> bool:
        """Return whether an int3 saved the registers. It has one byte."""
        entry = self.function(trap.entry) if trap.entry is not None else None
        return entry is not None and entry.name in ("asm_exc_int3", "int3")

    def function(self, address: int) -> Optional[Function]:
        """Return the function that holds the address, or None."""
        if address not in self._functions:
            self._functions[address] = self._find(address)
        return self._functions[address]

    def where(self, frame: Frame) -> str:
        """Return ``module`function+offset`` of the frame's pc."""
        return self.describe(frame.pc, self.inside(frame))

    def describe(self, address: int, inside: Optional[int] = None) -> str:
        """Return ``module`function+offset`` of an address. ``inside`` is another address in the same function."""
        at = address if inside is None else inside
        function = self.function(at)
        if function is None:
            text = self._code.text_at(at)
            return f"{text.module}`{address:#x}" if text is not None and text.module else f"{address:#x}"
        offset = address - function.start
        name = f"{function.name}+{offset:#x}" if offset else function.name
        return f"{function.module}`{name}" if function.module else name

    def name(self, frame: Frame) -> str:
        """Return the function's name alone, or "" if it is not known."""
        function = self.function(self.inside(frame))
        return function.name if function else ""

    def lines(self, address: int) -> list[Line]:
        """Return the line of the instruction at ``address``. Return [] without debug information.

        In inlined code the lines of the inlined calls follow.
        """
        if address not in self._lines:
            self._lines[address] = self._find_lines(address)
        return self._lines[address]

    def source(self, frame: Frame) -> Optional[str]:
        """Return the line of source of the frame, or None."""
        lines = self.lines(self.inside(frame))
        return str(lines[0]) if lines else None

    def source_of(self, name: str, offset: int, size: int, exact: bool) -> Optional[str]:
        """Return the line of source of name+offset/size, as a log has it, or None.

        If not ``exact``, it is a return address. The kernel counts the padding behind a function as a part of it. So
        the symbol may be smaller. A name that fits several functions has no line.
        """
        try:
            symbols = self._prog.symbols(name)
        except (LookupError, ValueError):
            return None
        fitting = {int(one.address) for one in symbols if not one.size or 0 <= size - int(one.size) < _MOST_PADDING}
        if len(fitting) != 1:
            return None
        lines = self.lines(fitting.pop() + offset - (0 if exact else self._step))
        return str(lines[0]) if lines else None

    def _find(self, address: int) -> Optional[Function]:
        """Return the function that holds the address, from debug information or kallsyms."""
        text = self._code.text_at(address)
        made = self._code.made_at(address)
        if made is not None:
            return Function(made.name, made.start, made.module)
        if text is not None and not text.module and (name := self._vmlinux.at(address)) is not None:
            return Function(*name, text.module)
        try:
            symbol: Optional[Symbol] = self._prog.symbol(address)
        except (LookupError, ValueError, OverflowError):
            symbol = self._from_kallsyms(address, text.module) if text is not None else None
        if symbol is None or text is None:
            return None
        return Function(symbol.name, int(symbol.address), text.module)

    def _from_kallsyms(self, address: int, module: str) -> Optional[Symbol]:
        """Return the symbol from the module's own symbol table in the kernel's memory, or None.

        It names what no file names (a module whose .ko is missing).
        """
        if module not in self._kallsyms:
            self._kallsyms[module] = _kallsyms(self._prog, module)
        index = self._kallsyms[module]
        found = index(self._prog, None, address, True) if index is not None else []
        return found[0] if found else None

    def _find_lines(self, address: int) -> list[Line]:
        """Return the lines at the address, innermost first."""
        made = self._code.made_at(address)
        if made is not None:
            line = self._code.made.line(address)
            return [Line(line.path, line.line, made.name)] if line is not None else []
        if not hasattr(self._prog, "source_location"):  # drgn before 0.1.0: Threads.notes says so
            return []
        try:
            found = self._prog.source_location(address)
        except _no_line():
            return []
        return [Line(os.path.normpath(line.filename), line.line, line.name()) for line in found if line.filename]


def _no_line() -> tuple[type[Exception], ...]:
    """Return the exceptions that drgn raises where it has no line.

    It also raises them for debug information that contradicts itself, or that refers to memory missing from the dump.
    """
    import drgn

    # Older releases that dmods supports lack BadDataError. They raise Exception itself, which could also be a defect.
    names = ("BadDataError", "FaultError", "MissingDebugInfoError", "OutOfBoundsError")
    of_drgn = (getattr(drgn, name) for name in names if hasattr(drgn, name))
    return (LookupError, ValueError, OverflowError, *of_drgn)


def _kallsyms(prog: Program, module: str) -> Optional[SymbolIndex]:
    """Return the index of a module's own symbol table, or None if it has none or the dump lacks it."""
    from drgn import FaultError, SymbolIndex
    from drgn.helpers.linux.kallsyms import module_kallsyms
    from drgn.helpers.linux.module import find_module

    try:
        loaded = find_module(prog, module)  # the tables of all modules would take 25 ms to read
        return SymbolIndex(module_kallsyms(loaded)) if loaded else None
    except (FaultError, LookupError, ValueError, AttributeError):
        return None
