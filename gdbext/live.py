"""A process that gdb has stopped (attached, run, or on a remote stub) as a Target."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

import gdb

from dmods import arch as arches
from dmods import modules
from dmods.corenotes import AT_ENTRY, AT_PHDR, AT_SYSINFO_EHDR
from dmods.errors import FaultError, UserError
from dmods.localfiles import LocalFiles
from dmods.target import AddressRange, Arch, Module, Signal, Symbol, Thread
from gdbext import names, session

if TYPE_CHECKING:
    from dmods._engine import Image
    from dmods.symbols import ModuleSymbols

# What gdb calls the machine (bfd's printable name).
_ARCHES = {"i386:x86-64": arches.X86_64, "i386": arches.I386, "aarch64": arches.AARCH64}
# A line of /proc/PID/maps: proc(5).
_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ([-r][-w][-x])\S* ([0-9a-f]+) \S+ \d+ *(.*)")
# A line of gdb's `info proc mappings`, as gdb 12 and later print it (with permissions).
_GDB_MAP = re.compile(r"\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+([-r][-w][-x])\S*\s*(.*)")
_STOPS = (5, 19)  # SIGTRAP and SIGSTOP: gdb's own doing, nothing that the process died of


class LiveTarget:
    """Implements Target. Everything is looked up again once the process has moved: ``state()`` says when."""

    path: Optional[str] = None

    def __init__(self, inferior: Any) -> None:
        self._inferior = inferior
        self.pid: Optional[int] = inferior.pid
        self.arch = _arch(inferior)
        self.local = _is_local(inferior)
        self.executable: Optional[str] = _executable(inferior, self.local)
        self.notes: list[str] = []
        self._stopped: Optional[_Stopped] = None

    def state(self) -> Hashable:
        return (self._inferior.num, self.pid, session.moves())

    @property
    def _now(self) -> _Stopped:
        state = self.state()
        if self._stopped is None or self._stopped.state != state:
            self._stopped = _Stopped(self._inferior, self.arch, self.local, state)
        return self._stopped

    @property
    def auxv(self) -> Mapping[int, int]:
        return self._now.auxv

    def image(self) -> Image:
        return self._now.image

    def read(self, address: int, size: int) -> bytes:
        data = self._now.read(address, size)
        if len(data) != size:
            raise FaultError(address, size)
        return data

    def mappings(self) -> Sequence[AddressRange]:
        return self._now.mappings

    def threads(self) -> Sequence[Thread]:
        return self._now.threads

    def modules(self) -> Sequence[Module]:
        return self._now.modules

    def symbol_at(self, address: int) -> Optional[Symbol]:
        return self._now.symbols.at(address) or names.symbol_at(address)

    def lookup(self, name: str) -> Optional[Symbol]:
        return self._now.symbols.lookup(name) or names.lookup(name)

    def evaluate(self, text: str) -> int:
        from dmods.names import evaluate

        value = names.evaluate(text, self.arch.word)
        return evaluate(self, text) if value is None else value


class _Stopped:
    """The process as it is between two moves."""

    def __init__(self, inferior: Any, arch: Arch, local: bool, state: Hashable) -> None:
        self.state = state
        self._inferior = inferior
        self._arch = arch
        self._local = local
        self._files = LocalFiles(_root(inferior.pid) if local else names.sysroot())

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
        # A remote stub is slow, and read-only pages hold no pointer to the heap.
        return Image([], [], [(m.start, self.read(m.start, m.size)) for m in readable if "w" in m.flags])

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes."""
        if self._local:
            return self.image.read(address, size) if 0 <= address < 1 << 64 else b""
        try:
            return bytes(self._inferior.read_memory(address, size))
        except (gdb.error, OverflowError):  # gdb.MemoryError is a gdb.error
            return b""

    @cached_property
    def threads(self) -> list[Thread]:
        return list(_threads(self._inferior, self._arch))

    @cached_property
    def auxv(self) -> dict[int, int]:
        found = {}
        text = gdb.execute("info auxv", to_string=True)
        for kind, value in re.findall(r"^(\d+)\s+AT_\S+\s.*?\s(0x[0-9a-f]+|\d+)(?: \".*)?$", text, re.MULTILINE):
            found[int(kind)] = int(value, 0)
        return found

    @cached_property
    def modules(self) -> list[Module]:
        found = modules.find(self.mappings, self.read, self._files, self.auxv.get(AT_SYSINFO_EHDR), None)
        return [one.module for one in found]

    @cached_property
    def program(self) -> Optional[Module]:
        for address in (self.auxv.get(AT_PHDR), self.auxv.get(AT_ENTRY)):
            for module in self.modules:
                if address is not None and any(address in piece for piece in module.ranges):
                    return module
        return None

    @cached_property
    def symbols(self) -> ModuleSymbols:
        from dmods.symbols import ModuleSymbols

        return ModuleSymbols(self.modules, self.program, self.read, self._files.sysroot)


def _arch(inferior: Any) -> Arch:
    name = inferior.architecture().name()
    arch = _ARCHES.get(name)
    if arch is None:
        raise UserError(
            f"the process runs on a machine that dmods does not know: {name}",
            f"dmods knows {', '.join(each.name for each in _ARCHES.values())}",
        )
    return arch


def _is_local(inferior: Any) -> bool:
    """Whether the process is one of this machine, stopped by this very gdb."""
    return "Native process:" in gdb.execute("info files", to_string=True) and os.access(
        f"/proc/{inferior.pid}/mem", os.R_OK
    )


def _executable(inferior: Any, local: bool) -> Optional[str]:
    if local:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{inferior.pid}/exe")
    return names.program()


def _root(pid: int) -> Optional[str]:
    """Where the process's own paths are found: its root, if it lives in another mount namespace (a container)."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return f"/proc/{pid}/root"
        root = os.readlink(f"/proc/{pid}/root")
    except OSError:
        return names.sysroot()
    return names.sysroot() if root == os.readlink("/proc/self/root") else root


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
        raise UserError(f"gdb cannot tell the mappings: {error}", "take a core there (gcore) and load that") from None
    for line in text.splitlines():
        match = _GDB_MAP.match(line)
        if match:
            yield int(match[1], 16), int(match[2], 16), match[4], int(match[3], 16), match[5]


def _is_device(name: str) -> bool:
    """Mappings that are no memory of the process: the kernel's pages cannot be read, a device may do anything then."""
    if name.startswith(("[vvar", "[vsyscall", "[uprobes")):
        return True
    return name.startswith("/dev/") and not name.startswith(("/dev/shm/", "/dev/zero", "/dev/hugepages"))


def _threads(inferior: Any, arch: Arch) -> Iterator[Thread]:
    """The selected one first. gdb's selection is as it was afterwards."""
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
                except (ValueError, gdb.error):  # the stub does not have it
                    continue
            yield Thread(thread.ptid[1] or thread.ptid[0], registers, thread.name, _signal())
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
            if frame is not None and frame.is_valid():
                frame.select()


def _signal() -> Optional[Signal]:
    """The selected thread's, as `$_siginfo` has it."""
    try:
        info = gdb.parse_and_eval("$_siginfo")
        number, code = int(info["si_signo"]), int(info["si_code"])
        if number == 0 or number in _STOPS:
            return None
        fields = info["_sifields"]
        if code <= 0:
            return Signal(number, code, sender=int(fields["_kill"]["si_pid"]))
        return Signal(number, code, address=int(fields["_sigfault"]["si_addr"]))
    except gdb.error:  # none on this target
        return None
