"""The layout of this kernel's ``struct page``, and the numbers of its flags and types, for the engine.

The code looks at features, never at the release. Everything comes from debug information and VMCOREINFO. The few
numbers that neither has are macros that have never changed. The comment of each says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional

from dmods.errors import MissingDebugInfoError

if TYPE_CHECKING:
    from drgn import Program, Type

    from dmods._engine import PageLayout

U32 = 0xFFFFFFFF

_MOST_SHRINKERS = 100_000

# OpenZFS marks its file data with this page->private and PG_private (module/os/linux/zfs/abd_os.c,
# ABD_FILE_CACHE_PAGE).
ZFS_FILE_DATA = 0x2F5ABDF11ECAC4E

# include/linux/mm.h. It equals PROT_EXEC, which is part of the kernel's interface to programs.
_VM_EXEC = 0x4

# Since 6.12 page_type holds the type in its topmost byte (include/linux/page-flags.h).
_TYPE_SHIFT = 24

# Names of page types and the kinds that they mean. ``enum pagetype`` has PGTY_ (6.12) or PG_ (6.11) before the name.
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
    "netpp": "page_pool",
}


def page_layout(prog: Program, vmcoreinfo: Mapping[str, int]) -> PageLayout:
    """Return the layout of the page array.

    Raises MissingDebugInfoError if a description is missing that nothing can replace.
    """
    try:
        return _layout(prog, vmcoreinfo)
    except (LookupError, AttributeError) as error:
        raise MissingDebugInfoError(f"the kernel's page array: {error}") from None


def _layout(prog: Program, vmcoreinfo: Mapping[str, int]) -> PageLayout:
    """Return the layout. Raises LookupError or AttributeError if a description is missing."""
    page = prog.type("struct page")
    flags = enumerators(prog, "enum pageflags")

    def bits(*names: str) -> int:
        """Return the mask of the flags. A flag that this kernel does not have adds nothing."""
        return sum(1 << flags[name] for name in set(names) if name in flags)

    return {
        "base": _vmemmap(prog),
        "page_bits": prog["PAGE_SHIFT"].value_(),
        "size": _size(page),
        "flags": _offset(page, "flags"),
        # 7.1 renamed it, because it became a mask in some configurations.
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
        # Since 6.17 a flag marks drivers' movable pages, and the bit in mapping has another meaning.
        "movable": "PG_movable_ops" not in flags,
        "movers": list(_movers(prog)),
        "orders": prog.type("struct zone").member("free_area").type.length,
        "zfs": ZFS_FILE_DATA,
        "page_pool": _page_pool(page),
        **_files(prog),  # type: ignore[typeddict-item]
    }


def _page_pool(page: Type) -> Optional[tuple[int, int, int]]:
    """Return (offset, mask, value) of the word that marks pages of page pools, since 5.14.

    PP_SIGNATURE is a macro (include/linux/poison.h): 0x40 in an address that cannot be. Since 6.16 bits 7 to 38 may
    have a number (include/linux/mm.h, PP_DMA_INDEX_MASK), and the two lowest bits belong to compound pages.
    """
    if not page.has_member("pp_magic"):
        return None
    return _offset(page, "pp_magic"), ~0x7FFFFFFF83 & (1 << 64) - 1, 0xDEAD000000000040


def _vmemmap(prog: Program) -> int:
    """Return the address of the ``struct page`` of page frame 0."""
    from drgn import FaultError

    try:
        return int(prog["vmemmap"].value_())
    except FaultError:  # drgn reads the memory sections, which may be missing; x86-64 has a variable as well
        return int(prog["vmemmap_base"].value_())


def enumerators(prog: Program, name: str) -> dict[str, int]:
    """Return the values of an enum by name, or {} if there is no such enum."""
    try:
        found = prog.type(name).enumerators
    except LookupError:
        return {}
    return {enumerator.name: enumerator.value for enumerator in found or ()}


def _size(structure: Type) -> int:
    """Return the size in bytes. Raises LookupError for a type that is only declared."""
    if structure.size is None:
        raise LookupError(f"{structure.type_name()} is only declared")
    return structure.size


def _offset(structure: Type, *names: str) -> int:
    """Return the offset in bytes of the first member that exists. Raises LookupError if none does."""
    from drgn import offsetof

    for name in names:
        try:
            return int(offsetof(structure, name))
        except LookupError:
            continue
    raise LookupError(f"{structure.type_name()} has no member {' or '.join(names)}")


def _head_is_mask(prog: Program, page: Type) -> bool:
    """Return whether ``compound_info`` holds a mask (mm/internal.h, compound_info_has_mask(), 7.1).

    This needs hugetlb's vmemmap optimisation, which gives zones ``vmemmap_tails``. The size of ``struct page`` must
    also be a power of two.
    """
    return bool(
        page.has_member("compound_info")
        and _size(page) & (_size(page) - 1) == 0
        and prog.type("struct zone").has_member("vmemmap_tails")
    )


def _types(prog: Program, vmcoreinfo: Mapping[str, int]) -> list[tuple[int, int, str]]:
    """Return (mask, value, kind) for each page_type.

    Since 6.12 the type is a number in the topmost byte. Before, each type is a bit of its own. The bit is cleared,
    under a base of set bits. In 6.11 an enum names the bits. Before that they are macros, and VMCOREINFO has some of
    them.
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
        raise LookupError("neither enum pagetype nor PAGE_BUDDY_MAPCOUNT_VALUE: dmods cannot tell which pages are free")
    return found


def cleared_bit(bit: int, kind: str) -> tuple[int, int, str]:
    """Return (mask, value, kind) for a type that is a cleared bit.

    The same field can be a count of mappings. The upper half of a count is all ones only for -1, or for a value so
    little below -1 that it is a type.
    """
    upper = U32 & ~0xFFFF
    return upper | bit, upper, kind


def _huge_byte(prog: Program, page: Type) -> Optional[tuple[int, int]]:
    """Return (offset, value) of the byte that marks hugetlb pages up to 6.5, or None.

    The byte is the number of a compound page's destructor, in the first tail page.
    """
    value = enumerators(prog, "enum compound_dtor_id").get("HUGETLB_PAGE_DTOR")
    if value is None:
        return None
    if page.has_member("compound_dtor"):
        return _offset(page, "compound_dtor"), value
    folio = prog.type("struct folio")
    return _offset(folio, "_folio_dtor") - _size(page), value


def _large_counts(prog: Program, page: Type) -> list[tuple[int, int]]:
    """Return the counts of a large folio's mappings, as (offset in its first tail page, value when not mapped).

    Since 6.10 there is one count of all mappings. Before, one counts mappings of the whole folio. A second one (since
    6.2) counts pages that are mapped separately.
    """
    try:
        folio = prog.type("struct folio")
    except LookupError:
        folio = page
    for names in (("_large_mapcount",), ("_entire_mapcount", "_nr_pages_mapped"), ("_total_mapcount",)):
        if folio.has_member(names[0]):
            return [
                (_offset(folio, name) - _size(page), 0 if name == "_nr_pages_mapped" else -1)
                for name in names
                if folio.has_member(name)
            ]
    return [(_offset(page, "compound_mapcount"), -1)]


def _movers(prog: Program) -> Iterable[tuple[int, str]]:
    """Yield (address, kind) of what ``mapping`` points to in pages that zsmalloc may move.

    The address is that of zsmalloc's operations, which the kernel's own symbol table has, too. Before 6.0 it is the
    mapping of the pool's inode, which needs debug information of the module.
    """
    from drgn import FaultError, container_of
    from drgn.helpers.linux.list import list_for_each_entry

    operations = _module_symbol(prog, "zsmalloc", "zsmalloc_mops")
    if operations is not None:
        yield operations, "zsmalloc"
        return
    with suppress(AttributeError, FaultError, LookupError):
        count = prog["zs_shrinker_count"].address_of_()  # each pool has a shrinker
        shrinkers = list_for_each_entry("struct shrinker", prog["shrinker_list"].address_of_(), "list")
        for shrinker in islice(shrinkers, _MOST_SHRINKERS):
            if shrinker.count_objects == count:
                pool = container_of(shrinker, "struct zs_pool", "shrinker")
                yield pool.inode.i_data.address_of_().value_(), "zsmalloc"


def _module_symbol(prog: Program, module: str, name: str) -> Optional[int]:
    """Return the address of a variable of a module that may be built in, also without debug information, or None.

    Kernels with CONFIG_KALLSYMS_ALL keep the names of modules' variables.
    """
    from drgn import FaultError

    with suppress(LookupError):
        return int(prog[name].address_of_().value_())
    try:
        from drgn.helpers.linux.kallsyms import module_kallsyms
        from drgn.helpers.linux.module import find_module

        loaded = find_module(prog, module)
        symbols = module_kallsyms(loaded) if loaded else []  # the tables of all modules would take 20 ms to read
    except (FaultError, ImportError, LookupError, ValueError, AttributeError):
        return None
    return next((int(each.address) for each in symbols if each.name == name), None)


def _files(prog: Program) -> dict[str, Any]:
    """Return the offsets that lead from a file page to its file and its executable mappings."""
    mapping, vma, node = (prog.type(f"struct {name}") for name in ("address_space", "vm_area_struct", "rb_node"))
    try:
        special = [(prog["blockdev_superblock"].value_(), "block_device")]
    except LookupError:
        special = []
    rings, secrets = _superblock(prog, "anon_inode_mnt"), _superblock(prog, "secretmem_mnt")
    if rings:  # the kernel maps rings (perf's) as pages of its one inode, which has no pages in a page cache
        special.append((rings, "ring"))
    if secrets:  # memfd_secret(2), since 5.14: memory of programs that no file has, and that cannot be dropped
        special.append((secrets, "secret"))
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


def _superblock(prog: Program, mount: str) -> Optional[int]:
    """Return the superblock of a mount that the kernel made for itself, or None. ``mount`` names the variable."""
    from drgn import FaultError

    try:
        return int(prog[mount].mnt_sb.value_())
    except (LookupError, FaultError, AttributeError):
        return None
