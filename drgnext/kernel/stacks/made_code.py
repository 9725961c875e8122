"""Code that the kernel has made as it ran: trampolines of ftrace, instruction slots of kprobes, compiled BPF.

None of it is in a symbol table, and it has no unwind tables of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.cached_memory import Memory
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.probes import BpfImage, BpfLine, Probes, bpf_line

if TYPE_CHECKING:
    from drgn import Program


# A function that keeps a frame pointer, behind its prologue (orc_fp_entry of arch/x86/kernel/unwind_orc.c).
WITH_FRAME_POINTER = orc.Rule(orc.CALL, "rbp", 16, False, 0, "prev", -16, False)
_PUSHED = orc.Rule(orc.CALL, "rsp", 16, False, 0, "prev", -16, False)  # between `push %rbp` and `mov %rsp, %rbp`
_NO_FRAME = orc.Rule(orc.CALL, "rsp", 8, False, 0, "", 0, False)

_PROLOGUE = b"\x55\x48\x89\xe5"  # push %rbp; mov %rsp, %rbp
_LEAVE_AND_RETURN = (b"\xc9\xc3", b"\xc9\xe9")  # leave; ret, or a jump to the thunk that returns
_LOWEST = 0xFFFF_8000_0000_0000  # of the kernel's addresses, where vmalloc may be
_LARGEST = 1 << 30  # bytes of one area of code
_LONGEST_PROLOGUE = 32  # bytes before it: nops to patch, endbr64, the counter of tail calls


class MadeCode(NamedTuple):
    """A piece of such code.

    ``module`` is what /proc/kallsyms has in brackets. ``like`` is where vmlinux has the code that this was copied from,
    or 0. ``probed`` is the address of the kprobe, for its detour or its slot, or 0. ``image`` is what BPF knows of it.
    """

    start: int
    end: int
    name: str
    module: str
    like: int = 0
    probed: int = 0
    image: Optional[BpfImage] = None


class MadeCodes:
    """All code that the kernel has made. It is read when it is first asked for."""

    def __init__(self, prog: Program, memory: Memory) -> None:
        self._prog = prog
        self._memory = memory
        self.probes = Probes(prog)
        self._areas: dict[int, Optional[MadeCode]] = {}  # by page

    @property
    def notes(self) -> list[str]:
        """Return what could not be read."""
        return self.probes.notes

    @cached_property
    def _all(self) -> list[MadeCode]:
        """Return all pieces by address."""
        probes = self.probes
        found = [MadeCode(one.start, one.end, one.name, "bpf", image=one) for one in probes.bpf]
        # The kernel copies one of two functions (create_trampoline, arch/x86/kernel/ftrace.c).
        plain, regs = self._symbol("ftrace_caller"), self._symbol("ftrace_regs_caller")
        for ops in probes.ftrace:
            if ops.trampoline is not None:
                found.append(MadeCode(*ops.trampoline, "ftrace_trampoline", "ftrace", like=regs if ops.regs else plain))
        pages = probes.slots
        for probe in probes.kprobes:
            if probe.detour is not None and _within(pages, probe.detour[0]):
                found.append(MadeCode(*probe.detour, "kprobe_optinsn_page", "kprobes", probed=probe.address))
            if probe.slot is not None and _within(pages, probe.slot):
                # A slot has MAX_INSN_SIZE bytes, and a jump back since 5.12.
                found.append(MadeCode(probe.slot, probe.slot + 21, "kprobe_insn_page", "kprobes", probed=probe.address))
        return sorted({(one.start, one.end): one for one in found}.values())

    @cached_property
    def _starts(self) -> list[int]:
        """Return where the pieces begin."""
        return [one.start for one in self._all]

    def at(self, address: int) -> Optional[MadeCode]:
        """Return the piece that holds the address, or None."""
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._all[at].end:
            return self._all[at]
        return self._without_symbol(address) if address >= _LOWEST else None

    def _without_symbol(self, address: int) -> Optional[MadeCode]:
        """Return the memory for BPF's code around the address, or None.

        The kernel keeps no symbol of a program that was made from classic BPF (seccomp, tcpdump).
        """
        page = address >> 12
        if page not in self._areas:
            self._areas[page] = self._area(address)
        return self._areas[page]

    def _area(self, address: int) -> Optional[MadeCode]:
        """Return the vmalloc area around the address, if it was allocated for BPF's code."""
        from drgn import FaultError
        from drgn.helpers.linux.mm import find_vmap_area

        try:
            area = find_vmap_area(self._prog, address)
            if not area or not area.vm:
                return None
            start, end = int(area.va_start), int(area.va_end)
            for_bpf = start in self.probes.packs
            if not for_bpf:
                # Up to 5.17 each program has an area of its own, which a function of BPF asked for.
                for_bpf = self._prog.symbol(int(area.vm.caller)).name.startswith(("bpf_", "__bpf_"))
        except (FaultError, LookupError, ValueError, AttributeError):
            return None
        return MadeCode(start, end, "bpf_prog", "bpf") if for_bpf and end - start <= _LARGEST else None

    def line(self, address: int) -> Optional[BpfLine]:
        """Return the line of source of an instruction in a BPF program, or None."""
        made = self.at(address)
        return bpf_line(self._prog, made.image, address) if made is not None and made.image is not None else None

    def rule(self, made: MadeCode, pc: int) -> Optional[orc.Rule]:
        """Return the rule at ``pc`` in BPF's code on x86, which keeps a frame pointer. None for other code.

        ``pc`` is an instruction that runs next. Where BPF's code has called a function, WITH_FRAME_POINTER holds.
        """
        if made.module != "bpf":
            return None
        if made.name.startswith("bpf_dispatcher_"):
            return _NO_FRAME  # it only compares and jumps
        code = self._memory.read(made.start, min(made.end - made.start, _LONGEST_PROLOGUE + len(_PROLOGUE)))
        push = code.find(_PROLOGUE)
        around = self._memory.read(pc - 1, 1 + len(_PROLOGUE))
        if (push >= 0 and pc <= made.start + push) or around[1:] == _PROLOGUE:
            return _NO_FRAME
        if around.startswith(_PROLOGUE):
            return _PUSHED
        if around[:2] in _LEAVE_AND_RETURN:
            return _NO_FRAME
        return WITH_FRAME_POINTER

    @cached_property
    def template(self) -> int:
        """Return the size of the template of detours, which the copied instructions follow. 0 if unknown."""
        start, end = self._symbol("optprobe_template_entry"), self._symbol("optprobe_template_end")
        return end - start if 0 < start < end < start + 4096 else 0

    def _symbol(self, name: str) -> int:
        """Return the address of a symbol, or 0."""
        try:
            return int(self._prog.symbol(name).address)
        except LookupError:
            return 0


def _within(pages: list[tuple[int, int, str]], address: int) -> bool:
    """Return whether the address lies in one of the pages."""
    return any(start <= address < end for start, end, _name in pages)
