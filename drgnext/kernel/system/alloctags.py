"""The kernel's own counts of memory by call site (CONFIG_MEM_ALLOC_PROFILING, 6.10 and later): /proc/allocinfo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.xarrays import XArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_BYTES = 1 << 26  # of the tags of a module: a large kernel has 10,000 tags of 40 bytes
_INACCURATE = 1  # CODETAG_FLAG_INACCURATE (linux/codetag.h), since 6.18
_SIGN = 1 << 63


class AllocTag(NamedTuple):
    """A call that allocates, with the bytes and allocations of it that are still there.

    ``module`` is "" for the kernel's image. ``file`` is the path that the compiler had. ``inaccurate`` is the kernel's
    own word: it could not count each allocation.
    """

    module: str
    file: str
    line: int
    function: str
    bytes: int
    calls: int
    inaccurate: bool
    address: int


def alloc_tags(reader: Reader) -> Optional[list[AllocTag]]:
    """Return all call sites in the order of /proc/allocinfo, or None if this kernel does not count by call site."""
    kind = reader.symbol("alloc_tag_cttype")
    if kind is None or not reader.has("struct alloc_tag", "counters"):
        return None
    found: list[AllocTag] = []
    with reader.reading("lists of call sites"):
        modules = _Tags(reader)
        for _number, address in XArray(reader, kind.mod_idr.idr_rt, "modules with call sites").entries():
            with reader.reading("lists of call sites"):
                found += modules.of(reader.pointer("struct codetag_module", address))
    return found


def is_counting(reader: Reader) -> Optional[bool]:
    """Return whether the kernel counted when it died (vm.mem_profiling), or None if the dump does not tell."""
    key = reader.symbol("mem_alloc_profiling_key")
    if key is None:
        return None
    with reader.reading("the switch of the counting"):
        return int(key.key.enabled.counter) > 0
    return None


class _Tags:
    """Reads tags. Offsets and strings are looked up once."""

    def __init__(self, reader: Reader) -> None:
        from drgn import sizeof

        self._reader = reader
        self._size = sizeof(reader.prog.type("struct alloc_tag"))
        names = ("ct.flags", "ct.lineno", "ct.modname", "ct.function", "ct.filename", "counters")
        self._at = [reader.offset("struct alloc_tag", name) for name in names]
        counters = "struct alloc_tag_counters"
        self._counters = (reader.offset(counters, "bytes"), reader.offset(counters, "calls"))
        self._counters_size = sizeof(reader.prog.type(counters))
        self._texts: dict[int, str] = {}

    def of(self, module: Object) -> Iterator[AllocTag]:
        """Yield the tags of a ``struct codetag_module``."""
        start, stop = int(module.range.start.value_()), int(module.range.stop.value_())
        length = stop - start
        if not 0 <= length <= _MOST_BYTES or length % self._size:
            self._reader.note(f"the call sites at {start:#x} have an impossible end, {stop:#x}: they are missing")
            return
        data = self._reader.memory.read(start, length)
        if len(data) < length:
            lost = (length - len(data)) // self._size
            self._reader.note(f"the dump lacks {lost} call sites from {start + len(data):#x} on")
        for offset in range(0, len(data) - self._size + 1, self._size):
            yield self._tag(start + offset, data[offset : offset + self._size])

    def _tag(self, address: int, data: bytes) -> AllocTag:
        flags_at, line_at, *words_at = self._at
        flags, line = (int.from_bytes(data[at : at + 4], "little") for at in (flags_at, line_at))
        module, function, file, counters = (int.from_bytes(data[at : at + 8], "little") for at in words_at)
        size, calls = self._sums(counters)
        texts = (self._text(module), self._text(file), line, self._text(function))
        return AllocTag(*texts, size, calls, bool(flags & _INACCURATE), address)

    def _sums(self, counters: int) -> tuple[int, int]:
        """Return bytes and calls, added up over all possible CPUs. The kernel's sums wrap around, too."""
        size = calls = 0
        for part in self._reader.parts(counters, self._counters_size) if counters else ():
            if len(part) < self._counters_size:
                self._reader.note("the dump lacks counters of call sites: bytes and calls may be wrong")
                continue
            of_bytes, of_calls = (int.from_bytes(part[at : at + 8], "little") for at in self._counters)
            size, calls = size + of_bytes, calls + of_calls
        return (size + _SIGN) % (2 * _SIGN) - _SIGN, calls % (2 * _SIGN)

    def _text(self, address: int) -> str:
        if address not in self._texts:
            self._texts[address] = self._reader.text(address)
        return self._texts[address]
