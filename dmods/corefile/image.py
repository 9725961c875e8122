"""The memory image of a core: the bytes of the dump, and those of mapped files where the dump has none."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import Optional

from dmods._engine import Image
from dmods.base.rows import Rows
from dmods.corefile.segments import Piece, Pieces
from dmods.modules.find import FoundModule
from dmods.modules.localfiles import MOST_FILES, LocalFile, LocalFiles, was_deleted


def build(
    core: str, pieces: Pieces, found: Sequence[FoundModule], files: LocalFiles, dumped_at: float
) -> tuple[Image, list[str]]:
    """Return the image, and notes on what it lacks.

    ``dumped_at`` is the mtime of the core: a data file that was changed later is doubtful. Bytes of a file are used for
    read-only mappings. They are used for a writable mapping of an ELF file only if the dump has anonymous memory and
    promises no byte of this mapping: the kernel dumps a private mapping as soon as one page was written (fs/coredump.c,
    vma_dump_size).
    """
    choice = _Choice(pieces, found, files, dumped_at)
    plan = _Plan(core)
    missing: list[Piece] = []
    for piece in pieces:
        mapping = piece.range
        if mapping.dumped:
            plan.add(core, mapping.start, mapping.dumped, piece.offset)
        if mapping.dumped == mapping.size or mapping.flags == "---":
            continue
        local = choice.file_of(piece)
        if local is not None:
            plan.behind(piece, local)
        elif choice.is_missing(piece):
            missing.append(piece)
    notes = [_missing_note(missing, len(pieces))] if missing else []
    notes += [f"{path} {why}: its bytes are doubtful" for path, why in list(choice.doubtful.items())[:4]]
    if plan.left_out:
        notes.append(f"{plan.left_out} mapped files are not used: too many files are open (ulimit -n)")
    if files.not_looked_for:
        notes.append(f"the core names more than {MOST_FILES} files: the others are not used")
    return Image(plan.paths, plan.segments, []), notes


class _Choice:
    """Chooses the file that has what the dump lacks of a mapping. ``doubtful`` files were changed later."""

    def __init__(self, pieces: Pieces, found: Sequence[FoundModule], files: LocalFiles, dumped_at: float) -> None:
        self.doubtful: dict[str, str] = {}
        self._files, self._dumped_at = files, dumped_at
        self._private_dumped = any(p.promised and p.range.path is None and "w" in p.range.flags for p in pieces)
        self._proven = {f.module.path: f.local for f in found if f.local and f.same}
        self._elf_paths = {f.module.path for f in found}

    def file_of(self, piece: Piece) -> Optional[LocalFile]:
        """Return the file, or None where no file can have the bytes."""
        path, local = piece.range.path or "", self._proven.get(piece.range.path or "")
        if "w" in piece.range.flags:
            return local if local and self._private_dumped and piece.promised == 0 else None
        if local is None and path and path not in self._elf_paths:
            return self._data_file(path)
        return local

    def is_missing(self, piece: Piece) -> bool:
        """Return whether memory is missing that only the dump could have."""
        if "w" not in piece.range.flags or piece.promised >= piece.range.size:
            return False
        # The kernel also leaves out private memory that was never written: nothing is missing then.
        return not (self._private_dumped and piece.range.path is None and piece.promised == 0)

    def _data_file(self, path: str) -> Optional[LocalFile]:
        if was_deleted(path) or path.startswith(("/dev/", "/proc/", "/sys/", "/SYSV", "/memfd:")):
            return None
        local = self._files.find(path)
        if local is not None and local.mtime > self._dumped_at:
            self.doubtful[path] = "was changed after the core was made"
        return local


def _segment(*fields: int) -> tuple[int, ...]:
    return fields


class _Plan:
    """The segments for the engine, and the files that hold them."""

    def __init__(self, core: str) -> None:
        self.paths = [core]
        self.segments = Rows(_segment, "QQQQ")
        self.left_out = 0
        self._index = {core: 0}
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft // 2)

    def add(self, path: str, address: int, size: int, offset: int) -> None:
        index = self._index.get(path)
        if index is None:
            if len(self.paths) >= self._most:
                self.left_out += 1
                return
            index = self._index[path] = len(self.paths)
            self.paths.append(path)
        self.segments.append((address, size, index, offset))

    def behind(self, piece: Piece, local: LocalFile) -> None:
        mapping = piece.range
        offset = mapping.offset + mapping.dumped
        size = min(mapping.size - mapping.dumped, local.size - offset)
        if size > 0:
            self.add(local.path, mapping.start + mapping.dumped, size, offset)


def _missing_note(missing: Sequence[Piece], count: int) -> str:
    size = sum(piece.range.size - piece.promised for piece in missing)
    return (
        f"{len(missing)} of {count} segments missing from the core ({size} bytes of writable memory): "
        "leaks may be over-reported"
    )
