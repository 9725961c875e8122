"""The seeds of ``scripts/fuzz-engine``: small inputs that pass the first checks.

engine/fuzz/src/targets reads them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

# engine/fuzz/src/targets/machine.rs
_DIRECT, _ARRAY = 0xFFFF888000000000, 0xFFFFEA0000000000


def of(target: str) -> Iterator[bytes]:
    """Yield the seeds of that target."""
    yield from {
        "heap": lambda: (_heap(word) for word in (4, 8)),
        "search": lambda: (_searched(word) for word in (4, 8)),
        "dominators": lambda: [bytes([9, 1, 0, 0, 0, 3, *(0, 1, 1, 2, 0, 2, 2, 3, 3, 4, 4, 2)])],
        "contents": lambda: (_contents(word) for word in (4, 8)),
        "jemalloc": _jemalloc,
        "musl": _musl,
        "mimalloc": lambda: [bytes([index, 8, 0, 1, 16, 0]) for index in range(8)],
        "tcmalloc": _tcmalloc,
        "pymalloc": _pymalloc,
        "golang": _golang,
        "symbols": _objects,
        "section": lambda: (bytes([name]) + elf for elf in _objects() for name in range(3)),
        "unwinding": lambda: (stack for elf in _objects() for stack in _stacks(elf)),
        "instruction": lambda: [bytes([arch]) + b"\1\1\0\0\x48\x8b\x44\x24\x08\xc3" for arch in range(3)],
        "demangle": lambda: _NAMES,
        "kdump": _kdump,
        "pagetables": _tables,
        "memmap": _memmap,
        "slabs": _memmap,  # the same page array
        "unpack": lambda: (
            bytes([form, 1]) + compress(b"core" * 100)
            for form, compress in ((0, gzip.compress), (1, lzma.compress), (3, bz2.compress))
        ),
        "kallsyms": _kallsyms,
        "shape": lambda: (bytes([3, shift, how]) + bytes(8) + b"\1\5\2" for shift, how in ((0, 0), (9, 129), (0, 70))),
        "btf": _btf,
        "audit": _audit,
        "lines": lambda: (b"\0" + elf for elf in _objects()),
        "pprof": _pprof,
    }[target]()


_NAMES = (
    b"_ZNSt6vectorIiSaIiEE9push_backEOi",
    b"_ZN3FooIXadL_Z3barvEEE1xEv",
    b"_ZNKSt8functionIFvRKSsEEclES1_",
    b"_RNvNtCs1234_7mycrate3foo3bar",
    b"_RINvNtC3std3mem8align_ofjdE",
    b"_ZN4core3fmt5write17h0123456789abcdefE",
)


# -- a kernel's own symbols and types ---------------------------------------------------------------------------------


def _kallsyms() -> Iterator[bytes]:
    """Yield three symbols, with a base and without one. Each byte of a name stands for itself."""
    index = struct.pack("<256H", *(2 * byte for byte in range(256)))
    table = b"".join(bytes([byte or 1, 0]) for byte in range(256))
    names = b"".join(bytes([len(name)]) + name for name in (b"Tstart", b"dtable", b"Bend"))
    for how, offsets in ((0, (-1, -257, -513)), (1, (0, 256, 512))):
        sizes = struct.pack("<HH", len(table), 12)
        yield bytes([3, how]) + index + sizes + table + struct.pack("<3i", *offsets) + names


def _btf() -> Iterator[bytes]:
    """Yield an int, a structure of two of them and a pointer to it, and one per-CPU variable."""
    strings = b"\0int\0pair\0a\0b\0counter\0.data..percpu\0"
    int_type = struct.pack("<IIII", 1, 1 << 24, 4, 1 << 24 | 32)
    pair = struct.pack("<III", 5, 4 << 24 | 2, 8) + struct.pack("<6I", 10, 1, 0, 12, 1, 32)
    pointer = struct.pack("<III", 0, 2 << 24, 2)
    variable = struct.pack("<IIII", 14, 14 << 24, 1, 1)
    section = struct.pack("<III", 22, 15 << 24 | 1, 4) + struct.pack("<III", 4, 0, 4)
    types = int_type + pair + pointer + variable + section
    yield struct.pack("<H", len(types)) + types + strings


# -- files -----------------------------------------------------------------------------------------------------------


def _objects() -> Iterator[bytes]:
    source = "__thread int t; int data = 3; int f(int n) { return n ? n * f(n - 1) : data; } int g(void) { return t; }"
    for flags in (["-shared"], ["-c", "-g", "-gz"], ["-c"]):
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "made"
            argv = [
                *("gcc", "-O1", "-fPIC", "-nostdlib", "-fasynchronous-unwind-tables"),
                *("-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Wl,--build-id=none"),
                *flags,
            ]
            subprocess.run([*argv, "-x", "c", "-", "-o", str(made)], input=source.encode(), check=True)
            yield made.read_bytes()


def _address(place: int, offset: int) -> bytes:
    return struct.pack("<BH", place, offset)


def _word(value: int) -> bytes:
    return b"\0" + struct.pack("<Q", value)


def _stacks(elf: bytes) -> Iterator[bytes]:
    for machine in range(3):
        for pc in range(0x200, 0x400, 0x80):
            registers = b"".join(b"\1\1" + _address(1, pc if n in (16, 32, 8) else 0x8010) for n in range(33))
            yield bytes([machine]) + registers + b"\1\0\0\0" + bytes(512) + elf


def _kdump() -> Iterator[bytes]:
    """Yield dumps of four pages of zeros, each compressed by another library."""
    packed = (
        (1, zlib.compress(bytes(4096))),
        # LZO: four literals, a match of 4092 bytes at distance 1, the end.
        (2, b"\x15" + bytes(4) + b"\x20" + bytes(15) + b"\xea\0\0" + b"\x11\0\0"),
        # Snappy: the length, a literal, copies of 64 and 63 bytes at offset 1.
        (3, b"\x80\x20\0\0" + b"\xfe\1\0" * 63 + b"\xfa\1\0"),
        # Zstandard: a frame of known size whose one block repeats a byte.
        (4, b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", 4096 - 256) + (4096 << 3 | 3).to_bytes(3, "little") + b"\0"),
    )
    descriptors, data = b"", b""
    for how, page in packed:
        descriptors += struct.pack("<BBHB", 0, len(data), len(page), how)
        data += page
    for how in (2, 6, 14, 18):
        head = bytes([how, 1, 2, 6, 0]) + struct.pack("<H", 40) + _word(40) + b"\0"
        # Pages 0, 1, 9 and the one whose number `how` is.
        bits = (3 | 1 << 9 | 1 << how).to_bytes(16, "little")
        yield head + bytes([len(packed)]) + descriptors + bits + data


def _pprof() -> Iterator[bytes]:
    """Yield a profile with one of each message (profile.proto), plain and compressed."""

    def varint(number: int) -> bytes:
        out = b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    def message(**fields: int | bytes | list[int]) -> bytes:
        """Encode fields named f1, f2, ... A number is a varint, bytes are a message or a text, a list is packed."""
        out = b""
        for name, value in fields.items():
            key = int(name[1:]) << 3
            if isinstance(value, int):
                out += varint(key) + varint(value)
                continue
            data = value if isinstance(value, bytes) else b"".join(map(varint, value))
            out += varint(key | 2) + varint(len(data)) + data
        return out

    texts = (b"", b"inuse_space", b"bytes", b"main", b"main.c", b"/bin/x", b"abcd", b"thread", b"worker")
    body = (
        message(f1=message(f1=1, f2=2), f2=message(f1=[1, 1], f2=[4096], f3=message(f1=7, f2=8)))
        + message(f2=message(f1=[1], f2=[1 << 63], f3=message(f1=2, f3=32, f4=2)))
        + message(f3=message(f1=1, f2=0x400000, f3=0x500000, f4=4096, f5=5, f6=6, f7=1, f8=1, f9=1, f10=1))
        + message(f4=message(f1=1, f2=1, f3=0x400123, f4=message(f1=1, f2=42)))
        + message(f5=message(f1=1, f2=3, f3=3, f4=4, f5=1))
        + b"".join(message(f6=text) for text in texts)
        + message(f9=1, f10=1, f11=message(f1=1, f2=2), f12=524288, f13=[8], f14=1)
    )
    yield body
    yield gzip.compress(body, mtime=0)


# -- heaps -----------------------------------------------------------------------------------------------------------


def _chunks(word: int) -> bytes:
    """Return some chunks in use, one free, a list of two, and top."""
    sizes = [0x21, 0x31, 0x21, 0x41, 0x20, 0x21, 0x21, 0x91]
    out = b""
    for size in sizes:
        body = bytearray(size & ~7)
        body[word : 2 * word] = size.to_bytes(word, "little")
        body[2 * word : 3 * word] = (0x20 + len(out)).to_bytes(2, "little") + bytes(word - 4) + b"\1\xad"
        out += body
    return out


def _piece(place: int, offset: int, data: bytes) -> bytes:
    return _address(place, offset) + struct.pack("<HH", 0, len(data)) + data


def _memory(word: int) -> bytes:
    return b"\0" + _piece(1, 0, _chunks(word))


def _heap(word: int) -> bytes:
    run = _address(1, 0) + b"\0" + struct.pack("<H", 0x180) + b"\0\0\0"
    heads = b"".join(b"\1" + _address(1, 0x10 * n) for n in range(4))
    ranges = b"".join(_address(1, n) for n in (0, 0x40, 0x50, 0, 0))
    return bytes([1 if word == 8 else 0, 0]) + run + heads + struct.pack("<HH", 2, 6) + b"\3" + ranges + _memory(word)


def _contents(word: int) -> bytes:
    place = _address(1, 0x8000) + b"\2" + struct.pack("<H", 0x1000) + _word(0)
    values = b"".join(b"\1" + _address(1, offset) for offset in (0x40, 0x10))
    runs = b"".join(b"\0" + _address(1, 0) + struct.pack("<H", end) + b"\0\0\0" for end in (0x180, 0x100))
    return bytes([1 if word == 8 else 0, 1]) + place + values + runs + _memory(word)


def _searched(word: int) -> bytes:
    words = b"".join(b"\1" + _address(1, n) for n in (0x100, 0, 0x400))
    return bytes([1 if word == 8 else 0, 0]) + words + _memory(word)


def _jemalloc() -> Iterator[bytes]:
    """Yield a root, a leaf, a slab of 16 bytes a block at 0x2000 and a large extent at 0x3000."""
    for how in (0, 16, 20):
        wide = bool(how & 4)
        leaf = [0] * (32 if wide else 16)
        edatas = []
        for number, (page, szind, slab) in enumerate(((2, 1, 1), (3, 9, 0))):
            at = 0x1300 + 128 * number
            leaf[page * (2 if wide else 1)] = at if wide else at | szind << 48 | slab
            if wide:
                leaf[page * 2 + 1] = szind << 1 | slab
            edatas += [slab << 12 | szind << 20, page << 12, 0x1000, *[0] * 13]
        words = [0x1080, *[0] * 15, *leaf]
        tree = struct.pack(f"<{len(words)}Q", *words).ljust(0x300, b"\0") + struct.pack("<32Q", *edatas)
        blocks = struct.pack("<8Q", 0x2010, 0, 0x2020, 0x3008, 0, 0, 0x2070, 0)
        head = bytes([how]) + _address(0, 0x1000) + _address(0, 0x1008) + b"\0" + b"\1" + _address(0, 0x1010) + _word(0)
        yield head + b"\1" + _piece(0, 0, tree) + _piece(0, 0x1000, blocks)


def _musl() -> Iterator[bytes]:
    """Yield two groups at 0x1000 and 0x2000: slots of 32 bytes, and one block in a mapping of its own."""
    for word, area in ((8, 0x700000000000), (4, 0x70000000)):
        first, size = 8 + 2 * word, 4 * word + 8
        slots = b"".join(_slot(index, 2 * index, 3) + bytes(28) for index in range(4))
        small = (area + first).to_bytes(word, "little").ljust(12, b"\0") + slots
        large = (area + first + size).to_bytes(word, "little").ljust(12, b"\0") + _slot(0, 0, 0) + bytes(0x200)
        metas = _address(0, 0) + struct.pack("<HHHB", 0b0100, 0, 3 | 1 << 5 | 1 << 6, 0)
        metas += _address(0, 0x1000) + struct.pack("<HHHB", 0, 0, 1 << 5 | 63 << 6, 1)
        head = bytes([1 if word == 8 else 0]) + _word(0) + _word(0) + _word(0) + bytes([0, 0, 2])
        yield head + metas + b"\1" + _piece(0, 0, small) + _piece(0, 0x1000, large)


def _slot(index: int, units: int, reserved: int) -> bytes:
    """Return the four bytes before a block."""
    return bytes([0, index | reserved << 5]) + units.to_bytes(2, "little")


def _pymalloc() -> Iterator[bytes]:
    """Yield a pool of tuples in a free list, of lists, and of texts, for each release (targets/pymalloc.rs)."""
    number, kind, place = (lambda value: bytes([value])), (lambda which: bytes([100, which])), 140
    pools = 4096
    for minor in range(6):
        heads = bytes([place]) + struct.pack("<H", 48 + 16) + number(2)
        link = bytes([place]) + struct.pack("<H", 48 + 64 + 16)
        first = number(0) * 3 + kind(4) + number(1) + link + number(7) + number(0)
        last = number(0) * 3 + kind(4) + number(1) + number(0) * 3
        if minor == 5:  # 3.14: the first word of an object is the link
            first = number(0) * 2 + link + kind(4) + number(1) + number(7) * 3
        items = bytes([place]) + struct.pack("<H", 2 * pools + 48)
        lists = number(0) * 2 + number(1) + kind(3) + number(1) + items + number(4) + number(0)
        texts = number(1) + kind(6) + number(3) + number(9) + bytes([230]) + struct.pack("<HH", 0, 0xE4) + number(5) * 3
        pool = [bytes([3, 1, 1, 16]) + first + last, bytes([3, 0, 1, 8]) + lists, bytes([3, 3, 1, 8]) + texts]
        yield bytes([minor, 0, 2]) + heads + b"".join(pool)


def _golang() -> Iterator[bytes]:
    """Yield interface values that lead to nodes, a map, an array and a large struct (targets/golang.rs)."""

    def kind(number: int) -> bytes:
        return bytes([80, number])

    def place(span: int, offset: int) -> bytes:
        return bytes([140]) + struct.pack("<H", span * 0x2000 + offset)

    number = bytes([7])
    node = place(0, 32) + number + place(1, 0) + number
    variables = [kind(2) + place(0, 0), kind(6) + place(2, 0), kind(10) + place(3, 0), kind(11) + place(3, 208)]
    for headed in (0, 1):
        words = b"".join(variables) + bytes([130]) + place(0, 64)
        head = bytes([0, 2 * len(variables) + 2]) + words + bytes([0])
        spans = [bytes([2, 1, 0, 0, 4 * 4]) + node * 4, bytes([1, 0, 0, 0, 0]), bytes([3, 1, 0, 0, 6])]
        spans[2] += number * 2 + place(0, 0) + bytes([0]) * 3
        spans.append(bytes([6 if headed else 5, 1, 0, 0, 26]) + (kind(11) if headed else b"") + node * 6 + number * 2)
        yield head + b"".join(spans)


def _tcmalloc() -> Iterator[bytes]:
    """Yield a page map, a span of 16 bytes an object at 0x2000 and one object at 0x3000, a cache, and free objects.

    In some of them the one object is sampled: its span hangs on a list at 0x12c0, and has a stack at 0x1300. In some
    another such object follows at 0x4000, with a stack at 0x1320.
    """
    for levels, sampled in product((0, 1), (0, 1, 2)):
        root, leaf = [0x1080, *[0] * 15], [0, 0, 0x1100, 0x1130, 0x1260 if sampled == 2 else 0, *[0] * 11]
        if levels:  # 4, 2 and 2 bits
            leaf = [0x10A0, 0x10C0, 0, 0, *leaf[:12]]
        after, final = (0x1260, 0x1260) if sampled == 2 else (0x12C0, 0x1130)
        last = [after, 0x12C0, 0x1300, 1 << 26] if sampled else [0] * 4
        records = [2, 1, 0, 0, 0x2010, 2 << 16 | 250, 3, 1, *last]
        cache = [0, 0, 0, 0, 0, 0, 0, 8, 0x2040, 2, 0, 16, 0, 0, 0, 48, 0, 0, 0, 4096, *[0] * 8]
        words = [*root, *leaf, *records, 0x1170, 0, *cache]
        if sampled:
            second = [4, 1, 0x12C0, 0x1130, 0x1320, 1 << 26] if sampled == 2 else []
            words += [*[0] * (0x4C - len(words)), *second]
            words += [*[0] * (0x58 - len(words)), 0, 0, 0x1130, final, *[0] * 4, 100, 2, 0x5000, 0x6000]
            words += [4000, 1, 0x7000] if sampled == 2 else []
        tree = struct.pack(f"<{len(words)}Q", *words).ljust(0x400, b"\0")
        # The central cache of size class 2 begins at 0x1400 + 2 * 192; its slots, 128 bytes on.
        central = b"".join(
            (b"\0" * 128 + struct.pack("<8Q2I", 0x2080 if n == 2 else 0, *[0] * 7, int(n == 2), 4)).ljust(192, b"\0")
            for n in range(5)
        )
        links = {0x10: 0x20, 0x40: 0x50, 0x80: 0x90, 0x30: 0x3008}
        blocks = b"".join(
            struct.pack("<Q", (links[at] + 0x2000 if links[at] < 0x3000 else links[at]) if at in links else 0)
            for at in range(0, 0x100, 8)
        )
        head = bytes([levels, 0]) + _address(0, 0x400) + _address(0, 0x1010) + _address(0, 0x1020)
        yield (
            head
            + b"\1"
            + _address(0, 0x1010)
            + _word(0)
            + b"\1"
            + _piece(0, 0, tree + central)
            + _piece(0, 0x1000, blocks)
        )


# -- a machine -------------------------------------------------------------------------------------------------------


def _tables() -> Iterator[bytes]:
    for machine in (0, 1):
        for shape in ((0, 0), (0, 1), (2, 0), (3, 3)):
            head = bytes([1, machine, *shape]) + struct.pack("<HBH", 0x1000, 0, 0x4000)
            addresses = b"".join(bytes([n]) + _word(0x1234567 << (4 * n)) for n in range(6))
            entries = [0x1003, 0x2003, 0x3083, 0, 0x8003, 0x10003, 0x200083, 0x40000001]
            yield head + addresses + struct.pack("<8Q", *entries)


def _memmap() -> Iterator[bytes]:
    """Yield a page of each kind: flags, compound_head, -, mapping, -, private, mapcount and refcount, -."""
    unmapped, mapped = 0x1_FFFFFFFF, 0x1_00000000
    pages = (
        (1 << 12, 0, 0, 0, 0, 0, unmapped, 0),
        (0, 0, 0, 0, 0, 2, 0xFF00007F, 0),
        *[(0, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0)] * 3,
        (1 << 9 | 1 << 16, 0, 0, 0, 0, 0, unmapped, 0),
        (0, _ARRAY + 5 * 64 + 1, 0, 0, 0, 0, unmapped, 0),
        (1 << 19, 0, 0, _DIRECT + 0x300 + 1, 0, 0, mapped, 0),
        (0, 0, 0, _DIRECT + 0x300, 0, 0, mapped, 0),
        (0, 0, 0, _DIRECT + 0x300, 0, 0, unmapped, 0),
        ((1 << 64) - 1,) * 8,
        (0, 0, 0, 0, 0, 0, unmapped, 0),
    )
    data = b"".join(struct.pack("<8Q", *page) for page in pages)
    # An address_space: its inode at 0x340, a tree of one VMA whose node lies at 0x3a0. A list of free pages at 0x380.
    places = {0x300: 0x340, 0x340: 0x3A0, 0x368: 0x90, 0x380: 0x3C0, 0x388: 0x3C0, 0x3C0: 0x380, 0x3C8: 0x380}
    more = bytearray(0x100)
    for at, place in places.items():
        struct.pack_into("<Q", more, at - 0x300, _DIRECT + place)
    lists = b"\1" + _word(_DIRECT + 0x380) + b"\1" + _word(_DIRECT + 0x380) + bytes(3)
    tasks = b"\1" + b"\0" + struct.pack("<Q", _DIRECT + 0x3C0) + bytes(5) + struct.pack("<H", 0x100)
    for how in (0, 8, 64):
        yield bytes([how]) + lists + tasks + struct.pack("<HHBH", 12, 2, 0, 3) + b"\3" + data + bytes(more)


# -- records ---------------------------------------------------------------------------------------------------------


def _words(values: Iterable[int]) -> bytes:
    made = list(values)
    return struct.pack(f"<{len(made)}Q", *made)


def _audit() -> Iterator[bytes]:
    """Yield granules of 16 bytes, leaves of four records, middles of two; two stacks and two transactions."""
    base = 0x1000
    top, middle, leaf, chunks, nodes, log = (base + at for at in (0, 0x20, 0x40, 0x80, 0xA0, 0x100))
    record = [1 | 1 << 6, 9 | 5 << 24]
    memory = {
        top: [middle, 0, 0, 0],
        middle: [leaf, 0],
        leaf: [*record, 0, 0, *record, 0, 0],
        chunks: [nodes],
        nodes: [0, 0, 0x401000, 0, 0x402000, 1],
        log: [1, 0x500, 16, 7, 1 | 1 << 32, 1, 0, 0, 2, 0x500, 16, 9, 2 | 1 << 32, 2 | 8 << 32, 7, 1],
    }
    data = bytearray(0x180)
    for at, values in memory.items():
        data[at - base : at - base + 8 * len(values)] = _words(values)
    shadow = bytes([1, 2, 1]) + _address(0, 0) + struct.pack("<H", 4)
    stacks = _address(0, chunks - base) + bytes([3, 1, 3])
    ring = _address(0, log - base) + b"\2" + b"\2" + _address(0, 0x140) + struct.pack("<H", 16)
    clock = _word(5) + b"\0" + _word(1) + b"\1"
    leaks = b"\1" + _address(0, 0) + struct.pack("<H", 16)
    yield shadow + stacks + ring + clock + b"\x0f" + leaks + b"\0" + _piece(0, 0, bytes(data))
