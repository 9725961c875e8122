"""Memory of BPF maps that programs share: ring buffers, and arenas."""

from __future__ import annotations

from drgnext.kernel.pages.layout import enumerators
from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures


def find(read: Structures, claims: Claims) -> set[str]:
    """Claim the pages of ring buffers and arenas. Return what this kernel has in another form."""
    types = enumerators(read.prog, "enum bpf_map_type")
    readers = {
        types.get("BPF_MAP_TYPE_RINGBUF"): _ring,
        types.get("BPF_MAP_TYPE_USER_RINGBUF"): _ring,  # since 6.1
        types.get("BPF_MAP_TYPE_ARENA"): _arena,  # since 6.9
    }
    readers.pop(None, None)
    other_forms = set()
    for found in read.xarray(read.variable("map_idr") + read.offset("struct idr.idr_rt")) if readers else ():
        reader = readers.get(read.number(found, "struct bpf_map.map_type"))
        try:
            if reader is not None:
                reader(read, claims, found)
        except LookupError as error:
            other_forms.add(str(error))
    return other_forms


def _ring(read: Structures, claims: Claims, found: int) -> None:
    """Add the pages of a struct bpf_ringbuf_map. Its data is mapped twice, one behind the other."""
    at = found - read.offset("struct bpf_ringbuf_map.map")
    ring = read.word(at, "struct bpf_ringbuf_map.rb")
    count = read.number(ring, "struct bpf_ringbuf.nr_pages")
    claims.each_page("bpf", read.word(ring, "struct bpf_ringbuf.pages"), count)


def _arena(read: Structures, claims: Claims, found: int) -> None:
    """Add the pages of a struct bpf_arena: those that are mapped in its 4 GB."""
    at = found - read.offset("struct bpf_arena.map")
    area = read.word(at, "struct bpf_arena.kern_vm")
    start = read.word(area, "struct vm_struct.addr")
    claims.area("bpf", start, start + read.word(area, "struct vm_struct.size"))
    if read.has("struct bpf_arena.scratch_page"):
        claims.page("bpf", read.word(at, "struct bpf_arena.scratch_page"))
