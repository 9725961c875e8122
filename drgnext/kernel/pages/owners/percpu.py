"""Chunks of per-CPU memory, and pools of memory for DMA that must not wait. Both are areas of virtual memory."""

from __future__ import annotations

from drgnext.kernel.pages.layout import enumerators
from drgnext.kernel.pages.owners.claims import Claims
from drgnext.kernel.pages.owners.structures import Structures

_MOST_CHUNKS = 1 << 16
_MOST_LISTS = 1 << 10
_POOLS = ("atomic_pool_dma", "atomic_pool_dma32", "atomic_pool_kernel")  # kernel/dma/pool.c


def find(read: Structures, claims: Claims) -> set[str]:
    """Claim the areas. Return what this kernel has in another form."""
    other_forms = set()
    for variable in _POOLS:
        try:
            at = read.variable(variable)
        except LookupError:
            continue  # this kernel has no such pool
        try:
            if read.has("struct dma_gen_pool.pool"):  # since 7.3 the variable is no pointer, but has one
                at += read.offset("struct dma_gen_pool.pool")
            _pool(read, claims, read.memory.word(at) or 0)
        except LookupError as error:
            other_forms.add(str(error))
    try:
        _chunks(read, claims)
    except LookupError as error:
        other_forms.add(str(error))
    return other_forms


def _pool(read: Structures, claims: Claims, pool: int) -> None:
    """Add the chunks of a struct gen_pool. The last byte of a chunk is at end_addr."""
    if not pool:
        return
    link = read.offset("struct gen_pool_chunk.next_chunk")
    for _number, chunk in zip(range(_MOST_CHUNKS), read.linked(pool + read.offset("struct gen_pool.chunks"), link)):
        start = read.word(chunk, "struct gen_pool_chunk.start_addr")
        claims.area("dma_pool", start, read.word(chunk, "struct gen_pool_chunk.end_addr") + 1)


def _chunks(read: Structures, claims: Claims) -> None:
    """Add what each CPU has in each struct pcpu_chunk. The first chunk is memory that was reserved at boot."""
    types = enumerators(read.prog, "enum pcpu_chunk_type").get("PCPU_NR_CHUNK_TYPES", 1)  # 5.9 to 5.13: two
    heads = read.value("pcpu_chunk_lists")
    lists = min(read.number_at(read.variable("pcpu_nr_slots")) * types, _MOST_LISTS)
    offsets, size = read.value("pcpu_unit_offsets"), read.size("struct list_head")
    units = [read.memory.word(offsets + 8 * cpu) or 0 for cpu in range(read.cpus())]
    page_bits = int(read.prog["PAGE_SHIFT"])
    link, left = read.offset("struct pcpu_chunk.list"), _MOST_CHUNKS
    for number in range(max(lists, 0) if heads else 0):
        for chunk in read.linked(heads + number * size, link):
            left -= 1
            if left <= 0 or claims.left <= 0:
                return
            start = read.word(chunk, "struct pcpu_chunk.base_addr")
            pages = read.number(chunk, "struct pcpu_chunk.nr_pages")
            for unit in units if start and 0 < pages < 1 << 20 else ():
                claims.area("percpu", start + unit, start + unit + (pages << page_bits))
