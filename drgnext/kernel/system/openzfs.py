"""OpenZFS in a dump: how much memory its cache has, and how full the metaslabs of its pools are.

Read in the sources of OpenZFS 2.1 to 2.3: module/zfs/arc.c, spa_misc.c, vdev.c, metaslab.c, aggsum.c, avl.c,
module/os/linux/zfs/abd_os.c. All names are looked up in the module's debug information.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.crash.modules import loaded

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

#: Beyond this share of a metaslab in use (percent), its allocator looks for the best fit instead of the first one: it
#: leaves metaslab_df_free_pct (4) percent (module/zfs/metaslab.c).
NEARLY_FULL = 96
_MOST_POOLS = 1 << 12
_MOST_VDEVS = 1 << 12
_MOST_METASLABS = 1 << 20  # a vdev has at most 2^17 (zfs_vdev_ms_count_limit)
_MOST_BUCKETS = 1 << 12
_NONE = (1 << 64) - 1  # ZFS_FRAG_INVALID: no fragmentation is known


class Cache(NamedTuple):
    """The memory of the ARC in bytes. Figures are None if this release of OpenZFS does not have them.

    ``size`` is what the ARC counts: data and metadata with what it needs to manage them. ``target`` is the size that it
    wants to have; it lies between ``lowest`` and ``highest``. ``scatter`` are blocks in pages of their own, which
    memstat shows as ZFS File Data. ``linear`` are small blocks in slabs.
    """

    size: Optional[int]
    target: Optional[int]
    lowest: Optional[int]
    highest: Optional[int]
    data: Optional[int]
    metadata: Optional[int]
    scatter: Optional[int]
    scatter_waste: Optional[int]
    linear: Optional[int]
    headers: Optional[int]
    dbufs: Optional[int]
    dnodes: Optional[int]
    bonus: Optional[int]
    no_grow: Optional[int]
    need_free: Optional[int]


class Metaslab(NamedTuple):
    """A metaslab of a vdev, in bytes. ``fragmentation`` is in percent."""

    number: int
    start: int
    size: int
    allocated: int
    fragmentation: Optional[int]
    loaded: bool
    largest_free: Optional[int]
    address: int

    @property
    def nearly_full(self) -> bool:
        """Return whether its allocator looks for the best fit."""
        return self.allocated * 100 > self.size * NEARLY_FULL


class Vdev(NamedTuple):
    """A top-level vdev of a pool."""

    name: str
    kind: str
    purpose: str
    metaslabs: list[Metaslab]
    address: int

    @property
    def size(self) -> int:
        """Return the bytes of its metaslabs."""
        return sum(one.size for one in self.metaslabs)

    @property
    def allocated(self) -> int:
        """Return the bytes in use."""
        return sum(one.allocated for one in self.metaslabs)

    @property
    def nearly_full(self) -> int:
        """Return the number of metaslabs that are nearly full."""
        return sum(one.nearly_full for one in self.metaslabs)


class Pool(NamedTuple):
    """A pool of this machine."""

    name: str
    vdevs: list[Vdev]
    address: int


def missing(reader: Reader) -> Optional[str]:
    """Return why there is nothing to say of OpenZFS, or None: it is not loaded, or without debug information."""
    if reader.symbol("arc_stats") is not None:
        return None
    modules, _notes = loaded(reader.prog)
    if any(module.name == "zfs" for module in modules):
        return "the debug information of the module zfs is not loaded: build it with ZFS_DKMS_DISABLE_STRIP=y"
    return "the module zfs is not loaded in this kernel"


def cache(reader: Reader) -> Optional[Cache]:
    """Return the memory of the ARC, or None if OpenZFS is not known (``missing``)."""
    stats, sums, blocks = (reader.symbol(name) for name in ("arc_stats", "arc_sums", "abd_sums"))
    if stats is None:
        return None

    def stat(name: str) -> Optional[int]:
        with reader.reading("statistics of the ARC"):
            return int(stats.member_(name).value.ui64)
        return None

    def summed(of: Optional[Object], name: str) -> Optional[int]:
        if of is None:
            return None
        with reader.reading("statistics of the ARC"):
            return _sum(reader, of.member_(name))
        return None

    return Cache(
        size=summed(sums, "arcstat_size"),
        target=stat("arcstat_c"),
        lowest=stat("arcstat_c_min"),
        highest=stat("arcstat_c_max"),
        data=summed(sums, "arcstat_data_size"),
        metadata=summed(sums, "arcstat_metadata_size"),
        scatter=summed(blocks, "abdstat_scatter_data_size"),
        scatter_waste=summed(blocks, "abdstat_scatter_chunk_waste"),
        linear=summed(blocks, "abdstat_linear_data_size"),
        headers=summed(sums, "arcstat_hdr_size"),
        dbufs=summed(sums, "arcstat_dbuf_size"),
        dnodes=summed(sums, "arcstat_dnode_size"),
        bonus=summed(sums, "arcstat_bonus_size"),
        no_grow=stat("arcstat_no_grow"),
        need_free=stat("arcstat_need_free"),
    )


def _sum(reader: Reader, value: Object) -> int:
    """Return the value of a wmsum_t (a percpu_counter on Linux) or of an aggsum_t (parts in buckets)."""
    if reader.has_member(value, "counters"):
        return reader.counter(value)
    total = int(value.as_lower_bound)
    for number in range(min(int(value.as_numbuckets), _MOST_BUCKETS)):
        bucket = value.as_buckets[number]
        total += int(bucket.asc_delta) + int(bucket.asc_borrowed)
    return total


def pools(reader: Reader) -> Iterator[Pool]:
    """Yield the pools in the order of their names."""
    tree = reader.symbol("spa_namespace_avl")
    if tree is None:
        reader.note("the list of pools (spa_namespace_avl) is not in the debug information of the module zfs")
        return
    for spa in islice(_avl(reader, tree, "spa_t"), _MOST_POOLS):
        with reader.reading("pools"):
            yield Pool(reader.string(spa.spa_name, 256), list(_vdevs(reader, spa)), spa.value_())


def _avl(reader: Reader, tree: Object, structure: str) -> Iterator[Object]:
    """Yield pointers to the structures of an AVL tree (avl_tree_t) in order."""
    child = reader.offset("struct avl_node", "avl_child")
    offset = int(tree.avl_offset)
    at: Optional[int] = tree.avl_root.value_()
    start = at or 0
    seen: set[int] = set()
    above: list[int] = []
    while at or above:
        while at:
            if at in seen or len(seen) > _MOST_POOLS:
                reader.damaged("the tree of pools", start, at)
                return
            seen.add(at)
            above.append(at)
            at = reader.memory.word(at + child)
            if at is None:
                reader.damaged("the tree of pools", start, None)
        node = above.pop()
        yield reader.pointer(structure, node - offset)
        at = reader.memory.word(node + child + 8)


def _vdevs(reader: Reader, spa: Object) -> Iterator[Vdev]:
    root = spa.spa_root_vdev
    if not root.value_():  # the pool is not open
        return
    count = int(root.vdev_children)
    for number in range(min(count, _MOST_VDEVS)):
        with reader.reading("vdevs"):
            vdev = root.vdev_child[number]
            kind = reader.string(vdev.vdev_ops.vdev_op_type, 64)
            metaslabs = list(_metaslabs(reader, vdev))
            if not metaslabs and kind in ("hole", "indirect", "missing"):
                continue
            name = reader.string(vdev.vdev_path) if vdev.vdev_path.value_() else f"{kind}-{int(vdev.vdev_id)}"
            yield Vdev(name, kind, _purpose(vdev), metaslabs, vdev.value_())


def _purpose(vdev: Object) -> str:
    if int(vdev.vdev_islog):
        return "log"
    name = str(vdev.vdev_alloc_bias.format_(type_name=False)).rpartition("VDEV_BIAS_")[2].lower()
    return "data" if name in ("none", "0") else name


def _metaslabs(reader: Reader, vdev: Object) -> Iterator[Metaslab]:
    """Yield the metaslabs of a vdev. A machine may have a million, so their words are read without drgn's objects."""
    table, count = vdev.vdev_ms.value_(), int(vdev.vdev_ms_count)
    if not table:
        return
    if count > _MOST_METASLABS:
        reader.note(f"the vdev at {vdev.value_():#x} claims {count} metaslabs: the first {_MOST_METASLABS} are shown")
    names = ("ms_id", "ms_start", "ms_size", "ms_allocated_space", "ms_fragmentation", "ms_loaded", "ms_max_size")
    offsets = [reader.offset("metaslab_t", name) for name in names]
    for index in range(min(count, _MOST_METASLABS)):
        address = reader.memory.word(table + 8 * index)
        if not address:
            continue
        words = [reader.memory.word(address + offset) for offset in offsets]
        with reader.reading("metaslabs"):
            number, start, size, allocated, fragmentation, is_loaded, largest = words
            if number is None or start is None or size is None or allocated is None or is_loaded is None:
                raise ValueError(f"the dump lacks the metaslab at {address:#x}")
            if number != index or not size > 0 or allocated > size:
                raise ValueError(f"what should be a metaslab at {address:#x} is not valid")
            usable = bool(is_loaded & 0xFFFFFFFF)  # boolean_t is an enumeration
            known = None if fragmentation is None or fragmentation == _NONE else fragmentation
            yield Metaslab(number, start, size, allocated, known, usable, largest if usable else None, address)
