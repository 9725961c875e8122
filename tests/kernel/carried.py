"""Dumps whose kernel carries no types, made of those that do. And what BTF says, read by code that is not dmods'."""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

from elftools.elf.elffile import ELFFile

from fixtures.kernel import Guest

_HEADER = re.compile(rb"\x9f\xeb\x01\x00\x18\x00\x00\x00\x00\x00\x00\x00", re.DOTALL)  # struct btf_header, hdr_len 24
_LEAST_TYPES = 1 << 20  # bytes of the types of a kernel; those of modules are smaller


def places(data: mmap.mmap) -> list[int]:
    """Return where the types of a kernel begin in its dump."""
    found = []
    for match in _HEADER.finditer(data):
        (size,) = struct.unpack_from("<I", data, match.start() + 12)
        if size >= _LEAST_TYPES:
            found.append(match.start())
    return found


def without_types(vmcore: Path, folder: Path) -> Path:
    """Return a copy of the dump in which the kernel's types do not begin as BTF does."""
    copy = folder / "vmcore"
    shutil.copyfile(vmcore, copy)
    with copy.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        found = places(data)
        assert found
        for place in found:
            data[place] = 0
    return copy


def structures(vmcore: Path) -> list[str]:
    """Return the names of the structures of the kernel's types. A name that several have is left out."""
    with vmcore.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # Memory of the boot loader may have another copy, half of it overwritten.
        names = next(found for found in (_structures(data, place) for place in places(data)) if found)
    return sorted(name for name, count in names.items() if count == 1)


# Bytes behind the first twelve of a type, by its kind: (fixed, for each of the list).
_MORE = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0), 15: (0, 12), 17: (4, 0)}
_MORE[19] = (0, 12)
_KINDS = 20


def _structures(data: mmap.mmap, place: int) -> Counter[str]:
    """Return how often each name is that of a structure, nothing if the types do not end where they should."""
    types_size, strings_at, strings_size = struct.unpack_from("<III", data, place + 12)
    types = data[place + 24 : place + 24 + types_size]
    strings = data[place + 24 + strings_at : place + 24 + strings_at + strings_size]
    names: Counter[str] = Counter()
    at = 0
    while at + 12 <= len(types):
        name, info, _value = struct.unpack_from("<III", types, at)
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        if not 0 < kind < _KINDS:
            return Counter()
        if kind == 4 and name:
            names[strings[name : strings.index(b"\0", name)].decode()] += 1
        fixed, each = _MORE.get(kind, (0, 0))
        at += 12 + fixed + each * count
    return names if at == len(types) else Counter()


def system_map(guest: Guest, folder: Path) -> Path:
    """Write the System.map of the guest's kernel, as scripts/mksysmap makes it."""
    listed = subprocess.run(["nm", "-n", guest.vmlinux], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listed.splitlines() if line.split()[1] not in "UN"]
    file = folder / f"System.map-{guest.release}"
    file.write_text("\n".join([*lines, ""]))
    return file


def proc_kallsyms(guest: Guest, folder: Path, moved: int) -> Path:
    """Write what /proc/kallsyms says to root where the kernel runs ``moved`` bytes higher, with a module's symbol."""
    rows = [line.split(" ", 1) for line in system_map(guest, folder).read_text().splitlines()]
    start = next(int(address, 16) for address, name in rows if name.endswith(" _text"))
    lines = [f"{int(at, 16) + (moved if int(at, 16) >= start else 0):016x} {name}" for at, name in rows]
    file = folder / "kallsyms"
    file.write_text("\n".join([*lines, "ffffffffc0000000 t loop_init\t[loop]", ""]))
    return file


def btf_copy(guest: Guest, folder: Path) -> Path:
    """Write what /sys/kernel/btf/vmlinux has in the guest."""
    file = folder / f"btf-{guest.release}"
    with guest.vmlinux.open("rb") as stream:
        file.write_bytes(ELFFile(stream).get_section_by_name(".BTF").data())
    return file
