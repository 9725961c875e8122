"""Where disks and partitions begin on the blocks of the disk below: block/blk-settings.c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.paths import Paths
from drgnext.kernel.system.requests import gendisks
from drgnext.kernel.system.xarrays import XArray

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

SECTOR = 512
_MOST_PARTITIONS = 1 << 10
_MOST_BELOW = 64
_LOOP_MAJOR = 7  # include/uapi/linux/major.h
_MISALIGNED = 2  # BLK_FLAG_MISALIGNED (include/linux/blkdev.h), since 6.11
_S_IFMT, _S_IFBLK = 0o170000, 0o060000
_MOST_GRAIN = 1 << 20


class Layout(NamedTuple):
    """A disk, a partition, or a loop device. All are bytes.

    ``start`` is its place on ``below``: devices, or the file of a loop device. ``grain`` is what the disk below reads
    or writes at once: the larger one of physical_block_size and minimum_io_size. ``off`` is the distance to the next
    such block, alignment_offset in /sys; it is -1 where the kernel says that no offset helps (devices below do not
    agree).
    """

    name: str
    kind: str
    below: list[str]
    start: int
    size: int
    grain: int
    off: int
    address: int


def layouts(reader: Reader) -> list[Layout]:
    """Return all disks that have a size, with their partitions, by name."""
    found: list[Layout] = []
    for disk in gendisks(reader):
        with reader.reading("disks"):
            if disk.queue.value_():
                found.extend(_of_disk(reader, disk))
    return sorted(found, key=lambda one: one.name)


def _of_disk(reader: Reader, disk: Object) -> Iterator[Layout]:
    name = reader.string(disk.disk_name, 64)
    size = _sectors(reader, _whole(reader, disk)) * SECTOR
    if not size:
        return
    if int(disk.major) == _LOOP_MAJOR:
        loop = _loop(reader, disk, name, size)
        if loop is not None:
            yield loop
        return
    limits = disk.queue.limits
    grain, offset = _grain(limits), int(limits.alignment_offset)
    never = (
        bool(limits.misaligned) if reader.has_member(limits, "misaligned") else bool(int(limits.flags) & _MISALIGNED)
    )
    yield Layout(name, "disk", _slaves(reader, disk), 0, size, grain, -1 if never else offset % grain, disk.value_())
    for number, part in _partitions(reader, disk):
        with reader.reading("partitions"):
            start = int(part.bd_start_sect if reader.has_member(part[0], "bd_start_sect") else part.start_sect) * SECTOR
            off = -1 if never else (grain + offset - start % grain) % grain
            separator = "p" if name[-1:].isdigit() else ""
            length = _sectors(reader, part) * SECTOR
            yield Layout(f"{name}{separator}{number}", "partition", [name], start, length, grain, off, part.value_())


def _grain(limits: Object) -> int:
    """Return the block size of a disk. A minimum_io_size that is no power of two is not that of blocks."""
    physical, least = int(limits.physical_block_size), int(limits.io_min)
    sizes = [size for size in (physical, least, SECTOR) if SECTOR <= size <= _MOST_GRAIN and size & (size - 1) == 0]
    return max(sizes)


def _whole(reader: Reader, disk: Object) -> Object:
    """Return what describes the whole disk. In 5.10 it is a ``struct hd_struct`` inside the gendisk."""
    from drgn import TypeKind

    part = disk.part0
    return part if part.type_.kind == TypeKind.POINTER else part.address_of_()


def _sectors(reader: Reader, part: Object) -> int:
    """Return the sectors of a ``struct block_device *``, or of a ``struct hd_struct *`` (5.10)."""
    for member in ("bd_nr_sectors", "nr_sects"):
        if reader.has_member(part[0], member):
            return int(part.member_(member))
    return int(part.bd_inode.i_size) // SECTOR  # 5.11 to 5.15


def _partitions(reader: Reader, disk: Object) -> Iterator[tuple[int, Object]]:
    """Yield (number, ``struct block_device *`` or ``struct hd_struct *``) of each partition."""
    from drgn import TypeKind

    table = disk.part_tbl
    if table.type_.kind == TypeKind.POINTER:  # 5.10
        for number in range(1, min(int(table.len), _MOST_PARTITIONS) if table.value_() else 0):
            if table.part[number].value_():
                yield number, table.part[number]
        return
    for number, entry in XArray(reader, table, "partitions").entries():
        if number:
            yield number, reader.pointer("struct block_device", entry)


def _slaves(reader: Reader, disk: Object) -> list[str]:
    """Return the names of the devices below a device mapper's or RAID's disk, as /sys/block/NAME/slaves has them."""
    found: list[str] = []
    with reader.reading("devices below disks"):
        folder = disk.slave_dir
        if folder.value_() and folder.sd.value_():
            for node in reader.objects("struct kernfs_node", "rb", reader.tree(folder.sd.dir.children, "slaves")):
                if len(found) < _MOST_BELOW:
                    found.append(reader.string(node.name, 64))
    return sorted(found)


def _loop(reader: Reader, disk: Object, name: str, size: int) -> Optional[Layout]:
    """Return a loop device, or None without its module's types."""
    if not reader.has_of_module("struct loop_device", "lo_offset") or not disk.private_data.value_():
        return None
    loop = reader.pointer("struct loop_device", disk.private_data.value_())
    start, file = int(loop.lo_offset), loop.lo_backing_file
    if not file.value_():
        return None
    inode = file.f_mapping.host
    grain, base = 4096, 0  # a file lies in pages
    if int(inode.i_mode) & _S_IFMT == _S_IFBLK and reader.has("struct block_device", "bd_start_sect"):
        device = _device_of(reader, inode)
        grain, base = _grain(device.bd_disk.queue.limits), int(device.bd_start_sect) * SECTOR
        below = [_name_of(reader, device)]
    else:
        below = [Paths(reader).path(file.f_path)]
    return Layout(name, "loop", below, start, size, grain, -(start + base) % grain, disk.value_())


def _device_of(reader: Reader, inode: Object) -> Object:
    """Return the ``struct block_device *`` of its inode (I_BDEV(), block/bdev.c)."""
    at = inode.value_() - reader.offset("struct bdev_inode", "vfs_inode")
    return reader.pointer("struct block_device", at + reader.offset("struct bdev_inode", "bdev"))


def _name_of(reader: Reader, device: Object) -> str:
    disk = device.bd_disk
    name = reader.string(disk.disk_name, 64)
    for number, part in _partitions(reader, disk):
        if part.value_() == device.value_():
            return f"{name}{'p' if name[-1:].isdigit() else ''}{number}"
    return name
