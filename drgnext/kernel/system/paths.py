"""Paths of files, as the kernel's dentries and mounts spell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def name(self, dentry: int) -> str:
        """Return the last part of a dentry's path."""
        memory = self._reader.memory
        pointer = memory.word(dentry + self._name + self._hash)
        length = int.from_bytes(memory.read(dentry + self._name + self._length, 4), "little")
        if not pointer or length > 4096:
            return "?"
        return memory.read(pointer, length).decode(errors="backslashreplace")

    def within(self, dentry: int, root: int = 0) -> str:
        """Return the path of a dentry below ``root``, or below the root of its file system."""
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
        """Return a ``struct path`` as text. A file system that is mounted nowhere (pipefs) gives the names within."""
        return self.mounted(self.mount_of(path), path.dentry.value_())
