"""The mounts of a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.paths import Paths

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

# include/linux/mount.h, include/linux/fs.h: what /proc/mounts shows of a mount and a superblock (fs/proc_namespace.c).
_OF_MOUNT = ((0x40, "ro"), (0x01, "nosuid"), (0x02, "nodev"), (0x04, "noexec"), (0x08, "noatime"), (0x10, "nodiratime"),
             (0x20, "relatime"), (0x80, "nosymfollow"))  # fmt: skip
_CURSOR = 0x10000000  # MNT_CURSOR: from 5.8 to 6.7 a reader of /proc/mounts leaves its place in the list
_OF_SUPER = ((0x1, "ro"), (0x10, "sync"), (0x80, "dirsync"), (0x40, "mand"), (1 << 25, "lazytime"))


class Mount(NamedTuple):
    """A mount as /proc/mounts shows it, without the options that only the file system knows."""

    source: str
    target: str
    kind: str
    options: str
    device: str
    superblock: int
    address: int


def mounts(reader: Reader, task: Object) -> Iterator[Mount]:
    """Yield the mounts that a task sees, as they were made or, since 6.8, by their ids.

    As in /proc/PID/mounts, these are the ones below the task's root. (In 7.x another file system is under the root.)
    """
    paths = Paths(reader)
    top = paths.mount_of(task.fs.root)
    for mount in _all(reader, task.nsproxy.mnt_ns):
        with reader.reading("mounts"):
            if not int(mount.mnt.mnt_flags) & _CURSOR and paths.is_below(mount.value_(), top):
                yield _describe(reader, paths, mount, top)


def _all(reader: Reader, namespace: Object) -> Iterator[Object]:
    from drgn import TypeKind

    structure = "struct mount"
    if reader.has("struct mnt_namespace", "list"):
        head = namespace.member_("list").address_of_().value_()
        for mount in reader.members(head, structure, "mnt_list", "mounts"):
            yield mount
        return
    tree = namespace.mounts  # since 6.8
    if tree.type_.kind == TypeKind.STRUCT:
        for mount in reader.objects(structure, "mnt_node", reader.tree(tree, "mounts")):
            yield mount


def _describe(reader: Reader, paths: Paths, mount: Object, top: int) -> Mount:
    flags = int(mount.mnt.mnt_flags)
    superblock = mount.mnt.mnt_sb
    kind = reader.text(superblock.s_type.name.value_(), 64)
    subtype = reader.text(superblock.s_subtype.value_(), 64) if superblock.s_subtype.value_() else ""
    of_super = int(superblock.s_flags)
    names = [name for bit, name in _OF_SUPER if of_super & bit]
    names += [name for bit, name in _OF_MOUNT if flags & bit and name not in names]
    if "ro" not in names:
        names.insert(0, "rw")
    number = int(superblock.s_dev)
    return Mount(
        _source(reader, mount, kind),
        paths.mounted(mount.value_(), mount.mnt.mnt_root.value_(), top),
        f"{kind}.{subtype}" if subtype else kind,
        ",".join(sorted(names, key=lambda name: name not in ("ro", "rw"))),
        f"{number >> 20}:{number & 0xFFFFF}",
        superblock.value_(),
        mount.value_(),
    )


def _source(reader: Reader, mount: Object, kind: str) -> str:
    """Return the first column of /proc/mounts: the name that was given to mount(2), or the file system's own.

    btrfs names one of its devices (btrfs_show_devname(), fs/btrfs/super.c). The superblock has the name of the
    same one, and its types need no module.
    """
    if kind == "btrfs":
        own = reader.string(mount.mnt.mnt_sb.s_id, 64)
        if own and not own.startswith("dm-"):  # the device mapper's have a name that the superblock lacks
            return f"/dev/{own}"
    return reader.text(mount.mnt_devname.value_()) or "none"
