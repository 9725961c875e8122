"""Which process it was, and how far its dump can be trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Optional

from dmods.base.raw_names import printable
from dmods.base.times import utc_minute
from dmods.corefile.context import context_lines, crash_context
from dmods.machine.absent import absences
from dmods.machine.packages import package_of
from dmods.modules.elf import read_notes
from dmods.modules.find import VDSO
from dmods.modules.lines import source_lines
from dmods.process.arguments import arguments
from dmods.target import Module, Target
from dmods.triage.answer import Line
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import is_runtime

_LONGEST = 300  # characters of the arguments
_NAMED = 3  # modules
_LINUX = b"Linux"  # the owner of the note in the vdso that has LINUX_VERSION_CODE (arch/x86/entry/vdso/vdso-note.S)


def process_identity(facts: ProcessFacts) -> list[Line]:
    """Return which program it was, on which machine. What is not known is left out."""
    target = facts.target
    program = next((module for module in target.modules() if module.path == target.executable), None)
    build = f", build-id {program.build_id}" if program is not None and program.build_id else ""
    told = [
        ("program", f"{target.executable}{build}" if target.executable else None),
        ("package", _package(facts)),
        ("pid", str(target.pid) if target.pid is not None else None),
        ("arguments", _arguments(facts)),
        *_kept(facts),
        ("system", f"Linux{_linux_version(target)}, {target.arch.name}"),
        ("dumped", _time(target.path)),
    ]
    return [Line(name, text) for name, text in told if text]


def _arguments(facts: ProcessFacts) -> str:
    words = arguments(facts.target)[1:]
    text = " ".join(words)
    return facts.content(printable(text[:_LONGEST] + ("..." if len(text) > _LONGEST else "")), "arguments")


def _package(facts: ProcessFacts) -> Optional[str]:
    """Return the package that the keeper of the core says, which was installed at the crash; else that of the file."""
    found = crash_context(facts.target)
    if found is not None and found.known.get("package"):
        return printable(found.known["package"][:_LONGEST])
    target = facts.target
    program = next((module for module in target.modules() if module.path == target.executable), None)
    return package_of(program.file) if program is not None and program.file and not program.problem else None


def _kept(facts: ProcessFacts) -> list[tuple[str, Optional[str]]]:
    """Return what systemd, apport or abrt knows beside its core: host, unit, container, limits, open files."""
    found = crash_context(facts.target)
    if found is None:
        return []
    told = dict(context_lines(found, contents=False))
    named = [("host", told.pop("hostname", None))]
    return named + [(name.replace("_", " "), printable(text)) for name, text in told.items() if name != "package"]


def _time(path: Optional[str]) -> Optional[str]:
    try:
        return f"{utc_minute(os.stat(path).st_mtime)} UTC, the time of the file" if path is not None else None
    except OSError:
        return None


def _linux_version(target: Target) -> str:
    """Return the version of the kernel that made the vdso: " 6.1.0"."""
    vdso = next((module for module in target.modules() if module.path == VDSO), None)
    raw = target.image().read(vdso.start, min(vdso.end - vdso.start, 1 << 14)) if vdso is not None else b""
    at = raw.find(b"\x06\0\0\0\x04\0\0\0\0\0\0\0Linux\0")
    for owner, kind, desc in read_notes(raw[at : at + 24], True) if at >= 0 else ():
        if owner == _LINUX and kind == 0 and len(desc) == 4:
            code = int.from_bytes(desc, "little")
            return f" {code >> 16}.{code >> 8 & 0xFF}.{code & 0xFF}"
    return ""


# -- trust ----------------------------------------------------------------------------------------------------------


def process_trust(facts: ProcessFacts) -> list[Line]:
    """Return what of the process is in the dump, and what of its files is here."""
    target = facts.target
    absent = [Line("not in it", str(each)) for each in absences(target)[:_NAMED]]
    return [Line("memory", _memory(target)), *absent, *_files(target), Line("lines", _source(facts))]


def _memory(target: Target) -> str:
    if target.path is None:
        return "the process is there itself: all of it"
    target.image()  # its notes are those of the dump
    lost = sum(end - start for start, end in target.missing)
    if lost:
        return f"the dump is cut: {lost:,} bytes that it promises are missing"
    writable = [mapping for mapping in target.mappings() if "w" in mapping.flags]
    absent = sum(mapping.size - mapping.dumped for mapping in writable)
    if absent:
        return f"the dump is whole, but leaves out {absent:,} bytes that the process could write"
    return "the dump is whole, with all memory that the process could write"


def _files(target: Target) -> Iterator[Line]:
    modules = [module for module in target.modules() if module.path != VDSO]
    wrong = [module for module in modules if module.file is None or module.problem]
    named = ", ".join(_of(module) for module in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    same = f"{len(modules) - len(wrong)} of {len(modules)} are here, and are the same"
    yield Line("files", f"{same}; not {named}{more}" if wrong else same)


def _of(module: Module) -> str:
    return f"{module.name} ({'another build' if module.problem and module.file else 'not here'})"


def _source(facts: ProcessFacts) -> str:
    """Return whether the program's own frames have functions and lines."""
    own = [(frame, name) for frame, name in zip(facts.frames, facts.names) if not is_runtime(name)]
    lines = source_lines(facts.target)
    known = sum(bool(lines.frames_at(frame.code_address, frame.exact)) for frame, _name in own)
    if not own:
        return "no frame of the program is on the stack"
    unnamed = sum(name.rpartition("`")[2].startswith("0x") for _frame, name in own)
    bare = f", {unnamed} have no name" if unnamed else ""
    return f"{known} of the program's {len(own)} frames have lines{bare}"
