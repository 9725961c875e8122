"""The areas of the kernel's vmalloc space, and who asked for them: what /proc/vmallocinfo lists (mm/vmalloc.c)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.pages.lists import vmap_heads

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

#: include/linux/vmalloc.h: VM_IOREMAP, VM_MAP, VM_DMA_COHERENT, VM_SPARSE, VM_ALLOC.
_KINDS = ((0x1, "ioremap"), (0x4, "vmap"), (0x10, "dma"), (0x1000, "sparse"), (0x2, "vmalloc"))
_PER_CPU = "pcpu_get_vm_areas"  # it asks for the areas of per-CPU memory, and fills them by itself
RAM = "vm_map_ram"  # an area without a vm_struct: nothing notes who asked for it


class Area(NamedTuple):
    """An area. ``size`` is in bytes, with the page that guards its end; ``pages`` are those that it owns.

    ``caller`` is the address in the code that asked for it, 0 if that is not known. An area of per-CPU memory has no
    pages here: the allocator of per-CPU memory owns them.
    """

    start: int
    size: int
    pages: int
    kind: str
    caller: int
    address: int


def areas(reader: Reader) -> Iterator[Area]:
    """Yield the areas in use, as the kernel's lists have them."""
    for head in vmap_heads(reader.prog):
        for area in reader.members(head, "struct vmap_area", "list", "areas of vmalloc"):
            with reader.reading("areas of vmalloc"):
                yield _area(reader, area)


def _area(reader: Reader, area: Object) -> Area:
    start, end = int(area.va_start), int(area.va_end)
    vm = area.vm
    if not vm.value_():
        return Area(start, max(0, end - start), 0, RAM, 0, area.value_())
    flags, caller = int(vm.flags), vm.caller.value_()
    kind = next((name for bit, name in _KINDS if flags & bit), "other")
    if kind == "vmalloc" and caller == _address(reader, _PER_CPU):
        kind = "per-CPU"
    return Area(vm.addr.value_(), int(vm.size), int(vm.nr_pages), kind, caller, area.value_())


def _address(reader: Reader, function: str) -> int:
    try:
        return int(reader.prog.symbol(function).address)
    except LookupError:
        return 0
