"""The caller of a frame in a module without tables of its own (ORC), from the debug information of the module's file.

objtool makes ORC. A module that was built without it has none. The compiler has described the frames for debuggers all
the same (.debug_frame), and drgn reads that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from drgnext.kernel.stacks.frames import Frame

if TYPE_CHECKING:
    from drgn import Program

    from drgnext.kernel.stacks.code import KernelCode

_KERNEL_CODE, _KERNEL_STACK = 0x10, 0x18  # __KERNEL_CS, __KERNEL_DS (asm/segment.h)
_SECTIONS = frozenset({".debug_frame", ".eh_frame"})
_LARGEST_STACK = 1 << 16  # bytes: no frame of a kernel is larger
# Our names of registers, and those of struct pt_regs (asm/ptrace.h).
_MEMBERS = {
    **{name: name for name in ("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")},
    **{f"r{name}": name for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "ip", "sp")},
}


class DebugFrames:
    """Finds callers by .debug_frame of modules' files, on x86-64."""

    def __init__(self, prog: Program, code: KernelCode) -> None:
        self._prog = prog
        self._code = code
        self._described: dict[str, bool] = {}  # by the path of a file

    def caller(self, frame: Frame) -> Optional[Frame]:
        """Return the caller of a frame in a module, or None if no file describes it, or the kernel itself has no ORC.

        The caller's rbp is left out where nothing says what it is.
        """
        from drgn import FaultError, Object

        inside = frame.pc if frame.exact else frame.pc - 1
        text = self._code.text_at(inside)
        if text is None or not text.module or self._code.format is None or not self._has_description(inside):
            return None
        known = {_MEMBERS[name]: value for name, value in frame.registers.items() if name in _MEMBERS}
        values = {**known, "ip": inside, "sp": frame.sp, "cs": _KERNEL_CODE, "ss": _KERNEL_STACK}
        try:
            trace = self._prog.stack_trace(Object(self._prog, "struct pt_regs", values))
            # Functions that are inlined there have frames of their own, with the same registers.
            own = next(index for index in range(len(trace)) if not trace[index].is_inline)
            found = trace[own + 1]
            pc, sp, bp = found.pc, found.sp, None
            if "rbp" in frame.registers:
                bp = found.registers().get("rbp")
        except (FaultError, LookupError, ValueError, OverflowError, TypeError, StopIteration, IndexError):
            return None
        if not frame.sp < sp <= frame.sp + _LARGEST_STACK:
            return None
        registers = {"rip": pc, "rsp": sp}
        return Frame(pc, sp, False, "unwind", registers if bp is None else {**registers, "rbp": bp})

    def _has_description(self, pc: int) -> bool:
        """Return whether the file of the module that holds the pc describes frames."""
        try:
            path = self._prog.module(pc).debug_file_path
        except (LookupError, AttributeError):  # drgn before 0.1.0 has no modules
            return False
        if path is None:
            return False
        if path not in self._described:
            self._described[path] = _describes(path)
        return self._described[path]


def _describes(path: str) -> bool:
    """Return whether the ELF file has a section with descriptions of frames."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as file:
            return any(section.name in _SECTIONS and section["sh_size"] for section in ELFFile(file).iter_sections())
    except (OSError, ELFError, ValueError, KeyError, OverflowError):
        return False
