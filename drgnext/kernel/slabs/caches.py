"""The kernel's slab caches, and the offsets in the slab allocator's structures, for the engine.

The code looks at features, never at the release. The engine follows the lists of free objects.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.errors import MissingDebugInfoError
from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.pages.kfence import Guarded
from drgnext.kernel.pages.layout import enumerators
from drgnext.kernel.slabs.cache_list import cache_addresses
from drgnext.kernel.stacks.code import symbol_range

if TYPE_CHECKING:
    from drgn import Program, Type

    from dmods._engine import SlabCache, SlabsDescription, TrackOffsets

_MOST_NODES = 1 << 10
_MOST_NAME = 256
_WORD = (1 << 64) - 1

# The values of flags up to 6.8 (include/linux/slab.h, mm/slab.h). Since 6.9 ``enum _slab_flag_bits`` names the bits.
_FLAGS = {
    "RED_ZONE": 0x400,
    "POISON": 0x800,
    "KMALLOC": 0x1000,
    "STORE_USER": 0x10000,
    "TYPESAFE_BY_RCU": 0x80000,
    "KASAN": 0x08000000,
    "OBJECT_POISON": 0x80000000,
}


@dataclass(frozen=True)
class SlabCacheInfo:
    """A ``struct kmem_cache``, as the kernel has it.

    ``size`` is the bytes from one object to the next. ``track`` is where the first struct track lies in an object (0:
    it has no tracks). ``requested`` is where the size that kmalloc was asked for lies (0: it is not recorded).
    ``guarded`` is the one object of KFENCE's that this description is for, None for a whole cache.
    """

    number: int
    address: int
    name: str
    size: int
    object_size: int
    flags: frozenset[str]
    track: int
    requested: int
    references: int
    guarded: Optional[Guarded] = None


class Described(NamedTuple):
    """The engine's description, the caches in the same order, and notes on what is missing."""

    description: SlabsDescription
    caches: list[SlabCacheInfo]
    notes: list[str]


def describe_slabs(prog: Program) -> Described:
    """Return the caches and offsets of a kernel with SLUB.

    Raises MissingDebugInfoError for a kernel with another allocator (SLAB and SLOB, up to 6.7), or without debug
    information.
    """
    try:
        return _describe(prog)
    except (LookupError, AttributeError) as error:
        raise MissingDebugInfoError(f"the kernel's slab allocator (SLUB): {error}") from None


def _describe(prog: Program) -> Described:
    from drgn.helpers.linux.mm import pfn_to_virt

    try:
        slab = prog.type("struct slab")  # since 5.17; before, struct page has its members
    except LookupError:
        slab = prog.type("struct page")
    reader = _Caches(prog)
    tracks = _track_offsets(prog)
    found = [reader.read(number, address, tracks) for number, address in enumerate(reader.addresses())]
    described = [one for one in found if one is not None]
    caches = [SlabCacheInfo(number, *one) for number, (one, _) in enumerate(described)]
    cpu_freelist = _cpu_freelist(prog)
    description: SlabsDescription = {
        "cache": _bits(slab, "slab_cache")[0] // 8,
        "freelist": _bits(slab, "freelist")[0] // 8,
        "inuse": _field(slab, "inuse"),
        "objects": _field(slab, "objects"),
        "direct_map": pfn_to_virt(prog, 0).value_(),
        "cpus": cpu_offsets(prog),
        "code": _code(prog),
        "cpu_freelist": cpu_freelist,
        "sheaves": _sheaves(prog),
        "track": tracks,
        "caches": [one for _, one in described],
        "guarded": [],
        "ignored": [],
        "unread": crash_kernel(prog),
    }
    return Described(description, caches, reader.notes)


def _code(prog: Program) -> list[tuple[int, int]]:
    """Return the range of the kernel's own code. Since 6.11 pointers stand in it (include/linux/runtime-const.h)."""
    found = symbol_range(prog, "_stext", "_etext")
    return [found] if found is not None else []


def crash_kernel(prog: Program) -> list[tuple[int, int]]:
    """Return the page frames (start, end) that are reserved for a crash kernel, which /proc/vmcore leaves out.

    Both ranges are a ``struct resource`` (kernel/crash_core.c). The second one lies below 4 GB.
    """
    from drgn import FaultError

    found = []
    for name in ("crashk_res", "crashk_low_res"):
        with suppress(LookupError, AttributeError, FaultError):
            start, end = int(prog[name].start), int(prog[name].end) + 1
            bits = int(prog["PAGE_SHIFT"])
            if 0 < start < end:
                found.append((start >> bits, end >> bits))
    return found


def cpu_offsets(prog: Program) -> list[int]:
    """Return what each possible CPU adds to a per-CPU pointer.

    A panic takes the other CPUs offline, so online CPUs are not enough.
    """
    from drgn.helpers.linux.cpumask import for_each_possible_cpu

    try:
        shifts = prog["__per_cpu_offset"]
    except KeyError:  # CONFIG_SMP=n
        return [0]
    return [int(shifts[cpu].value_()) & _WORD for cpu in for_each_possible_cpu(prog)]


def _bits(structure: Type, name: str) -> tuple[int, int]:
    """Return (offset in bits, width in bits) of a member, also of one in an unnamed member.

    Raises LookupError.
    """
    for member in structure.members or ():
        if member.name == name:
            width = member.bit_field_size
            return member.bit_offset, 8 * _size(member.type) if width is None else width
        if member.name is None:
            with suppress(LookupError):
                offset, width = _bits(member.type, name)
                return member.bit_offset + offset, width
    raise LookupError(f"{structure.type_name()} has no member {name}")


def _size(kind: Type) -> int:
    """Return the bytes of a type. An array without a length has 0."""
    from drgn import TypeKind, sizeof

    return 0 if kind.kind == TypeKind.ARRAY and kind.length is None else int(sizeof(kind))


def _offset(structure: Type, name: str) -> int:
    return _bits(structure, name)[0] // 8


def _field(structure: Type, name: str) -> tuple[int, int, int]:
    """Return (offset of the word of 8 bytes, shift, width) of a bit field on a little-endian machine."""
    offset, width = _bits(structure, name)
    return offset // 64 * 8, offset % 64, width


def _cpu_freelist(prog: Program) -> Optional[int]:
    """Return the offset of kmem_cache_cpu.freelist, or None: 7.0 has none."""
    try:
        return _offset(prog.type("struct kmem_cache_cpu"), "freelist")
    except LookupError:
        return None


def _sheaves(prog: Program) -> Any:
    """Return the offsets that lead to sheaves (6.18 and later), or None."""
    try:
        of_cpu, sheaf, barn = (
            prog.type(f"struct {name}") for name in ("slub_percpu_sheaves", "slab_sheaf", "node_barn")
        )
    except LookupError:
        return None
    return {
        "of_cpu": [_offset(of_cpu, name) for name in ("main", "spare", "rcu_free")],
        "of_barn": [_offset(barn, name) for name in ("sheaves_full", "sheaves_empty")],
        "list": _offset(sheaf, "barn_list"),
        "cache": _offset(sheaf, "cache"),
        "size": _offset(sheaf, "size"),
        "objects": _offset(sheaf, "objects"),
    }


def _track_offsets(prog: Program) -> Optional[TrackOffsets]:
    """Return (size, addr, stack, bytes of the stack, cpu, pid, when) of ``struct track``, or None.

    The stack is the handle of the stack depot (since 5.18), or an array of 16 addresses.
    """
    try:
        track = prog.type("struct track")
    except LookupError:
        return None
    stack, size = 0, 0
    for name in ("handle", "addrs"):
        with suppress(LookupError):
            bits, width = _bits(track, name)
            stack, size = bits // 8, width // 8
            break
    plain = [_offset(track, name) for name in ("cpu", "pid", "when")]
    return (track.size or 0, _offset(track, "addr"), stack, size, plain[0], plain[1], plain[2])


class _Read(NamedTuple):
    address: int
    name: str
    size: int
    object_size: int
    flags: frozenset[str]
    track: int
    requested: int
    references: int


class _Caches:
    """Reads the caches: each structure at once, then its members from the bytes."""

    def __init__(self, prog: Program) -> None:
        from drgn import FaultError

        self._prog = prog
        self._notes: list[str] = []
        self._lost: list[tuple[int, str]] = []  # caches that cannot be read: (address, why)
        self._unnamed = 0
        self._type = kmem_cache = prog.type("struct kmem_cache")
        self._offsets: dict[str, int] = {}
        for name in (
            *("cpu_slab", "cpu_sheaves", "flags", "size", "object_size", "offset", "inuse", "red_left_pad", "name"),
            *("random", "refcount", "node", "per_node", "list", "ctor"),
        ):
            with suppress(LookupError):
                self._offsets[name] = _offset(kmem_cache, name)
        for needed in ("flags", "size", "object_size", "offset", "inuse", "name", "list"):
            if needed not in self._offsets:
                raise LookupError(f"struct kmem_cache has no member {needed}: this is not SLUB")
        self._flags = _flag_values(prog)
        self._memory = Pages(prog.read, FaultError)
        self._nodes, self._node_size, self._barn = self._node_layout()
        nodes_at = max(self._offsets.get("node", 0), self._offsets.get("per_node", 0))
        self._bytes = nodes_at + self._nodes * self._node_size if nodes_at else kmem_cache.size or 0

    def _node_layout(self) -> tuple[int, int, Optional[int]]:
        """Return the number of nodes, the bytes that each has in kmem_cache, and where these point to its barn.

        Since 7.1 the barn is beside the node. From 6.18 the node has it. Before, a node has no barn: None.
        """
        from drgn.helpers.linux.nodemask import nr_node_ids

        nodes = min(int(nr_node_ids(self._prog)), _MOST_NODES)
        if "per_node" in self._offsets:
            both = self._prog.type("struct kmem_cache_per_node_ptrs")
            return nodes, both.size or 0, _offset(both, "barn")
        self._node_barn: Optional[int] = None
        with suppress(LookupError):
            self._node_barn = _offset(self._prog.type("struct kmem_cache_node"), "barn")
        return nodes, 8, None

    def addresses(self) -> list[int]:
        """Return the addresses of all caches."""
        return cache_addresses(self._prog, self._offsets["list"], self._notes)

    @property
    def notes(self) -> list[str]:
        """Return what is missing or wrong, one line each."""
        lost = []
        if self._lost:
            address, error = self._lost[0]
            lost = [
                f"{len(self._lost)} slab caches cannot be read, so their objects are not known (the first, at "
                f"{address:#x}: {error})"
            ]
        if self._unnamed:
            lost.append(f"the dump lacks the names of {self._unnamed} slab caches: their addresses stand for them")
        return [*self._notes, *lost]

    def read(self, number: int, address: int, tracks: Optional[TrackOffsets]) -> Optional[tuple[_Read, SlabCache]]:
        """Return a cache. A cache that is not possible becomes a note, and None."""
        from drgn import FaultError

        try:
            data = self._prog.read(address, self._bytes)
            named = self._word(data, "name")
        except FaultError as error:
            self._lost.append((address, str(error)))
            return None
        text = self._memory.read(named, _MOST_NAME)  # names lie side by side: drgn would read each byte apart
        name = text.partition(b"\0")[0].decode(errors="backslashreplace") or hex(address)
        self._unnamed += not text
        size, object_size, inuse, offset = (self._half(data, one) for one in ("size", "object_size", "inuse", "offset"))
        flags = frozenset(one for one, value in self._flags.items() if value & self._word_of_flags(data))
        red_left = self._half(data, "red_left_pad")
        track = requested = 0
        if "STORE_USER" in flags and tracks is not None:
            track = inuse + 8 if offset >= inuse else inuse  # mm/slub.c, get_info_end()
            end = track + 2 * tracks[0]
            if red_left + end > size:
                track = 0
            elif "KMALLOC" in flags and red_left + end + 4 <= size:
                requested = end
        cache: SlabCache = {
            "address": address,
            "size": size,
            "object_size": object_size,
            "inuse": inuse,
            "offset": offset,
            "red_left": red_left,
            "scanned": self._scanned(flags, size, object_size, inuse, offset) if size else 0,
            "random": self._word(data, "random") if "random" in self._offsets else None,
            "cpu_slab": self._word(data, "cpu_slab"),
            "cpu_sheaves": self._word(data, "cpu_sheaves"),
            "barns": self._barns(data),
            "track": track,
            "red_zone": "RED_ZONE" in flags,
            "poison": "OBJECT_POISON" in flags,
            "padded": "POISON" in flags,
            "rest": not flags & {"POISON", "RED_ZONE"},
        }
        if not _possible(cache):
            self._notes.append(f"the slab cache {name!r} at {address:#x} is damaged, so its objects are not known")
            return None
        made = _Read(address, name, size, object_size, flags, track, requested, self._half(data, "refcount"))
        return made, cache

    @staticmethod
    def _scanned(flags: frozenset[str], size: int, object_size: int, inuse: int, offset: int) -> int:
        """Return how many bytes of an object its user may write (mm/slub.c, slab_ksize())."""
        if flags & {"RED_ZONE", "POISON", "KASAN"}:
            return object_size
        return inuse if flags & {"TYPESAFE_BY_RCU", "STORE_USER"} or offset >= object_size else size

    def _word(self, data: bytes, name: str) -> int:
        at = self._offsets.get(name)
        return int.from_bytes(data[at : at + 8], "little") if at is not None else 0

    def _half(self, data: bytes, name: str) -> int:
        at = self._offsets.get(name)
        return int.from_bytes(data[at : at + 4], "little") if at is not None else 0

    def _word_of_flags(self, data: bytes) -> int:
        return self._half(data, "flags")  # an unsigned int; unsigned long before 4.15

    def _barns(self, data: bytes) -> list[int]:
        """Return the address of the barn of each node that has one."""
        from drgn import FaultError

        found = []
        for node in range(self._nodes):
            if self._barn is not None:
                at = self._offsets["per_node"] + node * self._node_size + self._barn
                found.append(int.from_bytes(data[at : at + 8], "little"))
            elif self._node_barn is not None:
                at = self._offsets["node"] + node * 8
                pointer = int.from_bytes(data[at : at + 8], "little")
                with suppress(FaultError):
                    found.append(self._prog.read_u64(pointer + self._node_barn) if pointer else 0)
        return [barn for barn in found if barn]


def _possible(cache: SlabCache) -> bool:
    """Return whether the engine takes the numbers (``Cache::is_sane`` in engine/core/src/kernel/slabs/layout.rs)."""
    size, pad = cache["size"], cache["red_left"]
    return (
        8 <= size <= 1 << 22
        and size % 8 == 0
        and pad % 8 == 0
        and 0 < cache["object_size"] <= size - pad
        and cache["scanned"] <= size - pad
        and cache["offset"] + 8 <= size - pad
        and cache["track"] + 8 <= size - pad
    )


def _flag_values(prog: Program) -> dict[str, int]:
    """Return the masks of the flags that dmods knows."""
    bits = enumerators(prog, "enum _slab_flag_bits")
    if not bits:
        return dict(_FLAGS)
    return {name: 1 << bits[f"_SLAB_{name}"] for name in _FLAGS if f"_SLAB_{name}" in bits}
