"""Files with a kernel's symbols or types that are no vmlinux: System.map, and BTF.

BTF is a copy of /sys/kernel/btf/vmlinux, or lies in a vmlinux without DWARF (as Debian's linux-headers have).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Optional

from dmods.base.dataclass import dataclass
from dmods.base.regex import regex
from drgnext.kernel.dump.own_types.proofs import NotCarried

SYMBOLS, TYPES = "symbols", "types"
_LISTED = regex(rb"[0-9a-fA-F]{8,16} [a-zA-Z] \S")
_BTF = (b"\x9f\xeb\x01", b"\x7fELF")
_LARGEST = 256 << 20
_LARGEST_ELF_NOTE = 1 << 16


@dataclass(frozen=True)
class Files:
    """The user's files, None for each that was not given."""

    symbols: Optional[str] = None
    types: Optional[str] = None


def sorted_out(symbols: Sequence[str], types: Optional[str]) -> Files:
    """Return which files of -s and --symbols are listings or BTF, with the file of --btf."""
    kinds = {path: kind_of(path) for path in symbols}
    listed = [path for path, kind in kinds.items() if kind == SYMBOLS]
    typed = [path for path, kind in kinds.items() if kind == TYPES]
    return Files(listed[-1] if listed else None, types or (typed[-1] if typed else None))


def kind_of(path: str) -> Optional[str]:
    """Return SYMBOLS for a listing, TYPES for BTF, and None for any other file: drgn knows what to do with it."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
        if _LISTED.match(head):
            return SYMBOLS
        if head.startswith(_BTF[0]):
            return TYPES
        return TYPES if head.startswith(_BTF[1]) and _elf_btf(path) is not None else None
    except OSError:
        return None


def listing(path: str) -> bytes:
    """Return the text of a listing of symbols. Raises NotCarried."""
    data = _content(path)
    if not _LISTED.match(data):
        raise NotCarried("it is no listing of symbols (System.map, or a copy of /proc/kallsyms)")
    return data


def btf_of(path: str) -> tuple[bytes, Optional[str]]:
    """Return the types in a file, and its build-id in hexadecimal digits where it has one. Raises NotCarried."""
    data = _content(path)
    if data.startswith(_BTF[0]):
        return data, None
    found = _elf_btf(path, with_dwarf=True) if data.startswith(_BTF[1]) else None
    if found is None:
        raise NotCarried("it is neither a copy of /sys/kernel/btf/vmlinux nor a vmlinux with a section .BTF")
    return found


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise NotCarried(f"it cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(data) > _LARGEST and not data.startswith(_BTF[1]):
        raise NotCarried(f"it has more than {_LARGEST >> 20} MB")
    return data


def _elf_btf(path: str, with_dwarf: bool = False) -> Optional[tuple[bytes, Optional[str]]]:
    """Return the section .BTF of a vmlinux, and its build-id. None without one, or with DWARF beside it."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".BTF")
            dwarf = elf.get_section_by_name(".debug_info") is not None
            if section is None or elf["e_type"] == "ET_REL" or (dwarf and not with_dwarf):
                return None
            if section["sh_type"] == "SHT_NOBITS" or section["sh_size"] > _LARGEST:
                return None
            return section.data(), _build_id(elf)
    except (OSError, ELFError, ValueError, KeyError, OverflowError, MemoryError):
        return None


def _build_id(elf: Any) -> Optional[str]:
    from dmods.modules import elf as elves

    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_NOTE" and section["sh_size"] < _LARGEST_ELF_NOTE:
            for name, kind, data in elves.read_notes(section.data(), elf.little_endian):
                if name == b"GNU" and kind == elves.NT_GNU_BUILD_ID:
                    return str(data.hex())
    return None


def shown(path: str) -> str:
    """Return the name of a file for a sentence."""
    return os.path.basename(path) or path
