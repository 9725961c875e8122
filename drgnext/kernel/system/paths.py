"""Paths of files, as the kernel's dentries and mounts spell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_PARTS = 4096


class Paths:
    """Turns dentries into paths, word by word. Offsets are looked up once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        dentry, mount = "struct dentry", "struct mount"
        self._parent = reader.offset(dentry, "d_parent")
        self._name = reader.offset(dentry, "d_name")
        self._hash = reader.offset("struct qstr", "name")
        self._length = reader.offset("struct qstr", "len")
        self._mnt = reader.offset(mount, "mnt")
        self._mnt_root = reader.offset(mount, "mnt") + reader.offset("struct vfsmount", "mnt_root")
        self._mnt_parent = reader.offset(mount, "mnt_parent")
        self._mountpoint = reader.offset(mount, "mnt_mountpoint")
        self._operations = reader.offset(dentry, "d_op")
        self._makes_name = reader.offset("struct dentry_operations", "d_dname")
        self._inode = reader.offset(dentry, "d_inode")
        self._superblock = reader.offset(dentry, "d_sb")
        self._root = reader.offset("struct super_block", "s_root")
        self._makers: dict[int, str] = {}  # names of functions d_dname, by address

    def name(self, dentry: int) -> str:
        """Return the last part of a dentry's path."""
        memory = self._reader.memory
        pointer = memory.word(dentry + self._name + self._hash)
        length = int.from_bytes(memory.read(dentry + self._name + self._length, 4), "little")
        if not pointer or length > 4096:
            return "?"
        return memory.read(pointer, length).decode(errors="backslashreplace")

    def made(self, dentry: int) -> Optional[str]:
        """Return the name that a file system makes of a dentry without a directory (d_dname), or None.

        Such are pipes, sockets, namespaces, processes, and memory of memfd_create() (fs/d_path.c, d_path()). The root
        of a file system is no such dentry.
        """
        memory = self._reader.memory
        superblock = memory.word(dentry + self._superblock)
        if memory.word(dentry + self._parent) != dentry or not superblock:
            return None
        if memory.word(superblock + self._root) == dentry:
            return None
        operations = memory.word(dentry + self._operations)
        maker = memory.word(operations + self._makes_name) if operations else 0
        return self._as_made(self._symbol(maker), dentry) if maker else None

    def _as_made(self, maker: str, dentry: int) -> str:
        """Return the name that a function d_dname makes."""
        name, inode = self.name(dentry), self._reader.memory.word(dentry + self._inode) or 0
        if maker in ("pipefs_dname", "sockfs_dname"):  # fs/pipe.c, net/socket.c
            return f"{'pipe' if maker == 'pipefs_dname' else 'socket'}:[{self._number(inode)}]"
        if maker == "ns_dname":  # fs/nsfs.c
            return f"{self._of_namespace(inode)}:[{self._number(inode)}]"
        if maker == "anon_inodefs_dname":  # fs/anon_inodes.c
            return f"anon_inode:{name}"
        if maker == "pidfs_dname":  # fs/pidfs.c, since 6.9
            return "anon_inode:[pidfd]"
        if maker == "dmabuffs_dname":  # drivers/dma-buf/dma-buf.c
            return f"/{name}:{self._of_buffer(dentry)}"
        return f"/{name} (deleted)"  # fs/d_path.c, simple_dname()

    def _symbol(self, address: int) -> str:
        """Return the name of a function, "" if it is not known."""
        if address not in self._makers:
            try:
                self._makers[address] = self._reader.prog.symbol(address).name
            except LookupError:
                self._makers[address] = ""
        return self._makers[address]

    def _number(self, inode: int) -> int:
        return (self._reader.memory.word(inode + self._reader.offset("struct inode", "i_ino")) or 0) if inode else 0

    def _of_namespace(self, inode: int) -> str:
        """Return the kind of a namespace ("net") by its file's inode."""
        reader, memory = self._reader, self._reader.memory
        common = memory.word(inode + reader.offset("struct inode", "i_private")) if inode else 0
        operations = memory.word(common + reader.offset("struct ns_common", "ops")) if common else 0
        pointer = reader.offset("struct proc_ns_operations", "name")
        text = memory.word(operations + pointer) if operations else 0
        return reader.text(text, 32) if text else "?"

    def _of_buffer(self, dentry: int) -> str:
        """Return the name that a user gave to a buffer for DMA, "" for none."""
        reader, memory = self._reader, self._reader.memory
        buffer = memory.word(dentry + reader.offset("struct dentry", "d_fsdata"))
        text = memory.word(buffer + reader.offset("struct dma_buf", "name")) if buffer else 0
        return reader.text(text, 64) if text else ""

    def within(self, dentry: int, root: int = 0) -> str:
        """Return the path of a dentry below ``root``, or below the root of its file system.

        A dentry without a directory has the name that its file system makes.
        """
        made = self.made(dentry)
        if made is not None:
            return made
        parts: list[str] = []
        at = dentry
        while at != root and len(parts) < _MOST_PARTS:
            parent = self._reader.memory.word(at + self._parent)
            if parent == at:
                break
            parts.append(self.name(at))
            if not parent:
                return "?/" + "/".join(reversed(parts))
            at = parent
        return "/" + "/".join(reversed(parts))

    def is_below(self, mount: int, top: int) -> bool:
        """Return whether a mount (struct mount) is ``top`` or somewhere below it."""
        for _each in range(_MOST_PARTS):
            if mount == top:
                return True
            parent = self._reader.memory.word(mount + self._mnt_parent)
            if not parent or parent == mount:
                return False
            mount = parent
        return False

    def mount_of(self, path: Object) -> int:
        """Return the address of the ``struct mount`` of a ``struct path``."""
        return int(path.mnt.value_()) - self._mnt

    def mounted(self, mount: int, dentry: int, top: int = 0) -> str:
        """Return the path of a dentry on a mount, from the root of the mount ``top`` or of the namespace."""
        memory = self._reader.memory
        path = ""
        for _each in range(_MOST_PARTS):
            root = memory.word(mount + self._mnt_root)
            own = self.within(dentry, root or 0)
            path = (own if own != "/" else "") + path
            parent = memory.word(mount + self._mnt_parent)
            if not parent or mount in (parent, top):
                break
            dentry = memory.word(mount + self._mountpoint) or 0
            mount = parent
        return path or "/"

    def path(self, path: Object) -> str:
        """Return a ``struct path`` as text, as /proc/PID/fd has it without the word "(deleted)" of an unlinked name."""
        made = self.made(path.dentry.value_())
        return made if made is not None else self.mounted(self.mount_of(path), path.dentry.value_())
