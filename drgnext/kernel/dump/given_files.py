"""The files with symbols and types that the user gave (-s, --symbols, --btf), and why one of them is of no use.

drgn leaves out a file that does not belong to the dump. It says so in a warning, which -q hides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.modules import elf as elves
from dmods.modules.localfiles import why_no_elf
from drgnext.kernel.dump.own_types import carried
from drgnext.kernel.dump.own_types.files import Files, kind_of, sorted_out

if TYPE_CHECKING:
    from drgn import Module, Program

_SHORT, _LONG, _TYPES = "-s", "--symbols", "--btf"
_MOST_FILES = 1000
_MOST_SHOWN = 3
_LARGEST_NOTES = 1 << 20


# The files of a command at the prompt: (option, path).
_at_prompt: list[tuple[str, str]] = []


def given_files() -> list[str]:
    """Return the files of -s and --symbols, of drgn's own command line and of the command at the prompt."""
    return [value for option, value in _options() if option == _LONG][:_MOST_FILES]


def given_types() -> Optional[str]:
    """Return the file of --btf, or None."""
    return next((value for option, value in reversed(_options()) if option == _TYPES), None)


def own_files() -> Files:
    """Return the files that are no vmlinux: a listing of symbols, and BTF."""
    return sorted_out(given_files(), given_types())


def remember(symbols: Sequence[str], types: Optional[str]) -> bool:
    """Take the files of a command. Return whether one is new: drgn has not seen it yet."""
    asked = [*((_LONG, path) for path in symbols), *([(_TYPES, types)] if types is not None else [])]
    known = _options()
    _at_prompt.extend(one for one in asked if one not in known)
    return any(one not in known for one in asked)


def _options() -> list[tuple[str, str]]:
    """Return (_LONG or _TYPES, the file) of each option. This process may not be drgn's command line."""
    words = list(getattr(sys, "orig_argv", ())) or _command_line()
    if not any(os.path.basename(word) == "drgn" for word in words[:2]) and words[1:3] != ["-m", "drgn"]:
        words = []
    found = []
    for word, value in zip(words, [*words[1:], ""]):
        name, equals, after = word.partition("=")
        if name in (_LONG, _TYPES):
            found.append((name, after if equals else value))
        elif word == _SHORT:
            found.append((_LONG, value))
        elif word.startswith(_SHORT) and not word.startswith("--"):
            found.append((_LONG, word[len(_SHORT) :]))
    return [*found, *_at_prompt]


def _command_line() -> list[str]:
    """Return the words that this process was started with. Python before 3.10 has no sys.orig_argv."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def unused(prog: Program, lost_pages: bool = False) -> list[str]:
    """Return a sentence for each of the user's files that is not used.

    ``lost_pages``: the dump lacks pages of slabs, and so structures that describe modules.
    """
    files, types = given_files(), given_types()
    if not files and types is None:
        return []
    modules = list(prog.modules())
    used = {os.path.realpath(path) for module in modules for path in _paths(module)}
    wrong = [
        _why_not_own(prog, _SHORT, path) if kind_of(path) is not None else _why(path, modules, lost_pages)
        for path in files
        if os.path.realpath(path) not in used
    ]
    wrong += [_why_not_own(prog, _TYPES, types)] if types is not None else []
    sentences = list(dict.fromkeys(sentence for sentence in wrong if sentence is not None))
    left = len(sentences) - _MOST_SHOWN
    return sentences[:_MOST_SHOWN] + ([f"{left} more files of -s are not used"] if left > 0 else [])


def _paths(module: Module) -> Iterator[str]:
    """Yield the files that drgn uses for the module."""
    for path in (module.debug_file_path, module.loaded_file_path):
        if path is not None:
            yield path


def _why_not_own(prog: Program, option: str, path: str) -> Optional[str]:
    """Return why a listing of symbols or BTF is not used. None: it is, or nothing is, and the error says why."""
    found = carried.outcome(prog)
    if path in found.refused:
        return f"{option} {path} is not used: {found.refused[path]}"
    if path in (found.symbols, found.types) or found.reason:
        return None
    other = "another file is" if carried.stands_for_vmlinux(prog) else "vmlinux has all symbols and types"
    return f"{option} {path} is not used: {other}"


def _why(path: str, modules: Sequence[Module], lost_pages: bool) -> Optional[str]:
    """Return why the file is not used. None: it belongs to a module that has another file already."""
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
        lost = "the dump lacks pages of slabs, and so parts of what describes modules"
        return f"-s {path} is not used: {lost if lost_pages else f'no module in the dump has its build-id ({own})'}"
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
