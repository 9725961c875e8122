"""The caches of names and inodes, by file system, and the files with most cached pages.

Machines have millions of both, so the engine counts them (engine/core/src/kernel/file_caches.rs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmods._engine import count_inodes, count_names
from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.pages.memmap import Progress, page_array
from drgnext.kernel.system.paths import Paths

if TYPE_CHECKING:
    from dmods._engine import InodesLayout, Memmap, NamesLayout
    from drgnext.kernel.system.reading import Reader


@dataclass
class FileSystem:
    """A superblock. ``negative`` names are those of files that do not exist; nobody uses the ``unused`` ones."""

    address: int
    kind: str
    name: str
    dentries: int = 0
    negative: int = 0
    unused: int = 0
    inodes: int = 0
    pages: int = 0


class CachedFile(NamedTuple):
    """A file with pages in the page cache."""

    pages: int
    inode: int
    number: int
    superblock: int


class Dentries:
    """The objects in the caches."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.file_systems: dict[int, FileSystem] = {}
        self.files: list[CachedFile] = []
        self.unknown = 0  # dentries of no known file system
        self.known = False  # whether any part of the hash table of dentries was there

    def read(self, top: int, progress: Progress = None) -> None:
        """Fill in the file systems, and the ``top`` files with most cached pages, the largest first.

        Raises UserError if the page tables in the dump are not known. ``progress`` gets the number of structures.
        """
        memmap = page_array(self._reader.kernel).engine
        head = self._reader.prog["super_blocks"].address_of_().value_()
        lists = []
        for block in self._reader.members(head, "struct super_block", "s_list", "superblocks"):
            with self._reader.reading("superblocks"):
                kind, name = self._reader.string(block.s_type.name, 64), self._reader.string(block.s_id, 32)
                lists.append(block.s_inodes.address_of_().value_())
                self.file_systems[block.value_()] = FileSystem(block.value_(), kind, name)
        with self._reader.reading("lists of inodes"):
            self._inodes(memmap, lists, top, progress)
        with self._reader.reading("tables of dentries"):
            self._names(memmap, progress)

    def _inodes(self, memmap: Memmap, lists: list[int], top: int, progress: Progress) -> None:
        """Count the inodes and their cached pages. The page cache of a device belongs to its own inode."""
        offset = self._reader.offset
        layout: InodesLayout = {
            "list": offset("struct inode", "i_sb_list"),
            "pages": offset("struct inode", "i_data.nrpages"),
            "number": offset("struct inode", "i_ino"),
        }
        counted, files = count_inodes(memmap, layout, lists, top, progress)
        entries = list(self.file_systems.values())
        for entry, (inodes, pages, broken) in zip(entries, counted):
            entry.inodes, entry.pages = inodes, pages
            if broken is not None and self._reader.memory.word(broken) is None:
                self._reader.damaged("the list of inodes", broken, None)
            elif broken is not None:
                where = f"{entry.kind} {entry.name}".strip()
                self._reader.note(
                    f"the list of inodes of {where} is damaged at {broken:#x}: the rest of it is not counted"
                )
        self.files = [CachedFile(pages, inode, number, entries[index].address) for pages, inode, number, index in files]

    def _names(self, memmap: Memmap, progress: Progress) -> None:
        """Count the dentries in the hash table. Roots and names that were removed are not in it."""
        offset = self._reader.offset
        shift = int(self._reader.prog["d_hash_shift"])  # 32 minus the bits of a bucket's number
        if not 0 < shift < 32:
            self._reader.note("the hash table of dentries is damaged: its size cannot be right")
            return
        layout: NamesLayout = {
            "hash": offset("struct dentry", "d_hash"),
            "inode": offset("struct dentry", "d_inode"),
            "superblock": offset("struct dentry", "d_sb"),
            "count": offset("struct dentry", "d_lockref.count"),
            "table": self._reader.prog["dentry_hashtable"].value_(),
            "buckets": 1 << (32 - shift),
        }
        entries = list(self.file_systems.values())
        counted, self.unknown, missing, (broken, first) = count_names(
            memmap, layout, [entry.address for entry in entries], progress
        )
        for entry, (names, negative, unused) in zip(entries, counted):
            entry.dentries, entry.negative, entry.unused = names, negative, unused
        self.known = missing < layout["buckets"]
        if missing:
            self._reader.note(
                f"the dump lacks {missing} of {layout['buckets']} buckets of the hash table of dentries: the names in "
                "them are not counted"
            )
        if broken:
            self._reader.note(
                f"{broken} chains of dentries are damaged, or the dump lacks a part (the first: at {first:#x}): the "
                "rest of each is not counted"
            )

    def path(self, inode: int) -> str:
        """Return the path of an inode within its file system, "" if no name of it is cached."""
        structure = "struct dentry"
        member = "d_alias" if self._reader.has(structure, "d_alias") else "d_u.d_alias"
        first = self._reader.memory.word(inode + self._reader.offset("struct inode", "i_dentry"))
        if not first:
            return ""
        return Paths(self._reader).within(first - self._reader.offset(structure, member))

    def counted(self) -> dict[str, int]:
        """Return the kernel's own numbers, as /proc/sys/fs/dentry-state has them: all, unused, negative."""
        found = {}
        for name, variable in (
            ("dentries", "nr_dentry"), ("unused", "nr_dentry_unused"), ("negative", "nr_dentry_negative"),
        ):  # fmt: skip
            with self._reader.reading("counters of dentries"):
                each = [int(self._reader.percpu_variable(variable, cpu)) for cpu in self._reader.cpus()]
                found[name] = max(0, sum(each))
        return found
