"""The files of an image: its layers, one over the other, as the OCI image specification says (layer.md)."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.corefile.images.store import MOST_ENTRIES, Section, clean, members
from dmods.modules.rooted import resolved

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MOST_NOTES = 3


class Entry(NamedTuple):
    """A file of the image. A regular one has its layer, and where its bytes are in it."""

    kind: str
    layer: int = 0
    offset: int = 0
    size: int = 0
    link: str = ""
    mtime: float = 0.0


class Files:
    """The files of an image by their absolute paths."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {"/": Entry(FOLDER)}
        self.notes: list[str] = []

    def resolved(self, path: str) -> Optional[str]:
        """Return the path without links, or None where they form a cycle."""
        return resolved(path, self._link)

    def find(self, path: str) -> Optional[tuple[str, Entry]]:
        """Return a regular file with its path without links, or None."""
        real = self.resolved(path)
        found = self.entries.get(real) if real is not None else None
        return (real, found) if real is not None and found is not None and found.kind == FILE else None

    def _link(self, path: str) -> Optional[str]:
        found = self.entries.get(path)
        return found.link if found is not None and found.kind == LINK else None

    def add(self, number: int, layer: Section) -> None:
        """Lay the next layer, a plain tar, over the files."""
        problems: list[str] = []
        left_out = 0
        listed: list[tuple[str, tarfile.TarInfo]] = []
        for member in members(layer, problems):
            name = clean(member.name)
            if name is None:
                left_out += 1
            else:
                listed.append((name, member))
        if left_out:
            problems.append(f"{left_out} names lead out of the image by `..`: they are not used")
        self._remove(listed)
        for name, member in listed:
            base = name.rpartition("/")[2]
            if not base.startswith(_WHITEOUT) and name != "/":
                self._lay(name, member, number, problems)
        if len(self.entries) > MOST_ENTRIES:
            problems.append(f"the image has more than {MOST_ENTRIES} files")
        self.notes += [f"layer {number + 1}: {problem}" for problem in problems[:_MOST_NOTES]]

    def _remove(self, listed: Sequence[tuple[str, tarfile.TarInfo]]) -> None:
        """Remove what a layer hides of those below it: by a whiteout, an opaque folder, or another kind of file."""
        hidden, emptied = set(), set()
        for name, member in listed:
            folder, _slash, base = name.rpartition("/")
            if base == _OPAQUE:
                emptied.add(self.resolved(folder or "/"))
            elif base.startswith(_WHITEOUT) and base != _WHITEOUT:
                parent = self.resolved(folder or "/") or ""
                hidden.add(f"{parent.rstrip('/')}/{base[len(_WHITEOUT) :]}")
            elif not member.isdir():
                emptied.add(name)
        if hidden or emptied:
            gone = [path for path in self.entries if path in hidden or _is_in(path, hidden, emptied)]
            for path in gone:
                del self.entries[path]

    def _lay(self, name: str, member: tarfile.TarInfo, number: int, problems: list[str]) -> None:
        folder, _slash, base = name.rpartition("/")
        parent = self.resolved(folder or "/")
        if parent is None:
            return
        path = f"{parent.rstrip('/')}/{base}"
        found = self._entry(member, number)
        if found is None:
            problems.append(f"{name[:200]} is a hard link to a file that is not there")
            return
        self.entries[path] = found

    def _entry(self, member: tarfile.TarInfo, number: int) -> Optional[Entry]:
        if member.isdir():
            return Entry(FOLDER)
        if member.issym():
            return Entry(LINK, link=member.linkname)
        if member.islnk():
            found = self.find(clean(member.linkname) or "/")
            return found[1] if found is not None else None
        if member.isreg() and not member.sparse:
            return Entry(FILE, number, member.offset_data, member.size, mtime=float(member.mtime))
        return Entry(OTHER)


def _is_in(path: str, hidden: set[str], emptied: set[Optional[str]]) -> bool:
    """Return whether a folder above the path is hidden or emptied."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in hidden or path in emptied:
            return True
    return False
