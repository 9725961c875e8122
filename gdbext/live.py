"""The Target of a process that gdb has stopped: attached, run, or on a remote stub."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

import gdb

from dmods.base.regex import regex
from dmods.corefile.crash_handlers.common import Context
from dmods.corefile.live.context import live_context
from dmods.corefile.live.process import root_of
from dmods.errors import FaultError, UserError
from dmods.modules.auxv import AT_ENTRY, AT_PHDR, AT_SYSINFO_EHDR
from dmods.modules.find import Program, find_modules
from dmods.modules.golang.moduledata import go_symbol_at
from dmods.modules.localfiles import LocalFiles, debug_roots
from dmods.process import arch as arches
from dmods.process.mappings import is_named_memory
from dmods.target import AddressRange, Arch, Module, Signal, Symbol, Thread
from gdbext import names
from gdbext.moves import count_moves
from gdbext.vectors import LiveVectors

if TYPE_CHECKING:
    from dmods._engine import Image
    from dmods.modules.symbols import ModuleSymbols

# gdb's names of machines (bfd's printable name).
_ARCHES = {"i386:x86-64": arches.X86_64, "i386": arches.I386, "aarch64": arches.AARCH64}
# A line of /proc/PID/maps: proc(5).
_MAP = regex(r"([0-9a-f]+)-([0-9a-f]+) ([-r][-w][-x])\S* ([0-9a-f]+) \S+ \d+ *(.*)")
# A line of gdb's `info proc mappings` with permissions, as gdb 12 and newer print it.
_GDB_MAP = regex(r"\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+([-r][-w][-x])\S*\s*(.*)")
_MOST_READ_ONLY = 8 << 20  # bytes of files' read-only mappings that are read from a remote stub
_STOPS = (5, 19)  # SIGTRAP and SIGSTOP: gdb itself stops a process with them


class LiveTarget:
    """A stopped process as a Target. When it has run, ``state()`` changes and everything is read again."""

    path: Optional[str] = None

    def __init__(self, inferior: Any) -> None:
        self._inferior = inferior
        self.pid: Optional[int] = inferior.pid
        self.arch = _arch(inferior)
        self.local = _is_local(inferior)
        self.executable: Optional[str] = _executable(inferior, self.local)
        self.notes: list[str] = []
        self.missing: Sequence[tuple[int, int]] = ()
        self.names_files = True
        self.knows_touched = False
        self._stopped: Optional[_Stopped] = None

    def state(self) -> Hashable:
        """Return a value that changes whenever the process may have changed."""
        return (self._inferior.num, self.pid, count_moves())

    @property
    def _now(self) -> _Stopped:
        state = self.state()
        if self._stopped is None or self._stopped.state != state:
            self._stopped = _Stopped(self._inferior, self.arch, self.local, state, self.notes)
        return self._stopped

    @property
    def context(self) -> Optional[Context]:
        """Return what /proc says of the process beside its memory; None where it is another machine's."""
        return live_context(self.pid) if self.local and self.pid is not None else None

    @property
    def auxv(self) -> Mapping[int, int]:
        """Return the auxiliary vector."""
        return self._now.auxv

    def image(self) -> Image:
        """Return the memory as the engine reads it."""
        return self._now.image

    def read(self, address: int, size: int) -> bytes:
        """Return the `size` bytes at the address. Raises FaultError."""
        data = self._now.read(address, size)
        if len(data) != size:
            raise FaultError(address, size)
        return data

    def mappings(self) -> Sequence[AddressRange]:
        """Return the mappings of the process."""
        return self._now.mappings

    def threads(self) -> Sequence[Thread]:
        """Return the threads, the selected one first."""
        return self._now.threads

    def modules(self) -> Sequence[Module]:
        """Return the program and its libraries."""
        return self._now.modules

    @property
    def debug_roots(self) -> Sequence[str]:
        """Return the folders of debug information, as gdb searches them."""
        return [*names.debug_roots(), *debug_roots(self._now.sysroot)]

    def symbol_at(self, address: int) -> Optional[Symbol]:
        """Return the symbol at the address, or None: from the files first, else from gdb."""
        return self._now.symbols.at(address) or go_symbol_at(self, address) or names.symbol_at(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        """Return the global symbol of that name, or None: from the files first, else from gdb."""
        return self._now.symbols.lookup(name) or names.lookup(name)

    def symbols_with(self, parts: Sequence[str]) -> Sequence[Symbol]:
        """Return the symbols with one of the parts in their mangled names."""
        return self._now.symbols.with_part(parts)

    def evaluate(self, text: str) -> int:
        """Return the address that a user means by the text. Raises UsageError."""
        from dmods.process.addresses import evaluate

        symbols = self._now.symbols
        return names.address(text, self.arch.word, lambda text: evaluate(self, text, symbols.named), symbols.at)


class _Stopped:
    """The process while it is stopped."""

    def __init__(self, inferior: Any, arch: Arch, local: bool, state: Hashable, notes: list[str]) -> None:
        self.state = state
        self._inferior = inferior
        self._arch = arch
        self._local = local
        self._notes = notes
        self._files = LocalFiles((root_of(inferior.pid) if local else None) or names.sysroot())

    @cached_property
    def mappings(self) -> list[AddressRange]:
        rows = _proc_maps(self._inferior.pid) if self._local else _gdb_maps()
        found: list[AddressRange] = []
        for start, end, flags, offset, name in rows:
            path = name if name and not name.startswith("[") else None
            readable = flags != "---" and not _is_device(name)
            found.append(AddressRange(start, end, flags, path, offset if path else 0, end - start if readable else 0))
        return found

    @cached_property
    def image(self) -> Image:
        from dmods._engine import Image

        readable = [mapping for mapping in self.mappings if mapping.dumped]
        if self._local:
            # The offset in /proc/PID/mem is the address: proc(5).
            segments = [(m.start, m.size, 0, m.start) for m in readable]
            return Image([f"/proc/{self._inferior.pid}/mem"], segments, [])
        return Image([], [], [(m.start, self.read(m.start, m.size)) for m in _worth_reading(readable)])

    def read(self, address: int, size: int) -> bytes:
        """Return up to `size` bytes at the address."""
        if self._local:
            return self.image.read(address, size) if 0 <= address < 1 << 64 else b""
        try:
            return bytes(self._inferior.read_memory(address, size))
        except (gdb.error, OverflowError):  # gdb.MemoryError is a gdb.error
            return b""

    @cached_property
    def threads(self) -> list[Thread]:
        return list(_threads(self._inferior, self._arch, self._local, self._notes))

    @cached_property
    def auxv(self) -> dict[int, int]:
        found = {}
        text = gdb.execute("info auxv", to_string=True)
        for kind, value in re.findall(r"^(\d+)\s+AT_\S+\s.*?\s(0x[0-9a-f]+|\d+)(?: \".*)?$", text, re.MULTILINE):
            found[int(kind)] = int(value, 0)
        return found

    @cached_property
    def modules(self) -> list[Module]:
        found = find_modules(self.mappings, self.read, self._files, self.auxv.get(AT_SYSINFO_EHDR), Program())
        return [one.module for one in found]

    @cached_property
    def program(self) -> Optional[Module]:
        for address in (self.auxv.get(AT_PHDR), self.auxv.get(AT_ENTRY)):
            for module in self.modules:
                if address is not None and any(address in piece for piece in module.ranges):
                    return module
        return None

    @property
    def sysroot(self) -> Optional[str]:
        return self._files.sysroot

    @cached_property
    def symbols(self) -> ModuleSymbols:
        from dmods.modules.symbols import ModuleSymbols

        return ModuleSymbols(self.modules, self.program, self.read, [*names.debug_roots(), *debug_roots(self.sysroot)])


def _worth_reading(readable: Sequence[AddressRange]) -> Iterator[AddressRange]:
    """Yield the mappings that are read from a remote stub, by address. A stub is slow.

    Few read-only pages of files were ever written. Sealed ones are small mappings: so the smallest are read.
    """
    sealed = [m for m in readable if "w" not in m.flags and "x" not in m.flags and not is_named_memory(m.path)]
    left, chosen = _MOST_READ_ONLY, set()
    for mapping in sorted(sealed, key=lambda mapping: mapping.size):
        left -= mapping.size
        if left < 0:
            break
        chosen.add(mapping.start)
    yield from (m for m in readable if "w" in m.flags or is_named_memory(m.path) or m.start in chosen)


def _arch(inferior: Any) -> Arch:
    name = inferior.architecture().name()
    arch = _ARCHES.get(name)
    if arch is None:
        raise UserError(
            f"dmods does not know the process's machine: {name}",
            f"dmods knows {', '.join(each.name for each in _ARCHES.values())}",
        )
    return arch


def _is_local(inferior: Any) -> bool:
    """Return whether the process runs on this machine, stopped by this gdb and not by a remote stub."""
    return "Native process:" in gdb.execute("info files", to_string=True) and os.access(
        f"/proc/{inferior.pid}/mem", os.R_OK
    )


def _executable(inferior: Any, local: bool) -> Optional[str]:
    if local:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{inferior.pid}/exe")
    return names.program()


def _proc_maps(pid: int) -> Iterator[tuple[int, int, str, int, str]]:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            match = _MAP.match(line.rstrip("\n"))
            if match:
                yield int(match[1], 16), int(match[2], 16), match[3], int(match[4], 16), match[5]


def _gdb_maps() -> Iterator[tuple[int, int, str, int, str]]:
    try:
        text = gdb.execute("info proc mappings", to_string=True)
    except gdb.error as error:
        raise UserError(f"gdb cannot list the mappings: {error}", "take a core there (gcore) and load that") from None
    for line in text.splitlines():
        match = _GDB_MAP.match(line)
        if match:
            yield int(match[1], 16), int(match[2], 16), match[4], int(match[3], 16), match[5]


def _is_device(name: str) -> bool:
    """Return whether a mapping is a page of the kernel or a device. These must not be read."""
    if name.startswith(("[vvar", "[vsyscall", "[uprobes")):
        return True
    return name.startswith("/dev/") and not name.startswith(("/dev/shm/", "/dev/zero", "/dev/hugepages"))


def _threads(inferior: Any, arch: Arch, local: bool, notes: list[str]) -> Iterator[Thread]:
    """Yield the threads, the selected one first. gdb's selection is restored afterwards."""
    selected = gdb.selected_thread()
    frame = gdb.selected_frame() if selected is not None and selected.is_stopped() else None
    threads = sorted(inferior.threads(), key=lambda thread: (thread != selected, thread.num))
    try:
        for thread in threads:
            thread.switch()
            newest = gdb.newest_frame()
            registers = {}
            for name in dict.fromkeys((*arch.registers, arch.thread_pointer)):
                try:
                    registers[name] = int(newest.read_register(name)) & ((1 << arch.word * 8) - 1)
                except (ValueError, gdb.error):  # the stub does not have this register
                    continue
            vectors = LiveVectors(thread, arch, local, notes)
            yield Thread(thread.ptid[1] or thread.ptid[0], registers, thread.name, _signal(), vectors)
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
            if frame is not None and frame.is_valid():
                frame.select()


def _signal() -> Optional[Signal]:
    """Return the signal of the selected thread, from `$_siginfo`."""
    try:
        info = gdb.parse_and_eval("$_siginfo")
        number, code = int(info["si_signo"]), int(info["si_code"])
        if number == 0 or number in _STOPS:
            return None
        fields = info["_sifields"]
        if code <= 0:
            return Signal(number, code, sender=int(fields["_kill"]["si_pid"]))
        return Signal(number, code, address=int(fields["_sigfault"]["si_addr"]))
    except gdb.error:  # this target has no $_siginfo
        return None
