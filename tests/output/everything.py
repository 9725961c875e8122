"""Command lines for every command on real cores, for the tests of the schema and of the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from io import StringIO
from typing import NamedTuple, Optional

from dmods.command import KERNEL as SIDE
from dmods.command import find_command
from dmods.corefile.target import CoreFile
from dmods.output.render import render
from dmods.report import Report
from drgnext.kernel.dump.target import Kernel
from fixtures import audited, cores, kernel, pythons
from tests.kernel.crashed import open_program

#: The commands for processes that need a core without records, with their arguments.
PLAIN = (
    "findleaks",
    "findleaks -d -i -v",
    "findstack",
    "findstack -v",
    "heapcheck",
    "heapsizes",
    "malloc_stats",
    "malloc_stats --glibc",
    "maps",
    "maps -v",
    "maps --contents",
    "maps --leaked",
    "owners",
    "owners --by type --top 3",
    "owners --by size",
    "panicinfo",
    "profile",
    "profile tree --top 3",
    "stacks",
    "suspects",
    "triage",
    "typegraph",
    "types",
    "types --leaked --top 3",
    "types --live --retained",
    "walk",
    "walk leak",
    "walk buf",
    "walk mapping",
    "walk thread",
    "walk arena",
    "whatis main",
    "whatis 0x10",
    "dmods",
    "dmods -l",
    "cores",
    "doctor",
)
#: The commands that need records. {} is an address of a block, {thread} the name of a thread.
RECORDED = (
    "findleaks -d -v",
    "allocdby {thread}",
    "freedby {thread}",
    "bufctl {block}",
    "bufctl -v {block}",
    "bufctl -H {freed}",
    "bufctl_audit {block}",
    "bufctl_audit {freed}",
    "findleaks --lines",
    "pathto --all {block}",
    "profile --top 3",
    "profile peek main",
    "retained {block}",
    "umausers --top 3",
    "umausers --lines",
    "vmem_seg {large}",
    "vmem_seg -v {large}",
    "walk bufctl",
    "walk dominated {block}",
    "walk log",
    "walk path {block}",
    "walk referrers {block}",
    "whatis {block}",
    "whatis {freed}",
    "whattype {block}",
    "istype {block} timespec",
    "notype {block}",
)
#: Commands for processes that need a program of another language: tests/runtimes tries them.
LANGUAGES = {"goroutines", "goobjects"}
#: The commands that need CPython.
PYTHON = ("pystack", "pystack --tasks", "pyobjects --top 5", "pyobjects --type dict --top 3", "findstack")
KERNEL = (
    "memstat",
    "memstat -v",
    "panicinfo",
    "panicinfo -v",
    "findstack",
    "findstack -v",
    "stacks",
    "trapframe",
    "trapframe -a -v",
    "doctor",
    "kmastat",
    "kmastat -v --top 5",
    "retained --top 5",
    "retained dmods_guest --top 2",
    "findleaks",
    "findleaks -v -d -i --doubtful",
    "slabcheck",
    "walk",
    "walk task",
    "walk slab dmods_guest",
    "walk freeslab dmods_guest",
    "walk leak",
    "whatis init_task",
    "whatis 0x10",
    "dmods -l",
    "dentries -a --top 3",
    "disks",
    "dmesg -n 5",
    "files 1",
    "inflight -a",
    "irq -a",
    "locks -a",
    "meminfo",
    "memcgs",
    "mounts",
    "netdev",
    "ps -T",
    "runq",
    "sockets",
    "swapinfo",
    "timers",
    "triage",
    "vmalloc",
    "workqueues -a",
)
#: Commands for kernels that need another guest: tests/kernel/test_zfs.py and test_growth.py try them.
ELSEWHERE = {"zfs", "growth"}
#: Commands for kernels that need a guest with slub_debug=U: tests/kernel/test_planted_slabs.py tries them.
SLAB_RECORDS = {"allocdby", "bufctl", "bufctl_audit", "freedby", "kmausers", "profile", "umausers"}
GUEST = ("6.1", "null")


class Line(NamedTuple):
    """A command line: the name, the core and the arguments."""

    name: str
    core: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.name, *self.words))


@cache
def process_lines() -> list[Line]:
    """Return a line for every command for processes, on cores that give it content."""
    lines = [*_plain(), *_recorded(), *_python()]
    assert len(lines) > len(PLAIN)
    return lines


def _plain() -> Iterator[Line]:
    handled, leaky = cores.take("frames", mode="handler"), cores.take("graph")
    broken, cxx = cores.take("corrupt", mode=cores.PROGRAMS["corrupt"].modes[0]), cores.take("cxx")
    for core in (handled, leaky, broken, cxx):
        for text in PLAIN:
            name, *words = text.split()
            if name != "doctor" or core is handled:  # doctor starts gdb and drgn
                yield Line(name, str(core.core), tuple(words))
    yield Line("growth", str(leaky.core), (str(handled.core), "--by", "size"))


def _python() -> Iterator[Line]:
    made = pythons.core("host", "stacks")
    for text in PYTHON:
        name, *words = text.split()
        yield Line(name, str(made.core), tuple(words))


def _recorded() -> Iterator[Line]:
    made = audited.take("callers", "audit,log=10000", "kernel", "dynamic", "host")
    blocks = made.truth.blocks.values()
    values = {
        "thread": "allocator",
        "block": hex(next(block.address for block in blocks if block.size == 700)),
        "freed": hex(next(block.address for block in blocks if block.size == 600)),
        "large": hex(max(blocks, key=lambda block: block.size if block.state == "live" else 0).address),
    }
    for text in RECORDED:
        name, *words = text.format(**values).split()
        yield Line(name, str(made.core), tuple(words))


@cache
def _target(core: str) -> CoreFile:
    return CoreFile(core)


def written(line: Line, json: bool, columns: Optional[int] = None) -> str:
    """Return what a command for processes writes: JSON or text, with ``columns`` on a terminal of that width."""
    out: StringIO = StringIO() if columns is None else _Terminal()
    render(report_of(line, json), line.name, _target(line.core), json, out, out, columns)
    return out.getvalue()


def report_of(line: Line, json: bool) -> Report:
    """Return the report of a command for processes."""
    command = find_command(line.name)
    return command.run(_target(line.core), command.parser().parse_args([*line.words, *(["--json"] if json else [])]))


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@cache
def _kernel() -> Kernel:
    return Kernel(open_program(kernel.guest(*GUEST), modules=False))


def kernel_written(line: Line, json: bool, columns: Optional[int] = None) -> str:
    """Return what a command for kernels writes, as ``written`` does. The dump is opened once for all lines."""
    out: StringIO = StringIO() if columns is None else _Terminal()
    command = find_command(line.name, SIDE)
    args = command.parser().parse_args([*line.words, *(["--json"] if json else [])])
    render(command.run(_kernel(), args), line.name, _kernel(), json, out, out, columns)
    return out.getvalue()


def kernel_lines() -> list[Line]:
    """Return a line for every command for kernels, on the dump of a guest."""
    vmcore = str(kernel.guest(*GUEST).vmcore)
    lines = [Line(name, vmcore, tuple(words)) for name, *words in map(str.split, KERNEL)]
    assert len(lines) == len(KERNEL)
    return lines
