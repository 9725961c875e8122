"""Notes on the files of a core: which are missing or differ, and of which it is not known whether they were mapped."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.base.sizes import counted
from dmods.corefile.segments import Pieces
from dmods.modules.find import MOST_MODULES, NOT_HERE, FoundModule
from dmods.modules.localfiles import LocalFile


def unnamed_notes(pieces: Pieces) -> list[str]:
    """Return the note on a core that does not say which files were mapped, if it lacks bytes of unnamed memory."""
    count = sum(
        piece.range.path is None and piece.promised < piece.range.size and piece.range.flags != "---"
        for piece in pieces
    )
    if not count:
        return []
    # fs/coredump.c, fill_files_note(): the limit is there since Linux 3.8, the sysctl since 6.10
    why = "the kernel leaves it out if it is larger than 4 MiB, or kernel.core_file_note_size_limit"
    return [
        f"the core does not say which files were mapped (no NT_FILE note: {why}): of {counted(count, 'mapping')} "
        "without bytes in the core it is not known whether they are of files"
    ]


def unused_note(local: LocalFile) -> str:
    """Return the note on a file that the user named as the program, and that no module of the dump can be."""
    identity = f"has its build-id ({local.build_id})" if local.build_id else "begins as it does"
    return f"{local.path} is not used as the program: no module in the dump {identity}, and its segments fit no mapping"


def module_notes(found: Sequence[FoundModule]) -> list[str]:
    """Return one line for each kind of problem, however many modules have it."""
    notes = []
    if len(found) >= MOST_MODULES:
        notes.append(f"the process has more than {MOST_MODULES} ELF files mapped: the others have no symbols")
    gone = [f.module.name for f in found if f.module.problem == NOT_HERE]
    if gone:
        notes.append(
            f"{len(gone)} of {len(found)} mapped ELF files are not on this machine ({_some(gone)}): their symbols and "
            "read-only bytes are missing (--sysroot names another root)"
        )
    moved = [f for f in found if f.instead is not None and f.local is not None]
    for each in moved[:3]:
        was = f"{each.module.path} is {NOT_HERE}" if each.instead == NOT_HERE else each.instead
        notes.append(f"{was}: its copy by build-id is used, {each.local.path if each.local else ''}")
    if len(moved) > 3:
        notes.append(f"{len(moved) - 3} more mapped ELF files are copies by their build-id")
    other = [f.module for f in found if f.module.problem not in (None, NOT_HERE)]
    notes.extend(f"{module.name} is not used: {module.problem}" for module in other[:3] if module.file is None)
    notes.extend(f"{module.name}: {module.problem}; its symbols may be wrong" for module in other if module.file)
    if len(other) > 3:
        notes.append(
            f"{len(other) - 3} more mapped ELF files differ from this machine's (--sysroot names another root)"
        )
    trusted = [f.module.name for f in found if f.same and not f.proof]
    if trusted:
        notes.append(f"the core has no proof of these files, so files of the same path are used: {_some(trusted)}")
    return notes


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
