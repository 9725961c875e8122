"""The files with debug information that the user gave to drgn (-s), and why one of them is of no use.

drgn leaves out a file that does not belong to the dump. It says so in a warning, which -q hides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.modules import elf as elves
from dmods.modules.localfiles import why_no_elf

if TYPE_CHECKING:
    from drgn import Module, Program

_SHORT, _LONG = "-s", "--symbols"
_MOST_FILES = 1000
_MOST_SHOWN = 3
_LARGEST_NOTES = 1 << 20


def given_files() -> list[str]:
    """Return the files of this drgn's own command line, or [] if this process is not drgn's command line."""
    words = list(getattr(sys, "orig_argv", ())) or _command_line()
    if not any(os.path.basename(word) == "drgn" for word in words[:2]) and words[1:3] != ["-m", "drgn"]:
        return []
    found = []
    for word, value in zip(words, [*words[1:], ""]):
        if word in (_SHORT, _LONG):
            found.append(value)
        elif word.startswith(f"{_LONG}="):
            found.append(word.partition("=")[2])
        elif word.startswith(_SHORT) and not word.startswith("--") and len(word) > len(_SHORT):
            found.append(word[len(_SHORT) :])
    return found[:_MOST_FILES]


def _command_line() -> list[str]:
    """Return the words that this process was started with. Python before 3.10 has no sys.orig_argv."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def unused(prog: Program, files: Sequence[str]) -> list[str]:
    """Return a sentence for each of the files that drgn did not use."""
    if not files:
        return []
    modules = list(prog.modules())
    used = {os.path.realpath(path) for module in modules for path in _paths(module)}
    wrong = [_why(path, modules) for path in files if os.path.realpath(path) not in used]
    sentences = list(dict.fromkeys(sentence for sentence in wrong if sentence is not None))
    left = len(sentences) - _MOST_SHOWN
    return sentences[:_MOST_SHOWN] + ([f"{left} more files of -s are not used"] if left > 0 else [])


def _paths(module: Module) -> Iterator[str]:
    """Yield the files that drgn uses for the module."""
    for path in (module.debug_file_path, module.loaded_file_path):
        if path is not None:
            yield path


def _why(path: str, modules: Sequence[Module]) -> Optional[str]:
    """Return why drgn did not use the file. None: it belongs to a module that has another file already."""
    import drgn

    reason = why_no_elf(path)
    if reason is not None:
        return f"-s {path} is not used: {reason}"
    own, relocatable = _identity(path)
    if own is None:
        return f"-s {path} is not used: it has no build-id"
    owner = next((module for module in modules if module.build_id is not None and module.build_id.hex() == own), None)
    if owner is not None:
        lacks = f"-s {path} is not used: its build-id matches, but it has no debugging information"
        return lacks if owner.wants_debug_file() else None
    main = next((module for module in modules if isinstance(module, drgn.MainModule)), None)
    if relocatable and (main is None or main.wants_debug_file()):
        return f"-s {path} is not used: it is a module, and without vmlinux the modules in the dump are not known"
    if relocatable:
        return f"-s {path} is not used: no module in the dump has its build-id ({own})"
    theirs = main.build_id if main is not None else None
    whose = f"the dump's kernel has {theirs.hex()}" if theirs is not None else "the dump's kernel has another"
    return f"-s {path} is not used: it does not match the dump: its build-id is {own}, and {whose}"


def _identity(path: str) -> tuple[Optional[str], bool]:
    """Return (the build-id in hex or None, whether it is a relocatable file as modules are)."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as file:
            elf = ELFFile(file)
            for section in elf.iter_sections():
                if section["sh_type"] == "SHT_NOTE" and section["sh_size"] < _LARGEST_NOTES:
                    for name, kind, data in elves.read_notes(section.data(), elf.little_endian):
                        if name == b"GNU" and kind == elves.NT_GNU_BUILD_ID:
                            return data.hex(), elf["e_type"] == "ET_REL"
            return None, elf["e_type"] == "ET_REL"
    except (OSError, ELFError, ValueError, KeyError, OverflowError, MemoryError):
        return None, False
