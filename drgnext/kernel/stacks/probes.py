"""Find what tracing has put into the kernel's code: kprobes, callbacks of ftrace, and BPF programs.

The kernel keeps them in lists: kprobe_table (kernel/kprobes.c), ftrace_ops_list (kernel/trace/ftrace.c) and
bpf_kallsyms (kernel/bpf/core.c). Each list is bounded here. A damaged list costs only its rest, and gives a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple

if TYPE_CHECKING:
    from drgn import Object, Program

_MOST = 1 << 16  # entries of one list
_MOST_CODE = 1 << 24  # bytes of one piece of code
_LONGEST_PATH = 4096

_DISABLED, _OPTIMIZED, _ON_FTRACE = 2, 4, 8  # KPROBE_FLAG_* (linux/kprobes.h); the numbers have not changed since 3.7


class Kprobe(NamedTuple):
    """A struct kprobe that is in use at an address.

    ``slot`` is the copy of the probed instruction. ``detour`` is (start, end) of the code that an optimized kprobe
    jumps to. Both are None without such code. ``handlers`` are the addresses of the functions that it calls first.
    ``returns``: they are called when the probed function returns.
    """

    structure: int
    address: int
    flags: int
    handlers: tuple[int, ...]
    slot: Optional[int]
    detour: Optional[tuple[int, int]]
    returns: bool

    @property
    def how(self) -> str:
        """Return how the kernel gets to the handlers."""
        if self.flags & _ON_FTRACE:
            how = "through ftrace"
        else:
            how = "by a jump (optimized)" if self.flags & _OPTIMIZED else "by a breakpoint"
        return f"{how}, disabled" if self.flags & _DISABLED else how


class FtraceOps(NamedTuple):
    """A struct ftrace_ops. ``trampoline`` is (start, end) of its own code, or None. ``regs``: it wants registers.

    ``direct`` is the code that its functions call directly, without ftrace in between. It is 0 without such code, or if
    several share the structure.
    """

    structure: int
    function: int
    trampoline: Optional[tuple[int, int]]
    regs: bool
    direct: int


class BpfImage(NamedTuple):
    """Code that the kernel has made for BPF: a program, a subprogram, a trampoline or a dispatcher.

    ``program`` is the address of a program's struct bpf_prog_aux, or 0.
    """

    start: int
    end: int
    name: str
    program: int


class BpfLine(NamedTuple):
    """A line of source of a BPF program."""

    path: str
    line: int


class Probes:
    """The probes and programs of a kernel. Each list is read when it is first asked for."""

    def __init__(self, prog: Program) -> None:
        self._prog = prog
        self.notes: list[str] = []

    @cached_property
    def kprobes(self) -> list[Kprobe]:
        """Return all kprobes, by address. An aggregated one stands for all at its address."""
        return sorted(self._read("kprobes", _kprobes), key=lambda probe: probe.address)

    @cached_property
    def ftrace(self) -> list[FtraceOps]:
        """Return all registered ftrace_ops."""
        return self._read("callbacks of ftrace", _ftrace)

    @cached_property
    def bpf(self) -> list[BpfImage]:
        """Return the code of BPF, by address. Programs made from classic BPF (seccomp) have no symbol there.

        Up to 5.19 a program of several functions has two symbols. Its own is added last.
        """
        images = {(image.start, image.end): image for image in self._read("BPF programs", _bpf)}
        return sorted(images.values())

    @cached_property
    def packs(self) -> frozenset[int]:
        """Return where the areas begin that hold the code of many BPF programs (since 5.18)."""
        return frozenset(self._read("areas of BPF's code", _packs))

    @cached_property
    def slots(self) -> list[tuple[int, int, str]]:
        """Return (start, end, name) of the pages that hold the instruction slots of kprobes."""
        return sorted(self._read("instruction slots of kprobes", _slots))

    def _read(self, what: str, read: object) -> list:  # type: ignore[type-arg]
        """Return the list, as far as it can be read. A kernel without the variable or type has none."""
        from drgn import FaultError

        found: list[object] = []
        try:
            for one in read(self._prog):  # type: ignore[operator]
                found.append(one)
                if len(found) >= _MOST:
                    self.notes.append(f"the list of {what} does not end: the first {_MOST} are used")
                    break
        except (LookupError, AttributeError):
            pass
        except (FaultError, ValueError, OverflowError) as error:
            self.notes.append(f"the list of {what} is damaged after {len(found)}: {error}")
        return found


def _kprobes(prog: Program) -> Iterator[Kprobe]:
    """Yield the kprobes of kprobe_table."""
    from drgn import container_of
    from drgn.helpers.linux.list import hlist_for_each_entry

    aggregated = _address(prog, "aggr_pre_handler")
    size = _detour_size(prog)
    for head in prog["kprobe_table"]:
        for probe in _bounded(hlist_for_each_entry("struct kprobe", head.address_of_(), "hlist")):
            structure, address, handler = int(probe), int(probe.addr), int(probe.pre_handler)
            detour = None
            calls = [_handler(prog, probe)]
            if handler == aggregated and aggregated:
                calls = [_handler(prog, one) for one in _aggregated(probe)]
                try:
                    start = int(container_of(probe, "struct optimized_kprobe", "kp").optinsn.insn)
                    detour = (start, start + size) if start else None
                except (LookupError, AttributeError):
                    pass  # a kernel without optimized kprobes
            slot = getattr(probe.ainsn, "insn", None)
            # On other machines than x86 the slot is called otherwise.
            at = int(slot) if slot is not None and slot.type_.kind.name == "POINTER" else 0
            handlers = tuple(function for function, _returns in calls if function)
            returns = any(of_return for _function, of_return in calls)
            yield Kprobe(structure, address, int(probe.flags), handlers, at or None, detour, returns)


def _aggregated(probe: Object) -> Iterator[Object]:
    """Return the kprobes that an aggregated one stands for."""
    from drgn.helpers.linux.list import list_for_each_entry

    return _bounded(list_for_each_entry("struct kprobe", probe.list.address_of_(), "list"))


def _handler(prog: Program, probe: Object) -> tuple[int, bool]:
    """Return (the first function that a kprobe calls or 0, whether it is called at a return)."""
    from drgn import container_of

    if int(probe.pre_handler) == _address(prog, "pre_handler_kretprobe") != 0:
        return int(container_of(probe, "struct kretprobe", "kp").handler), True
    return int(probe.pre_handler), False


def _detour_size(prog: Program) -> int:
    """Return the greatest size of a detour (MAX_OPTINSN_SIZE, asm/kprobes.h).

    It has the template, up to 20 bytes of copied instructions, and a jump.
    """
    start, end = _address(prog, "optprobe_template_entry"), _address(prog, "optprobe_template_end")
    return end - start + 20 + 5 if 0 < start < end < start + 4096 else 256


def _ftrace(prog: Program) -> Iterator[FtraceOps]:
    """Yield the ftrace_ops of ftrace_ops_list, which ends with ftrace_list_end."""
    regs = int(prog.constant("FTRACE_OPS_FL_SAVE_REGS"))
    last = int(prog["ftrace_list_end"].address_of_())
    ops, seen = prog["ftrace_ops_list"], set()
    while ops and int(ops) != last and int(ops) not in seen:
        seen.add(int(ops))
        start, size = int(ops.trampoline), int(ops.trampoline_size)
        trampoline = (start, start + size) if start and 0 < size <= _MOST_CODE else None
        yield FtraceOps(int(ops), int(ops.func), trampoline, bool(int(ops.flags) & regs), _direct(prog, ops))
        ops = ops.next


def _direct(prog: Program, ops: Object) -> int:
    """Return the address of the code that functions call directly for a struct ftrace_ops, or 0 if it is not known."""
    from drgn import FaultError, Object

    try:
        if int(ops.func) != _address(prog, "call_direct_funcs"):
            return 0
        if hasattr(ops, "direct_call"):  # since 6.4
            return int(ops.direct_call)
        if int(ops) != _address(prog, "direct_ops"):  # since 6.0 each trampoline of BPF has one of its own
            return int(Object(prog, "struct bpf_trampoline *", ops.private).cur_image.image)
    except (FaultError, LookupError, AttributeError, ValueError):
        pass
    return 0


def _bpf(prog: Program) -> Iterator[BpfImage]:
    """Yield the struct bpf_ksym (since 5.7) of bpf_kallsyms."""
    from drgn import container_of
    from drgn.helpers.linux.list import list_for_each_entry

    for symbol in list_for_each_entry("struct bpf_ksym", prog["bpf_kallsyms"].address_of_(), "lnode"):
        start, end = int(symbol.start), int(symbol.end)
        if start < end <= start + _MOST_CODE:
            name = symbol.name.string_().decode(errors="backslashreplace")
            aux = int(container_of(symbol, "struct bpf_prog_aux", "ksym")) if symbol.prog else 0
            yield BpfImage(start, end, name or "bpf_prog", aux)


def bpf_line(prog: Program, image: BpfImage, pc: int) -> Optional[BpfLine]:
    """Return the line of source of the instruction at ``pc`` in a BPF program, or None if it has no line information.

    The lines are sorted by the address of the compiled code (bpf_prog_linfo, kernel/bpf/core.c). The names are in the
    program's BTF.
    """
    from drgn import FaultError, Object

    if not image.program:
        return None
    try:
        aux = Object(prog, "struct bpf_prog_aux *", image.program)
        low, high = int(aux.linfo_idx), min(int(aux.nr_linfo), _MOST)
        if not aux.linfo or not aux.jited_linfo or not aux.btf or not low < high:
            return None
        found = None
        while low < high:  # search for the last line that begins at or below pc
            middle = (low + high) // 2
            if int(aux.jited_linfo[middle]) <= pc:
                found, low = middle, middle + 1
            else:
                high = middle
        if found is None or int(aux.jited_linfo[found]) < image.start:
            return None
        line = aux.linfo[found]
        text = prog.read(int(aux.btf.strings) + _string(aux.btf, int(line.file_name_off)), _LONGEST_PATH)
        path = text.partition(b"\0")[0].decode(errors="backslashreplace")
        return BpfLine(path, int(line.line_col) >> 10) if path else None  # BPF_LINE_INFO_LINE_NUM (linux/bpf.h)
    except (FaultError, LookupError, AttributeError, ValueError, OverflowError):
        return None


def _string(btf: Object, offset: int) -> int:
    """Return the offset of a name in the strings of a BTF. Raises ValueError if it is not there."""
    offset -= int(btf.start_str_off) if hasattr(btf, "start_str_off") else 0
    if not 0 <= offset < int(btf.hdr.str_len):
        raise ValueError(f"no string at {offset}")
    return offset


def _packs(prog: Program) -> Iterator[int]:
    """Yield the address of each struct bpf_prog_pack's code."""
    from drgn.helpers.linux.list import list_for_each_entry

    for pack in list_for_each_entry("struct bpf_prog_pack", prog["pack_list"].address_of_(), "list"):
        yield int(pack.ptr)


def _slots(prog: Program) -> Iterator[tuple[int, int, str]]:
    """Yield the pages of kprobe_insn_slots and kprobe_optinsn_slots."""
    from drgn.helpers.linux.list import list_for_each_entry

    # The names are those of /proc/kallsyms (KPROBE_INSN_PAGE_SYM, KPROBE_OPTINSN_PAGE_SYM).
    for variable, name in (("kprobe_insn_slots", "kprobe_insn_page"), ("kprobe_optinsn_slots", "kprobe_optinsn_page")):
        try:
            pages = prog[variable].pages
        except LookupError:
            continue
        for page in _bounded(list_for_each_entry("struct kprobe_insn_page", pages.address_of_(), "list")):
            yield int(page.insns), int(page.insns) + 4096, name


def _bounded(entries: Iterator[Object]) -> Iterator[Object]:
    """Yield the entries of a list, at most _MOST."""
    for number, entry in enumerate(entries):
        if number >= _MOST:
            return
        yield entry


def _address(prog: Program, name: str) -> int:
    """Return the address of a symbol, or 0."""
    try:
        return int(prog.symbol(name).address)
    except LookupError:
        return 0
