"""Where things lie in this kernel's ``struct page`` and what its flags and types are numbered, for the engine.

By features, never by release: everything comes from debug information and VMCOREINFO. The few numbers that neither
holds are macros that have not changed since they exist; each says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional

from dmods.errors import MissingDebugInfoError

if TYPE_CHECKING:
    from dmods._engine import PageLayout

U32 = 0xFFFFFFFF

_MOST_SHRINKERS = 100_000

# OpenZFS marks its file data so (module/os/linux/zfs/abd_os.c, ABD_FILE_CACHE_PAGE): page->private, with PG_private.
ZFS_FILE_DATA = 0x2F5ABDF11ECAC4E

# include/linux/mm.h; the same as PROT_EXEC, and so part of the kernel's interface to programs.
_VM_EXEC = 0x4

# include/linux/page-flags.h since 6.12: page_type holds the type in its topmost byte.
_TYPE_SHIFT = 24

# Names of page types, as ``enum pagetype`` has them behind PGTY_ (6.12) or PG_ (6.11), and the kinds that they mean.
_TYPES = {
    "buddy": "free",
    "offline": "offline",
    "table": "page_table",
    "guard": "guard",
    "hugetlb": "hugetlb",
    "slab": "slab",
    "zsmalloc": "zsmalloc",
    "unaccepted": "unaccepted",
    "large_kmalloc": "large_kmalloc",
}


def page_layout(prog: Any, vmcoreinfo: Mapping[str, int]) -> PageLayout:
    """Raises MissingDebugInfoError where something is not described that nothing can replace."""
    try:
        return _layout(prog, vmcoreinfo)
    except (LookupError, AttributeError) as error:
        raise MissingDebugInfoError(f"the kernel's page array: {error}") from None


def _layout(prog: Any, vmcoreinfo: Mapping[str, int]) -> PageLayout:
    page = prog.type("struct page")
    flags = enumerators(prog, "enum pageflags")

    def bits(*names: str) -> int:
        return sum(1 << flags[name] for name in set(names) if name in flags)

    return {
        "base": _vmemmap(prog),
        "page_bits": prog["PAGE_SHIFT"].value_(),
        "size": page.size,
        "flags": _offset(page, "flags"),
        # Renamed in 7.1, when it became a mask in some configurations.
        "head": _offset(page, "compound_info", "compound_head"),
        "mapping": _offset(page, "mapping"),
        "private": _offset(page, "private"),
        "mapcount": _offset(page, "page_type", "_mapcount"),
        "refcount": _offset(page, "_refcount"),
        "lru": _offset(page, "pcp_list", "lru"),
        "head_is_mask": _head_is_mask(prog, page),
        "reserved": bits("PG_reserved"),
        "compound": bits("PG_head"),
        "slab": bits("PG_slab"),
        "swapbacked": bits("PG_swapbacked"),
        "swapcache": bits("PG_swapcache"),
        "kept": bits("PG_dirty", "PG_writeback", "PG_unevictable"),
        "has_private": bits("PG_private"),
        "hwpoison": bits("PG_hwpoison"),
        "types": _types(prog, vmcoreinfo),
        "huge_byte": _huge_byte(prog, page),
        "huge_flags": bits("PG_hugetlb"),
        "large_counts": _large_counts(prog, page),
        # Since 6.17 a flag tells drivers' movable pages, and the bit in mapping has another meaning.
        "movable": "PG_movable_ops" not in flags,
        "movers": list(_movers(prog)),
        "orders": prog.type("struct zone").member("free_area").type.length,
        "zfs": ZFS_FILE_DATA,
        **_files(prog),  # type: ignore[typeddict-item]
    }


def _vmemmap(prog: Any) -> int:
    from drgn import FaultError

    try:
        return int(prog["vmemmap"].value_())
    except FaultError:  # drgn asks the sections, which may be missing; x86-64 has a variable as well
        return int(prog["vmemmap_base"].value_())


def enumerators(prog: Any, name: str) -> dict[str, int]:
    """The values of an enum by name; {} where there is no such enum."""
    try:
        found = prog.type(name).enumerators
    except LookupError:
        return {}
    return {enumerator.name: enumerator.value for enumerator in found or ()}


def _offset(structure: Any, *names: str) -> int:
    """In bytes, of the first of the members that there is. Raises LookupError."""
    from drgn import offsetof

    for name in names:
        try:
            return int(offsetof(structure, name))
        except LookupError:
            continue
    raise LookupError(f"{structure.type_name()} has no member {' or '.join(names)}")


def _head_is_mask(prog: Any, page: Any) -> bool:
    """mm/internal.h, compound_info_has_mask() (7.1): with hugetlb's vmemmap optimisation, whose zones have
    ``vmemmap_tails``, and a ``struct page`` that is a power of two in size."""
    return bool(
        page.has_member("compound_info")
        and page.size & (page.size - 1) == 0
        and prog.type("struct zone").has_member("vmemmap_tails")
    )


def _types(prog: Any, vmcoreinfo: Mapping[str, int]) -> list[tuple[int, int, str]]:
    """(mask, value, kind) of page_type.

    6.12 on: a number in the topmost byte. Before, a bit of its own for each type, cleared, under a base of set bits:
    named by an enum in 6.11, by macros before, of which VMCOREINFO has some.
    """
    named = enumerators(prog, "enum pagetype")
    numbered = {name: named[f"PGTY_{name}"] for name in _TYPES if f"PGTY_{name}" in named}
    if numbered:
        return [(0xFF << _TYPE_SHIFT, value << _TYPE_SHIFT, _TYPES[name]) for name, value in numbered.items()]
    base = named.get("PAGE_TYPE_BASE", 0) & U32
    if base:
        return [(base | named[f"PG_{name}"], base, kind) for name, kind in _TYPES.items() if f"PG_{name}" in named]
    found = []
    for name, kind in _TYPES.items():
        value = vmcoreinfo.get(f"PAGE_{name.upper()}_MAPCOUNT_VALUE")
        if value is not None:
            found.append(cleared_bit(~value & U32, kind))
    if not found:
        raise LookupError("neither enum pagetype nor PAGE_BUDDY_MAPCOUNT_VALUE: free pages cannot be told")
    return found


def cleared_bit(bit: int, kind: str) -> tuple[int, int, str]:
    """A type that is a cleared bit. A count of mappings has not all of its upper half set unless it is -1, or so little
    below that it is a type."""
    upper = U32 & ~0xFFFF
    return upper | bit, upper, kind


def _huge_byte(prog: Any, page: Any) -> Optional[tuple[int, int]]:
    """Up to 6.5: a compound page's destructor, numbered, in its first tail page."""
    value = enumerators(prog, "enum compound_dtor_id").get("HUGETLB_PAGE_DTOR")
    if value is None:
        return None
    if page.has_member("compound_dtor"):
        return _offset(page, "compound_dtor"), value
    folio = prog.type("struct folio")
    return _offset(folio, "_folio_dtor") - page.size, value


def _large_counts(prog: Any, page: Any) -> list[tuple[int, int]]:
    """How often a large folio is mapped, as (offset in its first tail page, value when not).

    One count of all mappings since 6.10; before, one of mappings as a whole and (6.2 on) one of pages mapped by
    themselves.
    """
    try:
        folio = prog.type("struct folio")
    except LookupError:
        folio = page
    for names in (("_large_mapcount",), ("_entire_mapcount", "_nr_pages_mapped"), ("_total_mapcount",)):
        if folio.has_member(names[0]):
            return [
                (_offset(folio, name) - page.size, 0 if name == "_nr_pages_mapped" else -1)
                for name in names
                if folio.has_member(name)
            ]
    return [(_offset(page, "compound_mapcount"), -1)]


def _movers(prog: Any) -> Iterable[tuple[int, str]]:
    """What ``mapping`` points to in pages that zsmalloc may move: its operations, or before 6.0 the mapping of an inode
    of the pool's. Nothing if it is not loaded, or has no debug information."""
    from drgn import FaultError, container_of
    from drgn.helpers.linux.list import list_for_each_entry

    with suppress(LookupError):
        yield prog["zsmalloc_mops"].address_of_().value_(), "zsmalloc"
        return
    with suppress(AttributeError, FaultError, LookupError):
        count = prog["zs_shrinker_count"].address_of_()  # each pool has a shrinker
        shrinkers = list_for_each_entry("struct shrinker", prog["shrinker_list"].address_of_(), "list")
        for shrinker in islice(shrinkers, _MOST_SHRINKERS):
            if shrinker.count_objects == count:
                pool = container_of(shrinker, "struct zs_pool", "shrinker")
                yield pool.inode.i_data.address_of_().value_(), "zsmalloc"


def _files(prog: Any) -> dict[str, Any]:
    mapping, vma, node = (prog.type(f"struct {name}") for name in ("address_space", "vm_area_struct", "rb_node"))
    try:
        special = [(prog["blockdev_superblock"].value_(), "block_device")]
    except LookupError:
        special = []
    execute = enumerators(prog, "enum vma_flag_bit").get("VMA_EXEC_BIT")
    return {
        "host": _offset(mapping, "host"),
        "i_mmap": _offset(mapping, "i_mmap.rb_root.rb_node"),
        "i_sb": _offset(prog.type("struct inode"), "i_sb"),
        "left": _offset(node, "rb_left"),
        "right": _offset(node, "rb_right"),
        "to_flags": _offset(vma, "vm_flags", "flags") - _offset(vma, "shared.rb"),
        "exec": _VM_EXEC if execute is None else 1 << execute,
        "special": special,
    }
