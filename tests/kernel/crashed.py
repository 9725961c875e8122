"""Kernel guests that crashed in every way, what the commands say of each, and what others say: the guest itself, its
console, and the symbol tables as nm and addr2line read them."""

from __future__ import annotations

import io
import json
import re
import subprocess
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Optional

from elftools.elf.elffile import ELFFile

from dmods import command
from dmods.render import render
from drgnext.kernel.target import Kernel
from fixtures import kernel
from fixtures.kernel import Guest, packages

#: Kernels that are not of a cloud, where these are tested.
OTHERS = [name for name in packages.TESTED if packages.KERNELS[name].flavour != "cloud"]

#: (release, crash) of all tests of where a kernel trapped.
DEATHS = [
    *(("6.1", crash) for crash in kernel.CRASHES),
    *(("6.12", crash) for crash in kernel.CRASHES),
    # The others died as they should in 7.2, too; each takes eight seconds here.
    *(("sid", crash) for crash in ("sysrq", "softirq", "jump")),
    # There an NMI on both CPUs ends in a panic that does not end.
    *(("5.10", crash) for crash in ("sysrq", "softirq", "jump")),
    # PREEMPT_RT has threads for what others do in interrupts.
    *((release, crash) for release in OTHERS for crash in ("sysrq", "null", "jump", "bug")),
]


@dataclass(frozen=True)
class Trap:
    """Where the guest says that it trapped (a name of its truth), and what kind of trap that was."""

    at: str
    kind: str


#: Innermost first, before the system call that they all happened in. None: a place outside our module.
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
    """drgn's program of the guest (of its vmcore, or another dump of it), as drgn's own command line makes it."""
    import drgn

    prog = drgn.Program()
    prog.set_core_dump(str(dump or guest.vmcore))
    files = guest.modules if modules else []
    prog.load_debug_info([str(guest.vmlinux), *map(str, files)])
    return prog


def ask(target: Kernel, name: str, *arguments: str) -> dict[str, Any]:
    """What ``name ARGUMENTS --json`` says."""
    found = command.find(name, command.KERNEL)
    args = found.parser().parse_args([*arguments, "--json"])
    out = io.StringIO()
    render(found.run(target, args), name, target, True, out, io.StringIO())
    answer = json.loads(out.getvalue())
    assert isinstance(answer, dict)
    return answer


@dataclass(frozen=True)
class Death:
    """A guest and all that was said of it. Nothing of drgn is kept: that takes 300 MB each."""

    guest: Guest
    panicinfo: dict[str, Any]
    findstack: dict[str, Any]
    init: dict[str, Any]  # findstack of the guest's init, which runs our module
    trapframe: dict[str, Any]  # of init
    stacks: dict[str, Any]
    plain: dict[int, list[int]]  # pid: pcs of drgn's own stack trace, one for each frame that is not inlined

    @property
    def frames(self) -> list[dict[str, Any]]:
        """Of init."""
        return rows_of(self.init)

    @property
    def panicked(self) -> int:
        """The pid of the task that panicked, by the console: an NMI hits all CPUs, and any may be the first."""
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


def rows_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Of an answer's only table."""
    (table,) = answer["tables"]
    rows = table["rows"]
    assert isinstance(rows, list)
    return rows


@cache
def died(release: str, crash: str) -> Death:
    guest = kernel.guest(release, crash)
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
        except (ValueError, LookupError):  # no registers of its CPU
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
        """All names of what holds the address: the nearest below, and those whose size reaches so far."""
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
    """(function, line) as binutils see them: ``address`` is the file's own."""
    where = ["-j", section] if section else []
    done = subprocess.run(
        ["addr2line", "-f", "-e", path, *where, hex(address)], capture_output=True, text=True, check=True
    )
    function, place = done.stdout.split("\n")[:2]
    found = re.search(r":(\d+)", place)
    return function, int(found[1]) if found else 0


@cache
def in_module(path: str, variable: str) -> tuple[str, int]:
    """The section, and the offset in it, of what a variable of a module's .data points to: its relocation says so."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(variable)
        relocations = elf.get_section_by_name(".rela.data")
        (found,) = (one for one in relocations.iter_relocations() if one["r_offset"] == symbol["st_value"])
        target = elf.get_section_by_name(".symtab").get_symbol(found["r_info_sym"])
        return elf.get_section(target["st_shndx"]).name, target["st_value"] + found["r_addend"]


def call_trace(console: str, after: str) -> list[str]:
    """The kernel's own trace on its console, from the line that holds ``after`` to the end of the task's stack:
    function+offset, without those it was not sure of."""
    lines = [re.sub(r"^\[ *\d+\.\d+\](\[ *[CT]\d+\])? ?", "", line) for line in console.splitlines()]
    start = next(n for n, line in enumerate(lines) if after in line)
    end = next(n for n, line in enumerate(lines[start:], start) if re.match(r"^ *</TASK>|^RIP: 0033|^Kernel Off", line))
    found = (re.match(r"^ +(\w\S*\+0x[0-9a-f]+)/0x[0-9a-f]+( \[\w+\])?$", line) for line in lines[start:end])
    return [match[1] for match in found if match]


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """function+offset of each frame, without its module."""
    return [row["where"].rpartition("`")[2] for row in rows]
