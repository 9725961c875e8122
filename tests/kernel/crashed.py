"""Kernel guests that crashed in every way, what the commands say of each, and what independent witnesses say.

The witnesses are the guest itself, its console, and the symbol tables as nm and addr2line read them.
"""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Optional

from elftools.elf.elffile import ELFFile

from dmods.command import KERNEL
from drgnext.kernel.dump.target import Kernel
from fixtures import answers, kernel
from fixtures.kernel import Guest, packages

#: Kernels of another flavour than cloud, where these are tested.
OTHERS = [name for name in packages.TESTED if packages.KERNELS[name].flavour != "cloud"]

#: Ways to die that differ most: without a trap, in a softirq, by a jump to nowhere.
FEW = ("sysrq", "softirq", "jump")
#: (release, crash, who made the dump) of all tests of the place where a kernel trapped.
DEATHS = [
    *((release, crash, "qemu") for release in ("6.1", "6.12") for crash in kernel.CRASHES),
    # Each crash kernel boots for itself. That of 6.1 dumps all deaths, and the others dump few.
    *(("6.1", crash, "kexec") for crash in kernel.CRASHES),
    *(("6.12", crash, "kexec") for crash in (kernel.CRASHES if packages.ALL else FEW)),
    # The others also died as they should in 7.2.
    *(("sid", crash, dump) for dump in kernel.DUMPS for crash in FEW),
    # In these kernels an NMI on both CPUs ends in a panic that does not end.
    *(("5.10", crash, dump) for dump in kernel.DUMPS for crash in FEW),
    # PREEMPT_RT has threads for work that others do in interrupts.
    *((release, crash, "qemu") for release in OTHERS for crash in ("sysrq", "null", "jump", "bug")),
]


@dataclass(frozen=True)
class Trap:
    """The place where the guest says that it trapped (a name of its truth), and the kind of trap."""

    at: str
    kind: str


#: Innermost first, inside the system call that they all happened in. None: a place outside the guest's module.
TRAPS: dict[str, list[Optional[Trap]]] = {
    "sysrq": [],
    "null": [Trap("null", "page fault")],
    "softirq": [Trap("softirq", "page fault"), Trap("softirq_spin", "interrupt: sysvec_apic_timer_interrupt")],
    "hardirq": [Trap("hardirq", "page fault"), None],
    "jump": [Trap("jump", "page fault")],
    "bug": [Trap("bug", "invalid op")],
    "nmi": [Trap("nmi", "NMI")],
}


def open_program(guest: Guest, modules: bool = True, dump: Optional[Path] = None) -> Any:
    """Return drgn's program of the guest's vmcore, or of another dump of it, opened as drgn's own command line does."""
    import drgn

    prog = drgn.Program()
    prog.set_core_dump(str(dump or guest.vmcore))
    files = guest.modules if modules else []
    prog.load_debug_info([str(guest.vmlinux), *map(str, files)])
    return prog


def ask(target: Kernel, name: str, *arguments: str) -> dict[str, Any]:
    """Return what ``name ARGUMENTS --json`` prints."""
    return answers.answer(target, name, *arguments, side=KERNEL)


@dataclass(frozen=True)
class Death:
    """A guest and all that was said of it. No object of drgn is kept: that would take 300 MB each."""

    guest: Guest
    panicinfo: dict[str, Any]
    findstack: dict[str, Any]
    init: dict[str, Any]  # findstack of the guest's init, which runs our module
    trapframe: dict[str, Any]  # of init
    stacks: dict[str, Any]
    plain: dict[int, list[int]]  # pid: pcs of drgn's own stack trace, one for each frame that is not inlined

    @property
    def frames(self) -> list[dict[str, Any]]:
        """Return init's frames, without those of an interrupt that panic() itself took.

        panic() ends in a loop with interrupts enabled, and the dump may be made during one.
        """
        frames = frames_of(self.init)
        return frames[_panic(frames) :]

    @property
    def traps(self) -> list[dict[str, Any]]:
        """Return init's rows of trapframe, without an interrupt that panic() itself took."""
        frames = frames_of(self.init)
        later = {frame["pt_regs"] for frame in frames[: _panic(frames)]} - {None}
        return [row for row in self.trapframe["tables"][0]["rows"] if row["pt_regs"] not in later]

    @property
    def panicked(self) -> int:
        """Return the pid of the task that panicked, by the console.

        An NMI hits all CPUs, and any of them may be the first.
        """
        found = re.search(r"CPU: \d+ (?:UID: 0 )?PID: (\d+) Comm:", self.guest.console)
        assert found is not None
        return int(found[1])

    @property
    def record(self) -> dict[str, Any]:
        (row,) = self.panicinfo["tables"][0]["rows"]
        assert isinstance(row, dict)
        return row

    def at(self, name: str) -> int:
        return self.guest.truth[f"at_{name}"]


def _panic(frames: Sequence[dict[str, Any]]) -> int:
    """Return the number of the frame of panic() if it was interrupted, else 0."""
    panic = next((n for n, frame in enumerate(frames) if frame["name"].startswith("panic+")), 0)
    return panic if any(frame["pt_regs"] for frame in frames[:panic]) else 0


def frames_of(answer: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    """Return the frames in a record of an answer's first table, with None or "" for what JSON leaves out."""
    row = answer["tables"][0]["rows"][number]
    return [{"note": "", "source": None, "pt_regs": None, **frame} for frame in row["stack"]]


@cache
def died(release: str, crash: str, dump: str = "qemu") -> Death:
    guest = kernel.guest(release, crash, dump=dump)
    prog = open_program(guest)
    target = Kernel(prog)
    answers = {name: ask(target, name) for name in ("panicinfo", "findstack", "stacks")}
    init = {"init": ask(target, "findstack", "1"), "trapframe": ask(target, "trapframe", "1")}
    return Death(guest, **answers, **init, plain=_plain(prog))


def _plain(prog: Any) -> dict[int, list[int]]:
    from drgn.helpers.linux.pid import for_each_task

    found = {}
    for task in for_each_task(prog):
        try:
            trace = prog.stack_trace(task)
        except (ValueError, LookupError):  # the dump has no registers of its CPU
            continue
        found[int(task.pid)] = [frame.pc for frame in trace if not frame.is_inline]
    return found


class Table:
    """The functions of an ELF file by address, as nm lists them."""

    def __init__(self, path: str) -> None:
        done = subprocess.run(["nm", "-nS", path], capture_output=True, text=True, check=True)
        found = []
        for line in done.stdout.splitlines():
            *numbers, kind, name = line.split()
            if numbers and kind in "tTwW":
                found.append((int(numbers[0], 16), int(numbers[1], 16) if len(numbers) > 1 else 0, name))
        self.symbols = found
        self.addresses = [address for address, _size, _name in found]

    def at(self, address: int) -> set[str]:
        """Return all names of the function at the address: the nearest below, and those whose size reaches so far."""
        last = bisect_right(self.addresses, address)
        nearest = self.addresses[last - 1]
        around = self.symbols[max(0, last - 20) : last]
        return {name for start, size, name in around if start == nearest or start <= address < start + size}

    def address(self, name: str) -> int:
        return next(address for address, _size, known in self.symbols if known == name)


@cache
def symbols(path: str) -> Table:
    return Table(path)


def addr2line(path: str, address: int, section: str = "") -> tuple[str, int]:
    """Return (function, line) as binutils sees them. ``address`` is the file's own."""
    where = ["-j", section] if section else []
    done = subprocess.run(
        ["addr2line", "-f", "-e", path, *where, hex(address)], capture_output=True, text=True, check=True
    )
    function, place = done.stdout.split("\n")[:2]
    found = re.search(r":(\d+)", place)
    return function, int(found[1]) if found else 0


@cache
def in_module(path: str, variable: str) -> tuple[str, int]:
    """Return the section, and the offset in it, that a variable of a module's .data points to, by its relocation."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(variable)
        relocations = elf.get_section_by_name(".rela.data")
        (found,) = (one for one in relocations.iter_relocations() if one["r_offset"] == symbol["st_value"])
        target = elf.get_section_by_name(".symtab").get_symbol(found["r_info_sym"])
        return elf.get_section(target["st_shndx"]).name, target["st_value"] + found["r_addend"]


def call_trace(console: str, after: str) -> list[str]:
    """Return function+offset of the kernel's own trace on its console, without frames that it was not sure of.

    The trace goes from the line that holds ``after`` to the end of the task's stack.
    """
    lines = [re.sub(r"^\[ *\d+\.\d+\](?: ?\[ *[CT]\d+\])? ?", "", line) for line in console.splitlines()]
    start = next(n for n, line in enumerate(lines) if after in line)
    end = next(n for n, line in enumerate(lines[start:], start) if re.match(r"^ *</TASK>|^RIP: 0033|^Kernel Off", line))
    found = (re.match(r"^ +(\w\S*\+0x[0-9a-f]+)/0x[0-9a-f]+( \[\w+\])?$", line) for line in lines[start:end])
    return [match[1] for match in found if match]


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return function+offset of each frame, without its module."""
    return [row["name"].rpartition("`")[2] for row in rows]
