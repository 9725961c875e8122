"""Say what the core of a live process would lack, before it dies: core(5), coredump.conf(5), proc(5).

/proc/PID/smaps has what the kernel's vma_dump_size() (fs/coredump.c) looks at: the flags of each mapping (VmFlags).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.regex import regex
from dmods.base.sizes import counted, human_size
from dmods.corefile.context import context_lines
from dmods.corefile.crash_handlers.common import Context
from dmods.corefile.live.context import live_context
from dmods.corefile.live.process import folder_of
from dmods.machine.doctor import Remark

_HEADER = regex(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ *(.*)")
_SIZES = regex(r"(\d{1,15})(?:\.\d+)?\s*([KMGTP]?)", re.IGNORECASE)
_MOST_MAPPINGS = 1 << 20
#: Bits of coredump_filter, and the memory that each lets into a core.
BITS = {
    0: "private memory", 1: "shared anonymous memory", 2: "private mappings of files", 3: "shared mappings of files",
    5: "private huge pages", 6: "shared huge pages",
}  # fmt: skip
_EXCLUDED, _DEVICE, _UNREADABLE = "excluded", "device", "execute-only"
_SYSTEMD = ("/usr/lib", "/usr/local/lib", "/run", "/etc")
_PAGE = 4096


class Memory(NamedTuple):
    """The memory of a kind: its mappings, their bytes, and the bytes that are in memory or swapped out."""

    mappings: int = 0
    size: int = 0
    used: int = 0

    def plus(self, size: int, used: int) -> Memory:
        """Return the sum with one more mapping."""
        return Memory(self.mappings + 1, self.size + size, self.used + used)


def process_findings(pid: int, proc: str = "/proc", root: str = "/") -> Iterator[Remark]:
    """Yield what is between a live process and a whole core: its memory, its limits, where the core would go."""
    folder = folder_of(pid, proc)
    name = _link(f"{folder}/exe") or _text(f"{folder}/comm").strip()
    yield Remark("process", f"{pid}: {name}")
    yield from context_remarks(live_context(pid, proc))
    kinds = memory_kinds(_text(f"{folder}/smaps"))
    unread = kinds.get(_UNREADABLE, Memory())
    if unread.mappings and not _has_keys(proc):  # the kernel can read it, as other private memory
        kinds[0] = kinds.get(0, Memory()).plus(unread.size, unread.used)
        del kinds[_UNREADABLE]
    chosen = int(_text(f"{folder}/coredump_filter").strip() or "33", 16)
    pattern = _text(f"{proc}/sys/kernel/core_pattern").strip()
    dumped = [kinds[bit] for bit in BITS if bit in kinds and chosen >> bit & 1]
    whole = sum(each.size for each in dumped)
    used = sum(each.used for each in dumped)
    if kinds:
        yield Remark("its core", f"{human_size(whole)} long, with about {human_size(used)} of memory in it")
        yield from _left_out(pid, kinds, chosen)
    else:
        yield Remark("its core", "its memory cannot be seen", f"as root: dmods doctor {pid}")
    yield from _dumpable(folder, proc)
    yield from _limit(pid, folder, pattern, whole if pattern.startswith("|") else used)
    yield from _place(folder, pattern, whole, used, root)


def context_remarks(found: Optional[Context]) -> Iterator[Remark]:
    """Yield what is known of a process beside its memory: unit, container, command line, limits, open files."""
    if found is None:
        return
    as_root = f"as root: dmods doctor {found.known.get('pid', 'PID')}"
    for name, text in context_lines(found):
        yield Remark(name.replace("_", " "), text, as_root if name == "not_read" else "")


def memory_kinds(smaps: str) -> dict[object, Memory]:
    """Return the memory by the bit of coredump_filter that decides about it, or by why none does."""
    kinds: dict[object, Memory] = {}
    header: Optional[re.Match[str]] = None
    fields: dict[str, str] = {}
    for count, line in enumerate(smaps.splitlines()):
        found = _HEADER.fullmatch(line)
        if found or count > 40 * _MOST_MAPPINGS:
            _add(kinds, header, fields)
            header, fields = found, {}
        else:
            key, _, value = line.partition(":")
            fields[key] = value
    _add(kinds, header, fields)
    return kinds


def _add(kinds: dict[object, Memory], header: Optional[re.Match[str]], fields: dict[str, str]) -> None:
    if header is None:
        return
    kind = _kind(header[4], fields)
    if kind is not None:
        used = 1024 * (_kilobytes(fields, "Rss") + _kilobytes(fields, "Swap"))
        kinds[kind] = kinds.get(kind, Memory()).plus(int(header[2], 16) - int(header[1], 16), used)


def _kind(path: str, fields: dict[str, str]) -> object:
    """Return the bit that decides about a mapping, or why none does; None where nothing is lost without it.

    A private mapping of a file that nothing wrote to has what the file has: without bit 2 nothing is lost.
    """
    flags = fields.get("VmFlags", "").split()
    written = _kilobytes(fields, "Anonymous") + _kilobytes(fields, "Swap") > 0
    if path.startswith("[v"):  # the vdso is always there, and the others are no memory of the process
        return None
    if "dd" in flags and "io" not in flags and "pf" not in flags:
        return _EXCLUDED
    if "dd" in flags or "io" in flags:
        return _DEVICE
    if "sh" in flags:
        return 6 if "ht" in flags else 1 if path.endswith("(deleted)") else 3
    if "ex" in flags and "rd" not in flags and "wr" not in flags and written:
        return _UNREADABLE
    return 5 if "ht" in flags else 0 if written else None


def _left_out(pid: int, kinds: dict[object, Memory], chosen: int) -> Iterator[Remark]:
    """Yield the memory that the core would lack, a line each."""
    lost = {bit: kinds[bit] for bit in BITS if bit in kinds and not chosen >> bit & 1 and kinds[bit].used}
    wanted = chosen | sum(1 << bit for bit in lost)
    for bit, memory in lost.items():
        yield Remark(
            "coredump_filter", f"0x{chosen:x} has no bit {bit}: {_amount(memory)} of {BITS[bit]} would be missing",
            f"echo 0x{wanted:x} > /proc/{pid}/coredump_filter",
        )  # fmt: skip
    if not lost:
        yield Remark("coredump_filter", f"0x{chosen:x}: nothing that the process has would be missing because of it")
    if _EXCLUDED in kinds:
        yield Remark(
            "MADV_DONTDUMP", f"the program excluded {_amount(kinds[_EXCLUDED])} from its core",
            f"gdb -p {pid} -batch -ex 'set dump-excluded-mappings on' -ex gcore",
        )  # fmt: skip
    if _DEVICE in kinds:
        yield Remark("devices", f"{_amount(kinds[_DEVICE])} of devices: the kernel writes them into no core")
    if _UNREADABLE in kinds:
        yield Remark(
            "execute-only memory", f"{_amount(kinds[_UNREADABLE])}: the core would have zeros there", f"gcore {pid}"
        )


def _amount(memory: Memory) -> str:
    return f"{human_size(memory.used)} in {counted(memory.mappings, 'mapping')}"


def _dumpable(folder: str, proc: str) -> Iterator[Remark]:
    """Yield that the process is not dumpable: then root owns its files in /proc (proc(5))."""
    uids = re.search(r"^Uid:\s+\d+\s+(\d+)", _text(f"{folder}/status"), re.MULTILINE)
    try:
        owner = os.stat(f"{folder}/status").st_uid
    except OSError:
        return
    setting = _text(f"{proc}/sys/fs/suid_dumpable").strip()
    if uids and owner != int(uids[1]) and setting == "0":
        yield Remark(
            "dumpable", "it changed its user, or said PR_SET_DUMPABLE: the kernel writes no core of it",
            "sysctl fs.suid_dumpable=2, with an absolute core_pattern or one that begins with |",
        )  # fmt: skip


def _limit(pid: int, folder: str, pattern: str, needed: int) -> Iterator[Remark]:
    """Yield what RLIMIT_CORE allows. A program that receives cores gets them whole; systemd-coredump cuts by it."""
    found = re.search(r"^Max core file size\s+(\S+)", _text(f"{folder}/limits"), re.MULTILINE)
    help_ = f"prlimit --pid {pid} --core=unlimited; LimitCORE=infinity in its unit"
    counts = not pattern.startswith("|") or "systemd-coredump" in pattern
    if found is None or found[1] == "unlimited" or not counts:
        yield Remark("core size limit", "none" if found is None or found[1] == "unlimited" else "not asked for here")
    elif int(found[1]) < _PAGE:
        yield Remark("core size limit", f"{found[1]}: it would leave no core", help_)
    elif int(found[1]) < needed:
        yield Remark(
            "core size limit", f"{human_size(int(found[1]))}: its core of {human_size(needed)} would be cut", help_
        )
    else:
        yield Remark("core size limit", f"{human_size(int(found[1]))}: enough")


def _place(folder: str, pattern: str, whole: int, used: int, root: str) -> Iterator[Remark]:
    """Yield where the core would go, and whether it fits there."""
    if pattern.startswith("|"):
        yield Remark("its core goes to", pattern)
        if "systemd-coredump" in pattern:
            yield from _systemd(whole, used, root)
        return
    where = os.path.dirname(pattern.partition("%")[0])
    place = f"{folder}/root{where}" if pattern.startswith("/") else f"{folder}/cwd"
    shown = where if pattern.startswith("/") else _link(f"{folder}/cwd") or "its own folder"
    yield Remark("its core goes to", f"{pattern}, in {shown}" if pattern else "nowhere: core_pattern is empty")
    if pattern and not os.path.isdir(place):
        yield Remark("its folder", f"{shown} is not there, or cannot be seen", f"mkdir -p {shown}")
    elif pattern:
        yield from _room(place, shown, used)


def _room(place: str, shown: str, used: int) -> Iterator[Remark]:
    try:
        disk = os.statvfs(place)
    except OSError:
        return
    free = disk.f_bavail * disk.f_frsize
    yield Remark(
        "free disk", f"{human_size(free)} in {shown}", "make room: the core would be cut" if free < used else ""
    )


def _systemd(whole: int, used: int, root: str) -> Iterator[Remark]:
    """Yield what coredump.conf allows."""
    told = _settings(root)
    if told.get("Storage") == "none":
        yield Remark("systemd", "keeps no cores: Storage=none in coredump.conf", "Storage=external")
        return
    for name in ("ProcessSizeMax", "ExternalSizeMax"):
        text = told.get(name, "")
        most = _size(text) if text else 32 << 30
        if most is not None and most < whole:
            yield Remark(
                "systemd", f"{name}={text or '32G (the default)'}: its core of {human_size(whole)} would be "
                f"{'cut' if name == 'ProcessSizeMax' else 'cut or left out'}",
                f"{name}={human_size(2 * whole)} in /etc/systemd/coredump.conf",
            )  # fmt: skip
    place = os.path.join(root, "var/lib/systemd/coredump")
    yield from _room(place, "/var/lib/systemd/coredump", used)


def _settings(root: str) -> dict[str, str]:
    """Return the settings of coredump.conf and of its parts, which override it (coredump.conf(5))."""
    told: dict[str, str] = {}
    mains = [os.path.join(root, each.lstrip("/"), "systemd/coredump.conf") for each in _SYSTEMD]
    parts = {
        os.path.basename(path): path for main in mains for path in sorted(glob.glob(glob.escape(main) + ".d/*.conf"))
    }
    for path in [*mains, *(parts[name] for name in sorted(parts))]:
        for line in _text(path).splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                told[key.strip()] = value.strip()
    return told


def _size(text: str) -> Optional[int]:
    """Return the bytes of a setting, or None for no limit ("infinity")."""
    found = _SIZES.fullmatch(text)
    return int(found[1]) << 10 * " KMGTP".index(found[2].upper() or " ") if found else None


def _has_keys(proc: str) -> bool:
    return re.search(r"^flags\s*:.*\bpku\b", _text(f"{proc}/cpuinfo")[: 1 << 16], re.MULTILINE) is not None


def _kilobytes(fields: dict[str, str], name: str) -> int:
    number = fields.get(name, "").strip().partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _link(path: str) -> Optional[str]:
    try:
        return os.readlink(path)
    except OSError:
        return None
